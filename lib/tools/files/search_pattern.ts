import { isAscii } from "../../base/text.ts";
import { ToolError } from "../../base/errors.ts";
import type { Yielder } from "../../base/tick.ts";
import type { WalkedFile } from "../../system/files/files.ts";
import { compileGlob, type PathMatcher } from "../../system/files/glob.ts";
import { shown } from "../../system/files/parse_path.ts";

/** Bounds of one search, and of each file in it. */
export interface SearchLimits {
  /** Files and folders that the search meets */
  readonly entries: number;
  /** Bytes of one file that are searched */
  readonly fileBytes: number;
  /** Bytes of all files together */
  readonly totalBytes: number;
}

/** Bounds of `content_search`. */
export const SEARCH_LIMITS: SearchLimits = { entries: 100_000, fileBytes: 4_194_304, totalBytes: 1_073_741_824 };

/**
 * Compiles a glob over paths below the searched folder.
 * @param options.anywhere true: a glob without a slash matches the name at any depth
 * @throws {ToolError} `glob_invalid`; `path_outside_root` for a glob that is absolute or has `..`
 */
export function searchPattern(glob: string, options: { readonly anywhere: boolean }): PathMatcher {
  if (glob.startsWith("/") || glob.split("/").includes("..")) {
    throw new ToolError(
      "path_outside_root",
      `Cannot use the glob ${shown(glob.slice(0, 200))}: it must be relative to the searched folder, without ".."`,
    );
  }
  const whole = options.anywhere && !glob.includes("/") ? `**/${glob}` : glob;
  const matches = compileGlob(whole);
  if (isAscii(glob)) return matches;
  const composed = compileGlob(whole.normalize("NFC"));
  return (path) => matches(path) || composed(path.normalize("NFC"));
}

/** Returns the files of a folder that match. Gives way to other work in between: a long name takes time, and a folder may have many. */
export async function matching(
  files: readonly WalkedFile[],
  matches: PathMatcher,
  yielder: Yielder,
): Promise<readonly WalkedFile[]> {
  const found: WalkedFile[] = [];
  for (const file of files) {
    if (matches(file.below)) found.push(file);
    if (yielder.isDue()) await yielder.yield();
  }
  return found;
}

/** Returns a path for a line of output: unchanged, or quoted when it could be taken for more than one line. */
export function pathLine(path: string): string {
  // deno-lint-ignore no-control-regex
  return /[\u0000-\u001f\u007f\u2028\u2029]/.test(path) ? shown(path) : path;
}
