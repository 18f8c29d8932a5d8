import { CancelError } from "../base/cancel.ts";
import { HttpError, ProviderError } from "../base/errors.ts";
import type { AgentEvent, AgentEventBody } from "../base/records/agent_event.ts";
import type { Message } from "../base/records/message.ts";
import type { AgentOutcome, AgentRun } from "./agent_run.ts";
import { CallFailed } from "./call_provider.ts";
import { NeedsReview } from "./tool_calls.ts";

/** The event a run ends with, before its stamp. */
export type TerminalBody = Extract<AgentEventBody, { type: "done" | "error" }>;

const INTERNAL = {
  type: "error",
  code: "internal_error",
  message: "The gateway failed inside; its log names the cause under the run's id",
} as const;

/** The events of one run: each is stamped and recorded before a reader gets it, and the terminal one comes once. */
export class EventRecorder {
  readonly stamp: EventStamp;
  /** True once the terminal event was recorded */
  ended = false;
  readonly #run: AgentRun;

  constructor(run: AgentRun) {
    this.stamp = new EventStamp(run.kit.time, run.resume?.afterSeq);
    this.#run = run;
  }

  /** Stamps and records */
  note(bodies: readonly AgentEventBody[]): AgentEvent[] {
    const events = this.stamp.stamp(bodies);
    this.#run.journal.record?.(events);
    return events;
  }

  /** Records what has its stamp: for what every run says, an event made in one piece costs a third of a body with its stamp */
  keep(event: AgentEvent): AgentEvent {
    this.#run.journal.record?.([event]);
    return event;
  }

  /** Records the terminal event, and waits for that where it takes time. @returns what the reader is shown; never throws or rejects */
  end(
    body: TerminalBody,
    more: { readonly added: readonly Message[]; readonly refused?: ProviderError },
  ): readonly AgentEvent[] | Promise<readonly AgentEvent[]> {
    this.ended = true;
    const events = this.note([body]);
    const [terminal] = events as [AgentOutcome["terminal"]]; // one body gives one event of its type
    try {
      const written = this.#run.journal.end({ terminal, added: more.added, refused: more.refused });
      if (!(written instanceof Promise)) return events;
      return written.then(() => events, (error) => this.#unrecorded(terminal, error));
    } catch (error) {
      return this.#unrecorded(terminal, error);
    }
  }

  /** Ends with an error when the end could not be recorded: an unrecorded run must not be called done. */
  #unrecorded({ seq, time }: AgentEvent, error: unknown): readonly AgentEvent[] {
    const { scope: { runId, requestId }, kit: { log } } = this.#run;
    log.error("Run could not be recorded", { run_id: runId, request_id: requestId, error });
    return [{ seq, time, ...INTERNAL }];
  }
}

/** The error event of whatever ended the loop. A bug is logged whole and shown as one fixed sentence. */
export function toTerminal(error: unknown, run: AgentRun): TerminalBody {
  if (error instanceof CancelError) {
    const { reason, message } = error;
    if (reason === "interrupted") return { type: "error", code: "cancelled", message, interrupted: true };
    return { type: "error", code: reason, message };
  }
  if (error instanceof ProviderError) {
    return { type: "error", code: error.code, message: error.message, upstream: toUpstream(error) };
  }
  if (error instanceof HttpError) return { type: "error", code: error.code, message: error.message };
  if (error instanceof NeedsReview) return { type: "error", code: "needs_review", message: error.message };
  if (error instanceof CallFailed) return { type: "error", code: "tool_failed", message: error.message };
  const { scope: { runId, requestId }, kit: { log } } = run;
  log.error("Run failed inside", { run_id: runId, request_id: requestId, error });
  return INTERNAL;
}

function toUpstream({ status, upstreamCode: code, param, retryAfterSeconds }: ProviderError) {
  return {
    ...(status === undefined ? {} : { status }),
    ...(code === undefined ? {} : { code }),
    ...(param === undefined ? {} : { param }),
    ...(retryAfterSeconds === undefined ? {} : { retry_after_secs: retryAfterSeconds }),
  };
}

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
