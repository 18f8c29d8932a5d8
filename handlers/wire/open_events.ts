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
 * Reads until something decides the reply's status: that the model has begun to answer (an empty array), the first thing that is said,
 * or the end. Waits `maxWaitMs` at most: a slow model gets a started stream with keep-alive lines, and its failure, should it come, is
 * told inside it. A provider that has refused and is asked again may refuse again, so that the wait goes on as long as that takes.
 * @throws what the iteration throws: a ProviderError before the first delta
 */
export async function openEvents(handle: RunHandle, { clock, maxWaitMs }: OpenEventsOptions): Promise<Opening> {
  const iterator = handle.events()[Symbol.asyncIterator]();
  const held: (readonly AgentEvent[])[] = [];
  let endWait = () => {};
  const late = new Promise<undefined>((resolve) => (endWait = () => resolve(undefined)));
  const onTime = () => {
    if (handle.isAskedAgain?.()) timer = clock.after(maxWaitMs, onTime);
    else endWait();
  };
  let timer = clock.after(maxWaitMs, onTime);
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

/**
 * Tells whether an event decides the reply's status: everything that the reader is shown does, and the end. Work of the agent's own
 * tools does not: the model may still be refused after it.
 */
function decides({ type }: AgentEvent): boolean {
  switch (type) {
    case "text_delta":
    case "reasoning_delta":
    case "refusal_delta":
    case "client_tool_call_delta":
    case "reply_fields":
    case "turn_restart":
    case "done":
    case "error":
      return true;
    default:
      return false;
  }
}
