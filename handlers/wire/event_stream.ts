import { CancelError } from "../../lib/base/cancel.ts";
import type { Clock, Timer } from "../../lib/base/clock.ts";
import type { HttpError } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { RunHandle, RunPace } from "../../lib/runs/run_request.ts";
import { type Reply, streamReply } from "./reply.ts";

/** Turns events into the text of one stream. */
export interface EventEncoder {
  /** Returns the text before any event */
  start(): string;
  /** Returns the text of these events; "" when none of them concerns the reader, and after the end */
  encode(events: readonly AgentEvent[]): string;
  /** Returns the text in place of a clean end */
  fail(error: HttpError): string;
  /** true once the end was written */
  readonly ended: boolean;
}

/** Options of `eventStream`. */
export interface EventStreamOptions {
  readonly opening: Opening;
  readonly encoder: EventEncoder;
  readonly clock: Clock;
  /** Milliseconds without an event after which a comment line is written. Default `KEEP_ALIVE_MS` */
  readonly keepAliveMs?: number | undefined;
  /** Text that is written then. Default: a comment line */
  readonly keepAlive?: string | undefined;
  /** Returns comment lines that go before the next events, or in place of a keep-alive. Default: none */
  readonly comment?: (() => string) | undefined;
  /** Returns the error to write for a thrown error; `undefined` stands for an iteration without a terminal event */
  readonly toError: (error: unknown) => HttpError;
  /** Runs once when the reader has left before the end */
  readonly onLeave: () => void;
}

/** A comment line is written after this long without an event, so that proxies keep the connection. */
export const KEEP_ALIVE_MS = 10_000;
/** A reader that reads nothing for this long is disconnected, in milliseconds: otherwise its run would never end. */
const STALLED_MS = 300_000;
const KEEP_ALIVE = ": keep-alive\n\n";

/**
 * Returns a body of server-sent events that its reader drives: the next events are read only when the last bytes were taken, and one
 * array of events is one piece of bytes. The iteration stops at once when the reader leaves, or reads nothing for 300 s.
 */
export function eventStream(options: EventStreamOptions): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream(new EventBody(options), { highWaterMark: 0 });
}

/**
 * Returns the error of a stream that a restart cut in the middle of a turn, which the format cannot take back: going on would repeat text.
 * @param what the reply, as the middle of a sentence
 * @param prefix of its id
 */
export function restarted(what: string, prefix: string) {
  const where = `the result of the run, whose id is the id of ${what} with "run_" in place of "${prefix}"`;
  const message =
    "Cannot continue this stream: the gateway restarted after it had sent a part of a turn, and the model answered that " +
    `turn again; the whole answer is ${where}`;
  return { code: "run_interrupted", message };
}

/** A reader who follows a run beside its own work. */
export interface Followed extends Omit<EventStreamOptions, "opening" | "onLeave"> {
  readonly events: AsyncIterable<readonly AgentEvent[]>;
  /** Ends the reading */
  readonly reading: AbortController;
}

/** Returns the stream of a reader who stays until the events end, leaves, or is sent away. */
export function followReply({ events, reading, ...options }: Followed): Reply {
  const leave = () => reading.abort(new CancelError("client_gone"));
  // A reader that leaves before its first read never starts the iteration
  const opening = { iterator: endsWith(events, leave), held: [], pending: undefined };
  return { ...streamReply(eventStream({ ...options, opening, onLeave: leave })), reading };
}

async function* endsWith(events: AsyncIterable<readonly AgentEvent[]>, end: () => void) {
  try {
    yield* events;
  } finally {
    end();
  }
}

/** Work whose outcome is sent to another gateway of the cluster. */
export interface AnsweredWork {
  /** Resolves with the answer, which goes out as JSON. When it rejects, the stream ends without an answer. */
  readonly work: Promise<unknown>;
  readonly clock: Clock;
  /** Milliseconds between two signs of life. */
  readonly beatMs: number;
  /** Runs when the reader has left before the answer. */
  readonly onLeave: () => void;
}

/** Returns an event stream of signs of life, and then of one event: the answer. */
export function answerStream({ work, clock, beatMs, onLeave }: AnsweredWork): ReadableStream<Uint8Array<ArrayBuffer>> {
  let timer: Timer | undefined;
  let isOpen = true;
  const end = () => {
    isOpen = false;
    timer?.clear();
  };
  return new ReadableStream({
    start(controller) {
      controller.enqueue(Buffer.from(KEEP_ALIVE));
      timer = clock.every(beatMs, () => controller.enqueue(Buffer.from(KEEP_ALIVE)));
      const finish = (text: string) => {
        if (!isOpen) return;
        end();
        if (text !== "") controller.enqueue(Buffer.from(text));
        controller.close();
      };
      work.then((answer) => finish(`data: ${JSON.stringify(answer)}\n\n`), () => finish(""));
    },
    cancel() {
      end();
      onLeave();
    },
  });
}

