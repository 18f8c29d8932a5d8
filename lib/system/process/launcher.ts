import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import type { CommandLookup } from "./command_lookup.ts";
import { runCommand } from "./run_command.ts";

/** Commands that wait for a try of something that hangs; those after them do without */
const MAX_TRIES = 3;
const TIMEOUT_MS = 5000;

export interface LauncherOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Finds what an uncontained command is started with, so that it ends when the gateway is killed: `setpriv` with a parent-death
 * signal, where the system knows one. Found once; a try that took too long is made again, at most twice.
 * @returns the words before the command; none where there is no such program
 */
export function createLauncherFinder(options: LauncherOptions): () => Promise<readonly string[]> {
  let finding: Promise<readonly string[] | undefined> | undefined;
  let tries = 0;
  return async () => {
    const found = await (finding ??= findLauncher(options));
    if (found === undefined && ++tries < MAX_TRIES) finding = undefined;
    return found ?? [];
  };
}

/** @returns undefined when the try took too long */
async function findLauncher({ commands, clock, env }: LauncherOptions): Promise<readonly string[] | undefined> {
  if (process.platform !== "linux") return [];
  const [file, program] = await Promise.all([commands.find("setpriv"), commands.find("true")]);
  if (file === undefined || program === undefined) return [];
  const args = ["--pdeathsig", "KILL", "--"];
  const signal = new AbortController().signal;
  const tried = await runCommand({ file, args: [...args, program], cwd: "/", env }, {
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: 256,
    signal,
    clock,
  }).catch(() => undefined);
  if (tried?.ending.kind === "timeout") return undefined;
  return tried?.ending.kind === "exit" && tried.ending.code === 0 ? [file, ...args] : [];
}
