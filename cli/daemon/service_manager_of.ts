import { detectInit } from "../../lib/host/service/detect_init.ts";
import { createLaunchdService } from "../../lib/host/service/launchd_service.ts";
import { createOpenrcService } from "../../lib/host/service/openrc_service.ts";
import { createRunProgram } from "../../lib/host/service/run_program.ts";
import type { ServiceManager } from "../../lib/host/service/service_manager.ts";
import { createSystemdService } from "../../lib/host/service/systemd_service.ts";
import type { CommandContext } from "../command.ts";
import { STARTER_CONFIG } from "../starter_config.ts";

/**
 * The service manager that is named, else the one that runs here.
 * @param named `systemd` or `openrc`
 * @returns undefined where none runs
 */
export function serviceManagerOf({ io }: CommandContext, named: string | undefined): ServiceManager | undefined {
  const run = createRunProgram(io.env);
  const uid = process.getuid?.() ?? -1;
  switch (named ?? detectInit({ platform: process.platform })) {
    case "systemd":
      return createSystemdService({ env: io.env, home: io.home, run });
    case "openrc":
      return createOpenrcService({ run, uid, starterConfig: STARTER_CONFIG });
    case "launchd":
      return createLaunchdService({ home: io.home, run, uid });
  }
  return undefined;
}
