import { CancelError } from "../../lib/base/cancel.ts";
import type { Clock, Timer } from "../../lib/base/clock.ts";
import type { HttpError } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";

/** Turns events into the text of one stream. */
export interface EventEncoder {
  /** Written before any event */
  start(): string;
  /** Text for these events, "" where none of them concerns the reader. Nothing after the end */
  encode(events: readonly AgentEvent[]): string;
  /** Written instead of a clean end */
  fail(error: HttpError): string;
  /** Whether the end was written */
  readonly ended: boolean;
}

export interface EventStreamOptions {
  readonly opening: Opening;
  readonly encoder: EventEncoder;
  readonly clock: Clock;
  /** What to tell the reader about a thrown error; `undefined` stands for an iteration without a terminal event */
  readonly toError: (error: unknown) => HttpError;
  /** Called once when the reader has left before the end */
  readonly onLeave: () => void;
}

/** A comment line is written after this long without an event, so that proxies keep the connection. */
export const KEEP_ALIVE_MS = 10_000;
/** A reader that takes nothing for this long is given up: its run would hold its place for ever. */
const STALLED_MS = 300_000;
const KEEP_ALIVE = ": keep-alive\n\n";

/**
 * A body of server-sent events, driven by its reader: the next event is asked for only when the last bytes were taken, and one
 * array of events is one piece of bytes. A reader that leaves stops the iteration at once, one that takes nothing for 300 s too.
 */
export function eventStream(options: EventStreamOptions): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream(new EventBody(options), { highWaterMark: 0 });
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
    this.#keepAlive(controller, KEEP_ALIVE_MS);
  }

  async pull(controller: Controller): Promise<void> {
    const { encoder, opening, toError } = this.#options;
    // Until something was written: a pull that writes nothing is never called again
    for (;;) {
      let text: string;
      let over = false;
      try {
        const next = await (this.#pending ?? opening.iterator.next());
        this.#pending = undefined;
        over = next.done === true;
        text = next.done ? (encoder.ended ? "" : encoder.fail(toError(undefined))) : encoder.encode(next.value);
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
      // After the end is written the iteration is read to its own end, which follows at once
      if (text !== "" && !encoder.ended) return;
    }
  }

  cancel(): void {
    const { encoder, opening, onLeave } = this.#options;
    this.#left = true;
    this.#timer?.clear();
    if (!encoder.ended) onLeave();
    // A generator that waits for the upstream ends when the run is cancelled: not waited for here
    opening.iterator.return?.().catch(() => {});
  }

  #write(controller: Controller, text: string): void {
    this.#lastWrite = this.#options.clock.monotonic();
    controller.enqueue(Buffer.from(text));
  }

  #keepAlive(controller: Controller, afterMs: number): void {
    const { clock } = this.#options;
    this.#timer = clock.after(afterMs, () => {
      const silence = clock.monotonic() - this.#lastWrite;
      const unread = (controller.desiredSize ?? -1) < 0;
      if (unread && silence >= STALLED_MS) return this.#giveUp(controller);
      // A reader that does not read gets one comment at most: nothing piles up
      if (silence >= KEEP_ALIVE_MS && !unread) this.#write(controller, KEEP_ALIVE);
      this.#keepAlive(controller, silence >= KEEP_ALIVE_MS ? KEEP_ALIVE_MS : KEEP_ALIVE_MS - silence);
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
