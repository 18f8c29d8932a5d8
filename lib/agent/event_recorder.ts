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
  /** ISO 8601 of now; see createIsoTime */
  readonly time: () => string;
  /** True once the terminal event was recorded */
  ended = false;
  /** The last seq of the run: 0 for a new one */
  #seq: number;
  readonly #run: AgentRun;

  constructor(run: AgentRun) {
    this.time = run.kit.time;
    this.#seq = run.resume?.afterSeq ?? 0;
    this.#run = run;
  }

  /** The next seq, from 1 without a gap */
  next(): number {
    return ++this.#seq;
  }

  /** Stamps and records */
  note(bodies: readonly AgentEventBody[]): AgentEvent[] {
    const events = stamp(bodies, { afterSeq: this.#seq, time: this.time() });
    this.#seq += events.length;
    this.#run.journal.record?.(events);
    return events;
  }

  /** Records what has its stamp: for what every run says, an event made in one piece costs a third of a body with its stamp */
  keep<Kind extends AgentEvent>(event: Kind): Kind {
    this.#run.journal.record?.([event]);
    return event;
  }

  /** Records the terminal event, and waits for that where it takes time. @returns what the reader is shown; never throws or rejects */
  end(
    body: TerminalBody,
    more: { readonly added: readonly Message[]; readonly refused?: ProviderError },
  ): readonly AgentEvent[] | Promise<readonly AgentEvent[]> {
    this.ended = true;
    // Spreading loses which member of the union the body is
    const terminal = this.keep({ seq: this.next(), time: this.time(), ...body } as AgentOutcome["terminal"]);
    const events = [terminal];
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

/** Gives events their `seq`, which follow one by the other, and their `time`. */
export function stamp(
  bodies: readonly AgentEventBody[],
  { afterSeq, time }: { readonly afterSeq: number; readonly time: string },
): AgentEvent[] {
  // Spreading loses which member of the union the body is; seq and time are all it lacked
  return bodies.map((body, i) => ({ seq: afterSeq + 1 + i, time, ...body }) as AgentEvent);
}
