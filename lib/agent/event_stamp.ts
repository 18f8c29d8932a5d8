import type { Clock } from "../base/clock.ts";
import type { AgentEvent, AgentEventBody } from "../base/records/agent_event.ts";

/** Gives events their `seq` and `time`. One per run. */
export class EventStamp {
  /** ISO 8601 of now; see createIsoTime */
  readonly time: () => string;
  #seq: number;

  /** @param afterSeq the last seq the run already has, 0 for a new one */
  constructor(time: () => string, afterSeq = 0) {
    this.time = time;
    this.#seq = afterSeq;
  }

  /** The next seq, from 1 without a gap */
  next(): number {
    return ++this.#seq;
  }

  stamp(bodies: readonly AgentEventBody[]): AgentEvent[] {
    const now = this.time();
    // Spreading loses which member of the union the body is; seq and time are all it lacked
    return bodies.map((body) => ({ seq: this.next(), time: now, ...body }) as AgentEvent);
  }
}

/** The time of `clock` as ISO 8601. Formatting costs more than the rest of an event, so a text serves its whole millisecond. */
export function createIsoTime(clock: Pick<Clock, "now">): () => string {
  let last = Number.NaN;
  let text = "";
  return () => {
    const now = Math.floor(clock.now());
    if (now !== last) {
      last = now;
      text = new Date(now).toISOString();
    }
    return text;
  };
}
