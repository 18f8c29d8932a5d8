import { CancelError } from "../../lib/base/cancel.ts";
import { isTerminal } from "../../lib/base/records/agent_event.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import type { RequestContext } from "../route.ts";
import { httpError } from "./http_errors.ts";
import { requireAgent } from "./require_agent.ts";

/**
 * Returns the handle of a durable run that an earlier request started. Its events are read from the first one, live to the end.
 * `cancel` ends the reading and not the run, which may have other readers.
 * @param options.streams true for a reply that is a stream, which outlives the request's signal
 * @throws {HttpError} 409 conflict when the run is forgotten
 */
export async function attachRun(
  runId: string,
  context: RequestContext,
  { streams }: { readonly streams: boolean },
): Promise<RunHandle> {
  const { tools } = context.services;
  const { runs } = requireAgent(context.services);
  const run = await runs.get(runId);
  if (run === undefined) throw forgotten();
  const own = new AbortController();
  const signal = streams ? own.signal : AbortSignal.any([own.signal, context.signal]);
  let hadEffect = false;
  async function* events() {
    const followed = await runs.follow(runId, { afterSeq: 0, signal });
    if (followed === undefined) throw forgotten();
    let ended = false;
    for await (const batch of followed) {
      ended ||= batch.some(isTerminal);
      hadEffect ||= batch.some((event) => event.type === "tool_start" && tools.get(event.tool)?.access !== "read");
      yield batch;
    }
    if (signal.aborted) throw signal.reason;
    // The run was stopped for the shutdown and resumes at the next start
    if (!ended) throw new CancelError("shutdown");
  }
  return {
    id: runId,
    model: run.model,
    conversationId: run.conversation_id,
    events,
    cancel: (reason) => own.abort(new CancelError(reason)),
    hadEffect: () => hadEffect,
  };
}

function forgotten() {
  return httpError("conflict", "Cannot repeat this request: the run that the first one started is not kept any more");
}
