import { readText } from "../../lib/config/find_config.ts";
import { prepareDataDir } from "../../lib/config/folders.ts";
import { loadConfig, type LoadedConfig } from "../../lib/config/load_config.ts";
import { namedVariables } from "../../lib/config/secrets.ts";
import {
  createRunProgram,
  detectInit,
  type ServiceDescription,
  ServiceError,
  type ServiceManager,
} from "../../lib/host/service/service_manager.ts";
import { createLaunchdService } from "../../lib/host/service/launchd_service.ts";
import { createOpenrcService, OPENRC_PATHS, OPENRC_USER } from "../../lib/host/service/openrc_service.ts";
import { createSystemdService } from "../../lib/host/service/systemd_service.ts";
import { VENDORS } from "../../lib/providers/provider_settings.ts";
import type { CommandContext } from "../command.ts";
import { checkBind } from "../serve/listen_address.ts";
import { STARTER_CONFIG } from "../starter_config.ts";
import { ownCommand } from "./launch_daemon.ts";

/** Description of the service for the service manager, and notes for the person who installs it. */
export interface ServiceSetup {
  readonly description: ServiceDescription;
  readonly notes: readonly string[];
}

/**
 * Describes a service that uses the configuration in use here. The service itself names the configuration file, the data directory
 * and the flags, since a service sees nothing of this terminal.
 * @throws {ConfigError} a configuration that could not start; {ServiceError} a path that no service file can hold
 */
export async function setUpService(
  context: CommandContext,
  { init }: Pick<ServiceManager, "init">,
): Promise<ServiceSetup> {
  const loaded = init === "openrc" ? await loadForMachine(context) : await context.loadConfig();
  // A service has no POSTERN_TOKEN that would make a public bind safe
  checkBind(loaded.config, { hasEnvironmentToken: false });
  // With OpenRC the data directory belongs to another user, and is made when the service is installed
  if (init !== "openrc") await prepareDataDir(loaded.dataDir);
  const config = loaded.file?.path ?? (init === "openrc" ? context.flags.config ?? OPENRC_PATHS.config : undefined);
  const command = [
    ...ownCommand(),
    ...["daemon", "start", "--foreground", `--data-dir=${loaded.dataDir}`],
    ...(config === undefined ? [] : [`--config=${config}`]),
    ...(context.flags.workspace === undefined ? [] : [`--workspace=${loaded.workspace}`]),
  ];
  // deno-lint-ignore no-control-regex -- these are what a line of a service file cannot hold
  const broken = command.find((word) => /[\x00-\x1f]/.test(word));
  if (broken !== undefined) {
    throw new ServiceError(`Cannot install the service: ${JSON.stringify(broken)} has a control character in it`);
  }
  const graceSeconds = loaded.config.gateway.shutdown_grace_secs;
  const ofMachine = init === "openrc" && config !== undefined ? machineNotes(config, loaded.dataDir) : [];
  return {
    description: { command, directory: loaded.dataDir, graceSeconds },
    notes: [...ofMachine, ...notesOn(context, loaded)],
  };
}

/** Loads the configuration of a service of the whole machine, whoever installs it. Before the first installation: all defaults. */
async function loadForMachine({ flags, loadOptions }: CommandContext): Promise<LoadedConfig> {
  const exists = flags.config !== undefined || await readText(OPENRC_PATHS.config) !== undefined;
  return await loadConfig({
    ...loadOptions,
    env: {},
    cwd: "/",
    flags: {
      ...loadOptions.flags,
      config: exists ? flags.config ?? OPENRC_PATHS.config : undefined,
      dataDir: flags.dataDir ?? OPENRC_PATHS.dataDir,
    },
  });
}

function machineNotes(config: string, dataDir: string): readonly string[] {
  return [
    `The service runs as the user ${OPENRC_USER}, with the configuration ${config} and its records in ${dataDir}`,
    `A pairing code: sudo -u ${OPENRC_USER} postern pair --data-dir "${dataDir}"`,
  ];
}

function notesOn({ io }: CommandContext, { config, file }: LoadedConfig): readonly string[] {
  const keys = [
    ...Object.values(VENDORS).flatMap(({ keyEnv }) => keyEnv ?? []),
    ...namedVariables(config).map(({ name }) => name),
  ];
  const settings = Object.keys(io.env).filter((name) => name.startsWith("POSTERN__") || name === "POSTERN_TOKEN");
  const seenHereAlone = [...new Set([...keys, ...settings])].filter((name) => (io.env[name] ?? "") !== "").sort();
  return [
    ...(seenHereAlone.length === 0 ? [] : [
      `The service does not see ${
        seenHereAlone.join(", ")
      } of this terminal: write settings into postern.toml, and a key into a ` +
      "file that api_key_file names",
    ]),
    ...(file?.trusted === true ? [`${file.path} is used by the service also after a change that nobody accepted`] : []),
  ];
}

/**
 * Returns the named service manager, else the one that runs here.
 * @param named `systemd` or `openrc`
 * @returns undefined where no service manager runs
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
