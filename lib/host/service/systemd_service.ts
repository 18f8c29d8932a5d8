import { isAbsolute, join } from "node:path";
import { runOrFail, type RunProgram } from "./run_program.ts";
import { SERVICE_NAME } from "./service_description.ts";
import { readServiceFile, removeServiceFile, writeServiceFile } from "./service_file.ts";
import { ServiceError, type ServiceManager, type UnitState } from "./service_manager.ts";
import { toSystemdUnit } from "./to_systemd_unit.ts";

export interface SystemdOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly run: RunProgram;
}

const UNIT = `${SERVICE_NAME}.service`;
const MODE = 0o644;
/** systemd in a session without one of its own, as after `su` or `sudo`, or in a container */
const NO_BUS = /connect to .*bus/i;
const BUS_HINT = "log in as this user itself, without su or sudo, or use postern daemon start";

/** A unit of the user's own systemd: no root is needed. */
export function createSystemdService({ env, home, run }: SystemdOptions): ServiceManager {
  const configHome = env["XDG_CONFIG_HOME"] ?? "";
  const file = join(isAbsolute(configHome) ? configHome : join(home, ".config"), "systemd", "user", UNIT);
  const systemctl = (action: string, ...words: readonly string[]) =>
    runOrFail(run, action, ["systemctl", "--user", ...words]).catch((error: ServiceError) => {
      throw NO_BUS.test(error.message) ? new ServiceError(`${error.message}; ${BUS_HINT}`, { cause: error }) : error;
    });
  // What ended in disorder is listed, and counts against a person's own starts; nothing to forget is no failure
  const forgetFailures = () => run("systemctl", ["--user", "reset-failed", UNIT]);
  const state = async (): Promise<UnitState> => {
    const properties = ["LoadState", "ActiveState", "SubState", "UnitFileState"];
    const { stdout } = await systemctl("ask about the service", "show", UNIT, `--property=${properties.join(",")}`);
    const said = new Map(stdout.split("\n").map((line) => line.split("=", 2) as [string, string]));
    const active = said.get("ActiveState") ?? "";
    return {
      installed: await readServiceFile(file) !== undefined,
      enabled: said.get("UnitFileState") === "enabled",
      active: ACTIVE[active] ?? "stopped",
      detail: `${active} (${said.get("SubState")})`,
    };
  };
  return {
    init: "systemd",
    file,
    waits: true,
    requireRights: () => {},
    async install(description) {
      const isNew = await readServiceFile(file) === undefined;
      const changed = await writeServiceFile(file, toSystemdUnit(description), MODE);
      try {
        await systemctl("install the service", "daemon-reload");
      } catch (error) {
        if (isNew) await removeServiceFile(file);
        throw error;
      }
      await systemctl("install the service", "enable", UNIT);
      const running = changed && (await state()).active === "running";
      return [
        ...(running ? ["It still runs as it was installed before: postern service restart"] : []),
        ...await lingerNotes(run, env),
      ];
    },
    async uninstall() {
      if (await readServiceFile(file) !== undefined) {
        await systemctl("uninstall the service", "disable", "--now", UNIT);
        await removeServiceFile(file);
      }
      await systemctl("uninstall the service", "daemon-reload");
      await forgetFailures();
      return [];
    },
    async start() {
      await forgetFailures();
      await systemctl("start the service", "start", UNIT);
    },
    stop: async () => void await systemctl("stop the service", "stop", UNIT),
    async restart() {
      await forgetFailures();
      await systemctl("restart the service", "restart", UNIT);
    },
    state,
  };
}

const ACTIVE: Readonly<Record<string, UnitState["active"]>> = {
  active: "running",
  reloading: "running",
  activating: "starting",
  deactivating: "stopping",
  failed: "failed",
};

/** A user's services end with the last session unless they linger. */
async function lingerNotes(run: RunProgram, env: SystemdOptions["env"]): Promise<readonly string[]> {
  const user = env["USER"] ?? env["LOGNAME"] ?? "";
  const asked = await run("loginctl", ["show-user", "--property=Linger", ...(user === "" ? [] : [user])])
    .catch(() => undefined);
  if (asked?.stdout.trim() === "Linger=yes") return [];
  return [
    `It runs while you are logged in; to have it run always, from the start of the machine: loginctl enable-linger ${user}`
      .trim(),
  ];
}
