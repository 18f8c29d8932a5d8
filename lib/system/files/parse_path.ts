import { isAbsolute, sep } from "node:path";
import { ToolError } from "../../base/errors.ts";

/** Longest path a tool may name, in UTF-16 units; PATH_MAX of Linux */
const MAX_PATH = 4096;

/** Path of a tool, taken apart. */
export interface ParsedPath {
  /** Without empty parts and `.` */
  readonly names: readonly string[];
  /** True when the path ends with a slash, so that only a folder will do. */
  readonly folder: boolean;
}

/**
 * Parses a path as a tool was given it, without looking at the disk.
 * @param action as `open`: the message reads `Cannot ${action} "path": ...`
 * @throws {ToolError} `path_invalid`: empty, NUL or too long; `path_outside_root`: absolute or with `..`
 */
export function parsePath(path: string, action = "open"): ParsedPath {
  if (path === "") {
    throw new ToolError("path_invalid", `Cannot ${action} "": the path is empty, use "." for the root itself`);
  }
  if (path.length > MAX_PATH) {
    throw new ToolError(
      "path_invalid",
      `Cannot ${action} "${path.slice(0, 40)}...": the path is longer than ${MAX_PATH} characters`,
    );
  }
  if (path.includes("\0")) {
    throw new ToolError("path_invalid", `Cannot ${action} ${shown(path)}: the path contains a NUL byte`);
  }
  if (isAbsolute(path) || /^[a-z]:[\\/]/i.test(path)) {
    throw new ToolError(
      "path_outside_root",
      `Cannot ${action} ${shown(path)}: the path is absolute, give it relative to the allowed root`,
    );
  }
  // On Windows a colon names a stream of the file, and a backslash separates
  if (sep === "\\" && path.includes(":")) {
    throw new ToolError("path_invalid", `Cannot ${action} ${shown(path)}: the path contains a colon`);
  }
  const parts = path.split(sep === "\\" ? /[\\/]/ : "/");
  if (parts.includes("..")) {
    throw new ToolError(
      "path_outside_root",
      `Cannot ${action} ${shown(path)}: ".." is not allowed, give the path relative to the allowed root`,
    );
  }
  return {
    names: parts.filter((part) => part !== "" && part !== "."),
    folder: parts.at(-1) === "" || parts.at(-1) === ".",
  };
}

/** Writes a path for a message: quoted, control characters escaped. */
export function shown(path: string): string {
  return JSON.stringify(path);
}
