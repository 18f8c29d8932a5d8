import { ConfigError, HttpError, messageOf, systemCodeOf } from "../lib/base/errors.ts";
import { withProgramName } from "../lib/base/program_name.ts";
import { createRedactor } from "../lib/base/redact.ts";
import { environmentSecrets } from "../lib/config/secrets.ts";
import { type CliIo, CommandError, EXIT, UsageError } from "./command.ts";
import { programName } from "./program_name.ts";
import { messageColumns, printable, wrapText } from "./terminal/terminal_text.ts";

/** Names of error classes, beside those of cli/, whose message is meant for the person at the terminal. */
const FOR_PEOPLE = new Set([
  "GatewayClientError",
  "ListenError",
  "CancelError",
  "ServiceError",
  "LinkError",
  "McpInstallError",
]);

/** Codes of system errors about the disk: full, read-only, broken or closed to this user. None is a bug of this program. */
const DISK_CODES = new Set(["EACCES", "EDQUOT", "EIO", "ENOSPC", "EPERM", "EROFS"]);

/** Writes the reason of a failed command to stderr, with `json` as one object. @returns the exit code */
export function reportFailure(error: unknown, { io, json }: { readonly io: CliIo; readonly json: boolean }): number {
  const code = exitCodeOf(error);
  const message = code === EXIT.internal
    ? `Internal error: ${stackOf(error)}`
    : `${isOfDisk(error) ? "Cannot use the disk: " : ""}${withProgramName(messageOf(error), programName(io.env))}`;
  const problems = error instanceof ConfigError ? error.problems : undefined;
  // A message about a wrong value quotes the value, which may be a secret in the wrong place
  const { redact } = createRedactor(environmentSecrets(io.env));
  const report = {
    error: {
      message,
      code: error instanceof Error && "code" in error ? error.code ?? null : null,
      ...(problems === undefined ? {} : { problems }),
    },
  };
  io.stderr(`${json ? redact(JSON.stringify(report)) : shownMessage(redact(message), io)}\n`);
  return code;
}

/** Returns a message as the terminal shows it: escaped, and broken between words. Elsewhere it stays as it is. */
function shownMessage(message: string, io: CliIo): string {
  return io.isTerminal.stderr ? wrapText(printable(message), messageColumns(io)).join("\n") : message;
}

function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError) return EXIT.usage;
  if (error instanceof ConfigError) return EXIT.config;
  if (error instanceof CommandError || error instanceof HttpError) return EXIT.failed;
  return error instanceof Error && (FOR_PEOPLE.has(error.name) || isOfDisk(error)) ? EXIT.failed : EXIT.internal;
}

function isOfDisk(error: unknown): boolean {
  return DISK_CODES.has(systemCodeOf(error) ?? "") && error instanceof Error && "syscall" in error &&
    typeof error.syscall === "string";
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
