import { HttpError, ProviderError, ToolError } from "../base/errors.ts";
import type { RunHandle, RunRequest, RunSupervisor } from "./run_request.ts";

/** @throws {ToolError} what refuses the run, in the words for an HTTP client */
export async function startSubAgent(runs: RunSupervisor, request: RunRequest): Promise<RunHandle> {
  try {
    return await runs.start(request);
  } catch (cause) {
    if (cause instanceof HttpError || cause instanceof ProviderError) {
      throw new ToolError(cause.code, cause.message, { cause });
    }
    throw cause;
  }
}

/** As `startSubAgent`, for a request with a claim: what the same call has claimed before counts as this start. */
export async function startOnce(runs: RunSupervisor, request: RunRequest): Promise<void> {
  try {
    await startSubAgent(runs, request);
  } catch (error) {
    if (!(error instanceof ToolError) || error.code !== "conflict") throw error;
  }
}
