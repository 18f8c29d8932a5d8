import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { FileScope, FilesSetup } from "../../system/files/files.ts";
import { workerModule } from "../../system/process/workers.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import { readScope } from "./file_scope.ts";

const MAX_HEAP_MB = 256;
/** A model that searches searches again. The thread takes 70 ms to start, and 10-30 MiB while it waits */
const KEEP_MS = 60_000;

/** Pattern and place of a search for lines. Plain data. */
export interface FileSearch {
  readonly kind: "lines";
  /** Regular expression in RE2 syntax */
  readonly pattern: string;
  readonly caseInsensitive: boolean;
  /** File or folder, relative to the root */
  readonly path: string;
  readonly glob: string | undefined;
  /** Matches to find at most */
  readonly limit: number;
}

/** Glob and place of a search for files. Plain data. */
export interface NameSearch {
  readonly kind: "names";
  /** Glob relative to `path` */
  readonly glob: string;
  /** File or folder, relative to the root */
  readonly path: string;
  /** Paths to return at most */
  readonly limit: number;
}

/** Input of the thread of a search. */
export interface SearchJob {
  readonly setup: FilesSetup;
  readonly scope: FileScope;
  readonly search: FileSearch | NameSearch;
}

/** Answer of the thread. */
export type SearchAnswer<Result> =
  | { readonly kind: "searched"; readonly result: Result }
  | { readonly kind: "refused"; readonly code: string; readonly message: string };

/** Services and bounds of a search. */
export interface SearchContext {
  readonly scope: FileScope;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Runs often; throws to end the search */
  readonly check: () => void;
}

/** Module of the thread. */
export const SEARCH_WORKER = workerModule(import.meta.url, "search_worker");

/**
 * Runs a search in a thread that does nothing else meanwhile, so that the event loop answers others meanwhile.
 * @returns what `findFiles` or `searchFiles` returned
 * @throws {ToolError} as they do
 * @throws {CancelError} when the signal aborts
 */
export async function runSearch<Result>(
  search: FileSearch | NameSearch,
  context: ContextWith<"files" | "workers">,
): Promise<Result> {
  const { files, workers } = context.services;
  const job: SearchJob = { setup: files.setup, scope: readScope(context), search };
  // search_worker.ts answers exactly this
  const answer = await workers.run({
    module: SEARCH_WORKER,
    input: job,
    maxHeapMb: MAX_HEAP_MB,
    keepMs: KEEP_MS,
    signal: context.signal,
  }) as SearchAnswer<Result>;
  if (answer.kind === "refused") throw new ToolError(answer.code, answer.message);
  return answer.result;
}
