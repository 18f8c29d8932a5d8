import { ToolError } from "../../base/errors.ts";
import { exactLine, listSome } from "../../base/text.ts";
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
 * Returns the error that tells the model about a failed system call.
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

/**
 * Returns the error for a file that is not there.
 * @param like name that is there and looks alike, where there is one alone
 */
export function notThere(action: string, path: string, like: string | undefined): ToolError {
  const other = like === undefined ? "" : `; there is ${exactLine(shown(like))}, with ${unusual(like)}`;
  return new ToolError("not_found", `Cannot ${action} ${shown(path)}: it does not exist${other}`);
}

/** Lists the characters of a name that are not of ASCII, such as `U+202F`. */
function unusual(name: string): string {
  const points = new Set(name.match(/[^\x20-\x7e]/gu));
  return listSome([...points].map((one) => `U+${one.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`), 5);
}

/** Returns the error for a folder, FIFO, socket or device where a file is wanted. */
export function notAFile(path: string, action = "open"): ToolError {
  return new ToolError("not_a_file", `Cannot ${action} ${shown(path)}: it is not a regular file`);
}

/** Returns the error for a file where a folder is wanted. */
export function notAFolder(path: string, action = "open"): ToolError {
  return new ToolError("not_a_folder", `Cannot ${action} ${shown(path)}: it is not a folder`);
}

/** Returns the error for a file with several hard links: one may lie outside. */
export function linkedFile(path: string, action: "read" | "write" = "read"): ToolError {
  return new ToolError(
    "hard_link",
    `Cannot ${action === "read" ? "open" : action} ${
      shown(path)
    }: it has more than one hard link, copy it to ${action} it`,
  );
}

/** Returns the error for a path that a symbolic link leads out of the root. */
export function outsideRoot(path: string): ToolError {
  return new ToolError("path_outside_root", `Cannot open ${shown(path)}: it resolves outside the allowed root`);
}
