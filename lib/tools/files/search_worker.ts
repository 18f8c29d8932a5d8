import { CancelError } from "../../base/cancel.ts";
import { systemClock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createFiles } from "../../system/files/create_files.ts";
import type { Files } from "../../system/files/files.ts";
import { answerJobs } from "../../system/process/workers.ts";
import type { SearchAnswer, SearchContext, SearchJob } from "./search_job.ts";

/** The loop of the thread turns only while names are matched, which takes long with hostile rules */
const LISTEN_MS = 50;

// Runs as a thread of its own, for one search at a time, so that many files, a slow disk or a slow pattern hold up nobody else
answerJobs(async (input, { stopped }): Promise<SearchAnswer<unknown>> => {
  // search_job.ts gives exactly this
  const { setup, scope, search } = input as SearchJob;
  const controller = new AbortController();
  const { signal } = controller;
  const check = () => {
    if (stopped()) controller.abort(new CancelError("cancelled"));
    signal.throwIfAborted();
  };
  const listening = systemClock.every(LISTEN_MS, () => stopped() && controller.abort(new CancelError("cancelled")));
  const files = createFiles({ ...setup, clock: systemClock, blocking: true });
  try {
    return { kind: "searched", result: await run(files, search, { scope, clock: systemClock, signal, check }) };
  } catch (error) {
    if (error instanceof ToolError) return { kind: "refused", code: error.code, message: error.message };
    // Nobody waits for the answer any more
    if (error instanceof CancelError) return { kind: "refused", code: error.reason, message: error.message };
    throw error;
  } finally {
    listening.clear();
  }
});

/** Loads what the search needs, and no more: the engine of patterns takes as long to load as a small search. */
async function run(files: Files, search: SearchJob["search"], options: SearchContext): Promise<unknown> {
  switch (search.kind) {
    case "names":
      return await (await import("./find_files.ts")).findFiles(files, search, options);
    case "lines":
      return await (await import("./search_files.ts")).searchFiles(files, search, options);
  }
}
