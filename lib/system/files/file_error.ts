import { ToolError } from "../../base/errors.ts";
import { shown } from "./parse_path.ts";

const REASONS: Readonly<Record<string, readonly [code: string, reason: string]>> = {
  ENOENT: ["not_found", "it does not exist"],
  ENOTDIR: ["not_found", "a part of the path is not a folder"],
  EACCES: ["access_denied", "the operating system denies access"],
  EPERM: ["access_denied", "the operating system denies access"],
  EROFS: ["access_denied", "the file system is read-only"],
  ENOSPC: ["io_error", "the disk is full"],
  EDQUOT: ["io_error", "the disk quota is used up"],
  ENAMETOOLONG: ["path_invalid", "a name in it is too long"],
  ELOOP: ["path_invalid", "it goes through too many symbolic links"],
  EMFILE: ["io_error", "too many files are open, try again later"],
  ENFILE: ["io_error", "too many files are open, try again later"],
};

/**
 * What the model is told about a failed system call.
 * @param action as `open`: the message reads `Cannot open "path": ...`
 * @returns `error` itself when it is a ToolError or no system error
 */
export function fileError(action: string, path: string, error: unknown): Error {
  if (!(error instanceof Error)) return new TypeError("A non-error was thrown", { cause: error });
  // Deno's own refusal, where its permissions are narrower than the workspace, has no code
  const system = error.name === "NotCapable" ? "EACCES" : "code" in error ? String(error.code) : undefined;
  if (error instanceof ToolError || system === undefined) return error;
  const [code, reason] = REASONS[system] ?? ["io_error", `the operating system says ${system}`];
  return new ToolError(code, `Cannot ${action} ${shown(path)}: ${reason}`, { cause: error });
}
