import { Yielder } from "../../base/tick.ts";
import type { Files } from "../../system/files/files.ts";
import type { NameSearch, SearchContext } from "./search_job.ts";
import { matching, SEARCH_LIMITS, searchPattern } from "./search_pattern.ts";

/** Result of a search for files. Plain data. */
export interface FilesFound {
  /** Sorted; no more than the limit */
  readonly paths: readonly string[];
  /** Number of files that match */
  readonly count: number;
  /** True when the search ended at its limit of files and folders */
  readonly truncated: boolean;
}

/**
 * Finds the files below a path whose names match a glob.
 * @throws {ToolError} as `Files.walk`, and for a bad glob
 * @throws {CancelError} when the signal aborts
 */
export async function findFiles(
  files: Files,
  search: NameSearch,
  options: SearchContext & {
    /** Files and folders that the search meets. Default: SEARCH_LIMITS */
    readonly maxEntries?: number;
  },
): Promise<FilesFound> {
  const { scope, signal, check, maxEntries = SEARCH_LIMITS.entries } = options;
  const matches = searchPattern(search.glob, { anywhere: false });
  const yielder = new Yielder(options);
  const walk = files.walk(search.path, scope, { respectGitignore: true, maxEntries, signal });
  const found: string[] = [];
  let step = await walk.next();
  for (; !step.done; step = await walk.next()) {
    check();
    for (const file of await matching(step.value, matches, yielder)) found.push(file.path);
  }
  found.sort();
  return { paths: found.slice(0, search.limit), count: found.length, truncated: step.value.truncated };
}
