import type { Clock, Timer } from "../../lib/base/clock.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import type { HttpError } from "../../lib/base/errors.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { Opening } from "./open_events.ts";

/** Turns events into the text of one stream. */
export interface EventEncoder {
  /** Written before any event */
  start(): string;
  /** Text for these events, "" where none of them concerns the reader. Nothing after the end */
  encode(events: readonly AgentEvent[]): string;
  /** Written instead of a clean end */
  fail(error: HttpError): string;
  /** Whether the end was written */
  ended(): boolean;
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
  const { encoder, clock } = options;
  const { iterator } = options.opening;
  let pending = options.opening.pending;
  let lastWrite = clock.monotonic();
  let timer: Timer | undefined;
  let left = false;

  const write = (controller: Controller, text: string) => {
    lastWrite = clock.monotonic();
    controller.enqueue(Buffer.from(text));
  };
  const close = (controller: Controller) => {
    timer?.clear();
    controller.close();
  };
  const leave = () => {
    left = true;
    timer?.clear();
    if (!encoder.ended()) options.onLeave();
    // A generator that waits for the upstream ends when the run is cancelled: not waited for here
    iterator.return?.().catch(() => {});
  };
  const giveUp = (controller: Controller) => {
    leave();
    const stalled = new CancelError("client_gone", `The reader took nothing for ${STALLED_MS / 1000} s`);
    if (!encoder.ended()) write(controller, encoder.fail(options.toError(stalled)));
    controller.close();
  };
  const keepAlive = (controller: Controller, afterMs: number) => {
    timer = clock.after(afterMs, () => {
      const silence = clock.monotonic() - lastWrite;
      const unread = (controller.desiredSize ?? -1) < 0;
      if (unread && silence >= STALLED_MS) return giveUp(controller);
      // A reader that does not read gets one comment at most: nothing piles up
      if (silence >= KEEP_ALIVE_MS && !unread) write(controller, KEEP_ALIVE);
      keepAlive(controller, silence >= KEEP_ALIVE_MS ? KEEP_ALIVE_MS : KEEP_ALIVE_MS - silence);
    });
  };

  return new ReadableStream<Uint8Array<ArrayBuffer>>({
    start(controller) {
      let text = encoder.start();
      for (const events of options.opening.held) text += encoder.encode(events);
      write(controller, text);
      keepAlive(controller, KEEP_ALIVE_MS);
    },
    async pull(controller) {
      // Until something was written: a pull that writes nothing is never called again
      for (;;) {
        let text: string;
        let over = false;
        try {
          const next = await (pending ?? iterator.next());
          pending = undefined;
          over = next.done === true;
          text = next.done
            ? (encoder.ended() ? "" : encoder.fail(options.toError(undefined)))
            : encoder.encode(next.value);
        } catch (error) {
          over = true;
          text = encoder.ended() ? "" : encoder.fail(options.toError(error));
        }
        if (left) return;
        if (text !== "") write(controller, text);
        if (over) return close(controller);
        // After the end is written the iteration is read to its own end, which follows at once
        if (text !== "" && !encoder.ended()) return;
      }
    },
    cancel: leave,
  }, { highWaterMark: 0 });
}

type Controller = ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>;
