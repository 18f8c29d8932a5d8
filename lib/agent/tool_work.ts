import { CancelError } from "../base/cancel.ts";
import type { AgentEvent, AgentEventBody } from "../base/records/agent_event.ts";
import type { AgentRun } from "./agent_run.ts";
import { type CallResult, callTools } from "./call_tools.ts";
import { createEventQueue } from "./event_queue.ts";
import type { TurnCall } from "./model_turn.ts";
import type { RecordedResult } from "./recorded_run.ts";

export interface ToolWorkOptions {
  readonly calls: readonly TurnCall[];
  /** See CallToolsOptions */
  readonly left: number;
  readonly allowed: readonly string[];
  readonly known: ReadonlyMap<string, RecordedResult> | undefined;
  /** Stamps and records what the tools emit */
  readonly note: (bodies: readonly AgentEventBody[]) => readonly AgentEvent[];
}

/**
 * Runs the calls of one turn, and hands on what they emit as it comes. Leaving the iteration aborts the run and waits for what has
 * been started.
 * @returns as callTools
 * @throws {CancelError} once every started call has ended
 */
export async function* toolWork(
  run: AgentRun,
  { calls, left, allowed, known, note }: ToolWorkOptions,
): AsyncGenerator<readonly AgentEvent[], readonly CallResult[], undefined> {
  const { journal, limits } = run;
  const queue = createEventQueue();
  let ended = false;
  const working = callTools({
    ...run,
    runId: run.id,
    calls,
    left,
    maxToolCalls: limits.maxToolCalls,
    allowed,
    parallel: limits.parallelTools,
    known,
    gone: run.resume?.gone,
    beforeEffect: (callId, options) => journal.beforeEffect(callId, options),
    afterCall: (callId, options) => journal.afterCall(callId, options),
    emit(body) {
      if (body.type !== "tool_progress" || queue.hasRoom()) queue.push(note([body]));
    },
  }).finally(() => {
    ended = true;
    queue.close();
  });
  working.catch(() => {});
  try {
    for (let events = await queue.take(); events.length > 0; events = await queue.take()) yield events;
    return await working;
  } finally {
    if (!ended) {
      run.abort(new CancelError("client_gone"));
      await working.catch(() => {});
    }
  }
}
