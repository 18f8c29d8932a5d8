import { isAbsolute, join } from "node:path";
import {
  HOPELESS_EXIT_CODES,
  RESTARTS,
  runOrFail,
  type RunProgram,
  SERVICE_NAME,
  SERVICE_SUMMARY,
  SERVICE_VARIABLE,
  type ServiceDescription,
  ServiceError,
  type ServiceManager,
  STOP_MARGIN_SECONDS,
  toServiceMark,
  type UnitState,
} from "./service_manager.ts";
import { readServiceFile, removeServiceFile, writeServiceFile } from "./service_file.ts";

/** Environment, home folder and programs that a systemd service works with. */
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
  // systemd lists failed units, and counts their failures against a person's own starts. A unit without failures is no error
  const forgetFailures = () => run("systemctl", ["--user", "reset-failed", UNIT]);
  const state = async (): Promise<UnitState> => {
    const properties = ["LoadState", "ActiveState", "SubState", "UnitFileState"];
    const { stdout } = await systemctl("ask about the service", "show", UNIT, `--property=${properties.join(",")}`);
    const said = new Map(
      stdout.split("\n").map((line) => line.split("=", 2)).map(([name = "", value = ""]) => [name, value]),
    );
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

/** The service must say twice in this time that it is alive, or it is restarted. */
const WATCHDOG_SECONDS = 60;
/** A first start may have to move a large database to a new version. */
const START_SECONDS = 300;

/**
 * The text of a systemd user unit. It hardens only what a user's manager can without a mount namespace, and what tools can live
 * with: no MemoryDenyWriteExecute, since JavaScript and WebAssembly are compiled; no RestrictNamespaces, since bubblewrap makes them.
 * Each program that tools run stays within the unit (`KillMode=control-group`); one that eats all memory ends alone (`OOMPolicy`), and
 * contained ones within the bound of a cgroup that the gateway makes beside its own (`Delegate`). An older systemd passes over what it
 * does not know.
 *
 * Source: systemd.unit(5), systemd.service(5) "Command lines": `:` before the program keeps `$` as it is; `%` is doubled everywhere
 */
export function toSystemdUnit(description: ServiceDescription): string {
  const { directory, graceSeconds } = description;
  // systemd takes no program with these in its path, and env starts any
  const command = /["'\\]/.test(description.command[0] ?? "")
    ? ["/usr/bin/env", ...description.command]
    : description.command;
  return `# Written by postern service install, and again by the next one
# ${toServiceMark(description)}
[Unit]
Description=${SERVICE_SUMMARY}
StartLimitIntervalSec=${RESTARTS.withinSeconds}
StartLimitBurst=${RESTARTS.most}

[Service]
Type=notify
NotifyAccess=all
ExecStart=:${command.map(quote).join(" ")}
ExecReload=kill -HUP $MAINPID
WorkingDirectory=${percent(directory)}
Environment=${SERVICE_VARIABLE}=systemd
Restart=on-failure
RestartSec=${RESTARTS.delaySeconds}
RestartPreventExitStatus=${HOPELESS_EXIT_CODES.join(" ")}
TimeoutStartSec=${START_SECONDS}
TimeoutStopSec=${graceSeconds + STOP_MARGIN_SECONDS}
WatchdogSec=${WATCHDOG_SECONDS}
KillMode=control-group
Delegate=memory
DelegateSubgroup=gateway
OOMPolicy=continue
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
`;
}

function quote(word: string): string {
  return `"${percent(word).replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** `%h` and its like would be put in. */
function percent(text: string): string {
  return text.replaceAll("%", "%%");
}