/** Returns the comment line that says how the events of a run at another gateway come. Clients of event streams skip it. */
export function paceComment(pace: RunPace): string {
  if (pace.live) return ": live again\n\n";
  // A line break in the reason would begin a field of the stream
  return `: not live, each turn comes when it is complete: ${pace.why.replaceAll(/\s/g, " ")}\n\n`;
}

class EventBody {
  #pending: Opening["pending"];
  #lastWrite: number;
  #timer: Timer | undefined = undefined;
  #left = false;
  readonly #options: EventStreamOptions;

  constructor(options: EventStreamOptions) {
    this.#options = options;
    this.#pending = options.opening.pending;
    this.#lastWrite = options.clock.monotonic();
  }

  start(controller: Controller): void {
    const { encoder, opening } = this.#options;
    let text = encoder.start();
    for (const events of opening.held) text += encoder.encode(events);
    this.#write(controller, text);
    this.#keepAlive(controller, this.#options.keepAliveMs ?? KEEP_ALIVE_MS);
  }

  async pull(controller: Controller): Promise<void> {
    const { encoder, opening, comment, toError } = this.#options;
    // Read until there is text to write: the runtime does not call `pull` again after one that wrote nothing
    for (;;) {
      let text: string;
      let over = false;
      try {
        const next = await (this.#pending ?? opening.iterator.next());
        this.#pending = undefined;
        over = next.done === true;
        if (next.done) text = encoder.ended ? "" : encoder.fail(toError(undefined));
        else text = `${comment?.() ?? ""}${encoder.encode(next.value)}`;
      } catch (error) {
        over = true;
        text = encoder.ended ? "" : encoder.fail(toError(error));
      }
      if (this.#left) return;
      if (text !== "") this.#write(controller, text);
      if (over) {
        this.#timer?.clear();
        return controller.close();
      }
      // Once the end is written, read the iteration to its own end, which follows at once
      if (text !== "" && !encoder.ended) return;
    }
  }

  cancel(): void {
    const { encoder, opening, onLeave } = this.#options;
    this.#left = true;
    this.#timer?.clear();
    if (!encoder.ended) onLeave();
    // Not awaited: a generator that waits for the upstream ends when the run is cancelled
    opening.iterator.return?.().catch(() => {});
  }

  #write(controller: Controller, text: string): void {
    this.#lastWrite = this.#options.clock.monotonic();
    controller.enqueue(Buffer.from(text));
  }

  #keepAlive(controller: Controller, afterMs: number): void {
    const { clock, keepAliveMs = KEEP_ALIVE_MS, keepAlive = KEEP_ALIVE } = this.#options;
    this.#timer = clock.after(afterMs, () => {
      const silence = clock.monotonic() - this.#lastWrite;
      const unread = (controller.desiredSize ?? -1) < 0;
      if (unread && silence >= STALLED_MS) return this.#giveUp(controller);
      // A reader that does not read gets one comment at most, so that unsent comments do not pile up
      if (silence >= keepAliveMs && !unread) this.#write(controller, this.#options.comment?.() || keepAlive);
      this.#keepAlive(controller, silence >= keepAliveMs ? keepAliveMs : keepAliveMs - silence);
    });
  }

  #giveUp(controller: Controller): void {
    const { encoder, toError } = this.#options;
    this.cancel();
    const stalled = new CancelError("client_gone", `The reader took nothing for ${STALLED_MS / 1000} s`);
    if (!encoder.ended) this.#write(controller, encoder.fail(toError(stalled)));
    controller.close();
  }
}

type Controller = ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>;

/** A run's events, read as far as the reply's status needs. */
export interface Opening {
  readonly iterator: AsyncIterator<readonly AgentEvent[]>;
  /** Arrays that were read already, in order */
  readonly held: readonly (readonly AgentEvent[])[];
  /** The read under way when the wait ended; await it instead of calling `next()` */
  readonly pending: Promise<IteratorResult<readonly AgentEvent[]>> | undefined;
}

/**
 * Reads until an event decides the reply's status: the model has begun to answer (an empty array), the first text, or the end.
 *
 * Waits `maxWaitMs` at most. After that the stream starts with keep-alive lines, and a later failure is written into it. While a provider
 * that refused is tried again, the wait goes on, because it may refuse again.
 * @throws what the iteration throws: a ProviderError before the first delta
 */
export async function openEvents(handle: RunHandle, { clock, maxWaitMs }: {
  readonly clock: Clock;
  /** Longest wait for the event that decides the status */
  readonly maxWaitMs: number;
}): Promise<Opening> {
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
 * Tells whether an event decides the reply's status: every event that the reader sees does, and the end. Work of the agent's own tools
 * does not: the provider may still refuse the next turn.
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
