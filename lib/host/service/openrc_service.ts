import { existsSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { dirname, isAbsolute, join } from "node:path";
import {
  readServiceMark,
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

/** Where a service of the whole machine keeps its things. */
export const OPENRC_PATHS = {
  config: "/etc/postern/postern.toml",
  dataDir: "/var/lib/postern",
} as const;

/** Programs and folders that an OpenRC service works with. */
export interface OpenrcOptions {
  readonly run: RunProgram;
  /** Number of the user who runs this */
  readonly uid: number;
  /** Text that is written as the configuration where there is none */
  readonly starterConfig: string;
  /** Folder in which the file system of the service begins. Default `/` */
  readonly root?: string;
}

const CONFIG_WORD = /^--config=(.+)$/s;
const SCRIPT_MODE = 0o755;
const CONFIG_MODE = 0o640;
const CONFIG_FOLDER_MODE = 0o755;
const DATA_MODE = 0o700;

/** A service of the whole machine under OpenRC, which runs as a user of its own: changing it needs root. */
export function createOpenrcService({ run, uid, starterConfig, root = "/" }: OpenrcOptions): ServiceManager {
  const at = (path: string) => join(root, path);
  const file = at(`/etc/init.d/${SERVICE_NAME}`);
  const runlevel = `/etc/runlevels/default/${SERVICE_NAME}`;
  const requireRights = () => {
    if (uid === 0) return;
    throw new ServiceError(
      "Cannot change the service: OpenRC's belong to the whole machine, which needs root; use sudo",
    );
  };
  const command = async (verb: "start" | "stop" | "restart") => {
    requireRights();
    await runOrFail(run, `${verb} the service`, ["rc-service", SERVICE_NAME, verb]);
  };
  return {
    init: "openrc",
    file,
    waits: false,
    requireRights,
    async install(description) {
      requireRights();
      const { command, directory } = description;
      await requireReadable(command.flatMap((word) => CONFIG_WORD.exec(word)?.[1] ?? word), at);
      await makeUser(run, at(directory));
      await mkdir(at(directory), { recursive: true, mode: DATA_MODE });
      await own(run, [at(directory)]);
      if (command.includes(`--config=${OPENRC_PATHS.config}`)) {
        await makeConfig(run, at(OPENRC_PATHS.config), starterConfig);
      }
      const changed = await writeServiceFile(file, toOpenrcScript(description), SCRIPT_MODE);
      await runOrFail(run, "install the service", ["rc-update", "add", SERVICE_NAME, "default"]);
      const { code } = await run("rc-service", [SERVICE_NAME, "status"]);
      return changed && code === 0 ? ["It still runs as it was installed before: postern service restart"] : [];
    },
    async uninstall() {
      requireRights();
      const text = await readServiceFile(file);
      if (text === undefined) return [];
      await runOrFail(run, "stop the service", ["rc-service", "--ifstarted", SERVICE_NAME, "stop"]);
      if (existsSync(at(runlevel))) {
        await runOrFail(run, "uninstall the service", ["rc-update", "del", SERVICE_NAME, "default"]);
      }
      await removeServiceFile(file);
      const { command = [], directory = OPENRC_PATHS.dataDir } = readServiceMark(text) ?? {};
      const kept = [...command.flatMap((word) => CONFIG_WORD.exec(word)?.[1] ?? []), directory];
      return [`${kept.join(", ")} and the user ${OPENRC_USER} are kept: they are yours to remove`];
    },
    start: () => command("start"),
    stop: () => command("stop"),
    restart: () => command("restart"),
    async state() {
      const installed = await readServiceFile(file) !== undefined;
      const enabled = existsSync(at(runlevel));
      if (!installed) return { installed, enabled, active: "stopped", detail: "not installed" };
      const { code, stdout, stderr } = await run("rc-service", [SERVICE_NAME, "status"]);
      // Warnings about other services stand around it
      const said = `${stdout} ${stderr}`;
      const detail = /status: \w+/.exec(said)?.[0] ?? said.replaceAll(/\s+/g, " ").replaceAll("*", "").trim();
      return { installed, enabled, active: ACTIVE[code] ?? "stopped", detail };
    },
  };
}

/** Source: openrc's sh/supervise-daemon.sh, supervise_status() */
const ACTIVE: Readonly<Record<number, UnitState["active"]>> = {
  0: "running",
  4: "stopping",
  8: "starting",
  32: "failed",
  64: "failed",
};

async function makeUser(run: RunProgram, home: string): Promise<void> {
  if ((await run("id", ["-u", OPENRC_USER])).code === 0) return;
  const missing = (error: unknown) => {
    if (error instanceof ServiceError) return undefined;
    throw error;
  };
  const options = ["--system", "--user-group", "--no-create-home", "--home-dir", home, "--shell", "/sbin/nologin"];
  const made = await run("useradd", [...options, OPENRC_USER]).catch(missing);
  if (made?.code === 0) return;
  // Alpine has BusyBox's programs in place of it
  await runOrFail(run, "make the user of the service", ["addgroup", "-S", OPENRC_USER]);
  const busybox = ["-S", "-D", "-H", "-h", home, "-s", "/sbin/nologin", "-G", OPENRC_USER, OPENRC_USER];
  await runOrFail(run, "make the user of the service", ["adduser", ...busybox]);
}

/** The service may read its configuration, and not write it. */
async function makeConfig(run: RunProgram, path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: CONFIG_FOLDER_MODE });
  if (await readServiceFile(path) !== undefined) return;
  await writeServiceFile(path, text, CONFIG_MODE);
  await runOrFail(run, "give the service its configuration", ["chown", `root:${OPENRC_USER}`, path]);
}

