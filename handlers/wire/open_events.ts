import type { Clock } from "../../lib/base/clock.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";

/** A run's events, read as far as the reply's status needs. */
export interface Opening {
  readonly iterator: AsyncIterator<readonly AgentEvent[]>;
  /** Arrays that were read already, in order */
  readonly held: readonly (readonly AgentEvent[])[];
  /** The read under way when the wait ended; await it instead of calling `next()` */
  readonly pending: Promise<IteratorResult<readonly AgentEvent[]>> | undefined;
}

export interface OpenEventsOptions {
  readonly clock: Clock;
  /** Longest wait for the event that decides the status */
  readonly maxWaitMs: number;
}

/**
 * Reads until something decides the reply's status: that the model has begun to answer (an empty array), a delta, tool call or end. Waits `maxWaitMs`
 * at most: a slow model gets a started stream with keep-alive lines, and its failure, should it come, is told inside it.
 * @throws what the iteration throws: a ProviderError before the first delta
 */
export async function openEvents(handle: RunHandle, options: OpenEventsOptions): Promise<Opening> {
  const iterator = handle.events()[Symbol.asyncIterator]();
  const held: (readonly AgentEvent[])[] = [];
  let endWait = () => {};
  const late = new Promise<undefined>((resolve) => (endWait = () => resolve(undefined)));
  const timer = options.clock.after(options.maxWaitMs, endWait);
  try {
    for (;;) {
      const pending = iterator.next();
      const next = await Promise.race([pending, late]);
      if (next === undefined) return { iterator, held, pending };
      if (next.done) return { iterator, held, pending };
      held.push(next.value);
      if (next.value.length === 0 || next.value.some(decides)) return { iterator, held, pending: undefined };
    }
  } finally {
    timer.clear();
  }
}

/** Events that come before the model was asked, or while it is asked again, decide nothing. */
function decides(event: AgentEvent): boolean {
  return event.type !== "run_start" && event.type !== "turn_start" && event.type !== "notice";
}
