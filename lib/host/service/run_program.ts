import { execFile } from "node:child_process";
import { ServiceError } from "./service_manager.ts";

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

/** Runs a program that must succeed. @param action for the message, as `start the service`. @throws {ServiceError} */
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