async function own(run: RunProgram, paths: readonly string[]): Promise<void> {
  await runOrFail(run, "give the service its folder", ["chown", `${OPENRC_USER}:${OPENRC_USER}`, ...paths]);
}

/** A program below a closed home folder cannot be run by another user, who would only see it fail. Folders yet to be made are open. */
async function requireReadable(paths: readonly string[], at: (path: string) => string): Promise<void> {
  for (const path of paths.filter(isAbsolute)) {
    for (let folder = dirname(path); folder !== dirname(folder); folder = dirname(folder)) {
      const mode = await stat(at(folder)).then((found) => found.mode, () => 0o001);
      if ((mode & 0o001) !== 0) continue;
      throw new ServiceError(
        `Cannot install the service: the user ${OPENRC_USER} cannot reach "${path}", since "${folder}" is closed to others; ` +
          "install Postern and its runtime for all users",
      );
    }
  }
}

/** User and group that the service runs as. */
export const OPENRC_USER = SERVICE_NAME;

/**
 * The text of an `openrc-run` script, supervised by supervise-daemon, which starts a crashed service again.
 *
 * Source: openrc-run(8), supervise-daemon(8); openrc evaluates these variables as words of a shell command, so each word is quoted
 * within them once more
 */
export function toOpenrcScript(description: ServiceDescription): string {
  const [program = "", ...options] = description.command;
  const { directory, graceSeconds } = description;
  return `#!/sbin/openrc-run
# shellcheck shell=sh disable=SC1003,SC2016,SC2034
# Written by postern service install, and again by the next one
# ${toServiceMark(description)}

name=${quote(SERVICE_NAME)}
description=${quote(SERVICE_SUMMARY)}

supervisor="supervise-daemon"
command=${quote(quote(program))}
command_args=${quote(options.map(quote).join(" "))}
command_user="${OPENRC_USER}:${OPENRC_USER}"
directory=${quote(quote(directory))}
umask="0077"
retry="SIGTERM/${graceSeconds + STOP_MARGIN_SECONDS}/SIGKILL/5"
respawn_delay="${RESTARTS.delaySeconds}"
respawn_max="${RESTARTS.most}"
respawn_period="${RESTARTS.withinSeconds}"

export ${SERVICE_VARIABLE}="openrc"
export HOME=${quote(directory)}

depend() {
\tuse net dns logger
\tafter bootmisc
}

start_pre() {
\tcheckpath --directory --mode 0700 --owner "$command_user" ${quote(directory)}
}
`;
}

function quote(word: string): string {
  if (/^[\w%+,./:=@-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", "'\\''")}'`;
}
