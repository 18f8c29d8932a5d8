import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

/** Name of the program that looks after services. */
export type InitSystem = "systemd" | "openrc" | "launchd";

/** State of the service, as the service manager gives it. */
export interface UnitState {
  readonly installed: boolean;
  /** True when the service starts by itself, at login or with the machine */
  readonly enabled: boolean;
  /** `failed`: it ended, and is not started again */
  readonly active: "running" | "starting" | "stopping" | "stopped" | "failed";
  /** The manager's own words, such as `activating (auto-restart)` */
  readonly detail: string;
}

/** Description of the service, the same for every service manager. Paths are absolute, every text is one line. */
export interface ServiceDescription {
  /** Program and arguments, taken as they are: with spaces, quotes, `%` and `$` */
  readonly command: readonly string[];
  /** Where it is started: Postern's own folder, in which no tool may leave a configuration */
  readonly directory: string;
  /** Seconds that work gets to finish when the service is stopped */
  readonly graceSeconds: number;
}

/** The service, by one service manager. Every command throws a ServiceError with the manager's own words when it is refused. */
export interface ServiceManager {
  readonly init: InitSystem;
  /** Absolute path of the service's file */
  readonly file: string;
  /** True when `start` and `restart` return only after the service has told that it works */
  readonly waits: boolean;
  /** @throws {ServiceError} this user may not change the service */
  requireRights(): void;
  /**
   * Writes the file, and has the service started with the machine, or at login; repeating it changes nothing.
   * @returns notes for the person: what else is due
   */
  install(description: ServiceDescription): Promise<readonly string[]>;
  /** Stops the service and removes all that `install` wrote, but no records and no configuration. @returns notes for the person */
  uninstall(): Promise<readonly string[]>;
  start(): Promise<void>;
  stop(): Promise<void>;
  restart(): Promise<void>;
  state(): Promise<UnitState>;
}

/** The service manager refused, or is not there; the message says the way out where there is one. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
}

/** Variable that tells a process which service manager runs it. */
export const SERVICE_VARIABLE = "POSTERN_SERVICE";
/** Name of the service with every manager. */
export const SERVICE_NAME = "postern";
/** Description of the service for people, in one line. */
export const SERVICE_SUMMARY = "Postern, a gateway to AI agents";
/** From the end of the grace to the end of the process, in seconds: the last frames, and the database */
export const STOP_MARGIN_SECONDS = 15;
/** A wrong command line or configuration: no restart mends it (exit codes of docs/design/processes.md "Command line"). */
export const HOPELESS_EXIT_CODES = [2, 78] as const;
/** After a crash: when, and up to how often within which time. */
export const RESTARTS = { delaySeconds: 2, most: 5, withinSeconds: 300 } as const;

/**
 * The service manager that runs on this machine.
 * @param options.root folder in which its file system begins. Default `/`
 * @returns undefined when there is none that is known, as in most containers
 * Source: sd_booted(3): /run/systemd/system; openrc's rc_sys: /run/openrc/softlevel
 */
export function detectInit(
  { platform, root = "/" }: { readonly platform: string; readonly root?: string },
): InitSystem | undefined {
  if (platform === "darwin") return "launchd";
  if (existsSync(join(root, "run/systemd/system"))) return "systemd";
  // The folder /run/openrc exists too where its programs are merely installed
  return existsSync(join(root, "run/openrc/softlevel")) ? "openrc" : undefined;
}

const MARK = "postern-service: ";

/** The description as one line of a comment, so that what was installed can be read again. */
export function toServiceMark(description: ServiceDescription): string {
  // XML allows no two hyphens in a comment
  return MARK + JSON.stringify(description).replaceAll("--", "\\u002d\\u002d");
}

/** The description in a service's file; undefined in one that was not written by this program. */
export function readServiceMark(text: string): ServiceDescription | undefined {
  const line = text.split("\n").find((each) => each.includes(MARK));
  if (line === undefined) return undefined;
  try {
    const json = line.slice(line.indexOf(MARK) + MARK.length).replace(/\s*-->\s*$/, "");
    const { command, directory, graceSeconds }: Partial<ServiceDescription> = JSON.parse(json);
    if (!Array.isArray(command) || typeof directory !== "string" || typeof graceSeconds !== "number") return undefined;
    return { command: command.map(String), directory, graceSeconds };
  } catch {
    return undefined;
  }
}

/** How a program ended. */
export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one of the service manager's programs. @throws {ServiceError} it is not there, or takes too long */
export type RunProgram = (program: string, args: readonly string[]) => Promise<Ran>;

/** Variables that these programs need. Keys of providers are not passed on */
const PASSED = ["DBUS_SESSION_BUS_ADDRESS", "HOME", "LOGNAME", "PATH", "USER", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"];
/** Starting waits until the service is ready, stopping until it has ended */
const LIMIT_MS = 400_000;

/** Programs found by PATH, in plain English words. @param env of the person */
export function createRunProgram(env: Readonly<Record<string, string | undefined>>): RunProgram {
  const passed = Object.fromEntries(PASSED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
  return (program, args) =>
    new Promise((resolve, reject) => {
      execFile(program, args, { env: { ...passed, LC_ALL: "C" }, timeout: LIMIT_MS }, (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code === "number") return resolve({ code, stdout, stderr });
        const reason = code === "ENOENT" ? "there is no such program here" : (error?.message ?? "it was ended").trim();
        reject(new ServiceError(`Cannot run "${program}": ${reason}`));
      });
    });
}

/** Runs a program that must succeed. @param action for the message, such as `start the service`. @throws {ServiceError} */
export async function runOrFail(
  run: RunProgram,
  action: string,
  [program = "", ...args]: readonly string[],
): Promise<Ran> {
  const ran = await run(program, args);
  if (ran.code === 0) return ran;
  const words = (ran.stderr.trim() || ran.stdout.trim() || `exit code ${ran.code}`).replaceAll("\n", "; ");
  throw new ServiceError(`Cannot ${action}: ${program} says ${words}`);
}
