/** What the process ends with (docs/design/processes.md "Command line"). */
export const EXIT = { ok: 0, failed: 1, usage: 2, internal: 70, config: 78 } as const;

/** The command line is wrong: exit 2. The message says what and, where there is one, the nearest right thing. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The command could not do its work: exit 1. The message says why and the way out. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}
