import { existsSync } from "node:fs";
import { isAbsolute } from "node:path";
import { readServiceMark } from "../../lib/host/service/service_description.ts";
import { readServiceFile } from "../../lib/host/service/service_file.ts";
import { ServiceError } from "../../lib/host/service/service_manager.ts";
import { CommandError } from "../cli_error.ts";
import { serviceManagerOf } from "../daemon/service_manager_of.ts";
import { readServiceStatus } from "../daemon/service_status.ts";
import { type Check, failure, fine, warning } from "./finding.ts";

const NAME = "service";

/** The service of this system: whether it is installed, still points at a program, and runs. */
export const serviceCheck: Check = {
  name: NAME,
  async look({ context }) {
    const manager = serviceManagerOf(context, undefined);
    if (manager === undefined) {
      return fine(NAME, "Neither systemd nor OpenRC runs here; postern daemon start works without them");
    }
    const text = await readServiceFile(manager.file);
    if (text === undefined) return fine(NAME, "Not installed; postern service install has it started by the system");
    const missing = readServiceMark(text)?.command.find((word) => isAbsolute(word) && !existsSync(word));
    if (missing !== undefined) {
      return failure(NAME, `${manager.file} starts "${missing}", which is gone`, "postern service install");
    }
    const status = await readServiceStatus(context, manager).catch(toUnknown);
    if ("unknown" in status) return warning(NAME, status.unknown, "postern service status");
    const { running, unit, unit_detail, health, enabled, address } = status;
    if (unit === "failed") return failure(NAME, `It failed: ${unit_detail}`, "postern service start");
    if (running && enabled) return fine(NAME, `Runs under ${manager.init} and answers at ${address}`);
    if (running) return warning(NAME, "It runs, and does not start by itself", "postern service install");
    if (unit === "running") return failure(NAME, `It runs and is ${health} at ${address}`, "postern service restart");
    return warning(NAME, `Installed and not running: ${unit_detail}`, "postern service start");
  },
};

/** A service of another user, or a session without the bus of systemd, cannot be asked about; that is no fault of the service. */
function toUnknown(error: unknown): { readonly unknown: string } {
  if (error instanceof CommandError || error instanceof ServiceError) return { unknown: error.message };
  throw error;
}
