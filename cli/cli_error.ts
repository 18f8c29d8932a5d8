/**
 * Exit codes of the process (docs/design/processes.md "Command line"): done, refused or failed, wrong command line, a bug of this program,
 * and a configuration that cannot be used.
 */
export const EXIT = { ok: 0, failed: 1, usage: 2, internal: 70, config: 78 } as const;

/** Wrong command line: exit code 2. The message names what is wrong and, where there is one, the nearest right word. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Refusal or failure of a command: exit code 1. The message gives the reason and the way out. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}
