import { CancelError, cancelError } from "../../base/cancel.ts";
import { systemClock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createFiles } from "../../system/files/create_files.ts";
import { answerJob } from "../../system/process/workers.ts";
import type { SearchAnswer, SearchJob } from "./content_search.ts";
import { searchFiles } from "./search_files.ts";

// Runs as a thread of its own, for one search, so that a slow disk or pattern holds up nobody else
await answerJob(async (input, { stopped }): Promise<SearchAnswer> => {
  // content_search.ts gives exactly this
  const { setup, scope, search } = input as SearchJob;
  const controller = new AbortController();
  const { signal } = controller;
  const check = () => {
    if (!stopped()) return;
    controller.abort(new CancelError("cancelled"));
    throw cancelError(signal);
  };
  const files = createFiles({ ...setup, clock: systemClock, blocking: true });
  try {
    return { kind: "searched", result: await searchFiles(files, search, { scope, clock: systemClock, signal, check }) };
  } catch (error) {
    if (error instanceof ToolError) return { kind: "refused", code: error.code, message: error.message };
    // Nobody waits for the answer any more
    if (error instanceof CancelError) return { kind: "refused", code: error.reason, message: error.message };
    throw error;
  }
});
