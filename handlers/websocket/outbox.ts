import type { Clock } from "../../lib/base/clock.ts";

/** The part of a crossws peer that the outbox uses. */
export interface OutboxPeer {
  /** Bytes that were not sent yet. Default 0: a peer without a network, as of a test, has sent everything */
  readonly bufferedAmount?: number | undefined;
  send(text: string): unknown;
}

/** Above this number of unsent bytes the run is not read on. */
const PAUSE_BYTES = 1024 * 1024;
/** Above this number of unsent bytes the reader is disconnected. */
const GIVE_UP_BYTES = 4 * 1024 * 1024;
/** How often the unsent bytes are read on runtimes without a drain event, in milliseconds. */
const POLL_MS = 50;

/** Options of `createOutbox`. */
export interface OutboxOptions {
  readonly peer: OutboxPeer;
  readonly clock: Clock;
  /** A reader that reads nothing for this long is disconnected */
  readonly patienceMs: number;
}

/** The sending side of one socket, with a bound on what waits in it. */
export interface Outbox {
  /** Hands a frame to the socket; does nothing once it is closed. @returns false when the reader is to be disconnected */
  send(text: string): boolean;
  /** Tells whether the unsent bytes are over the limit. Pongs, which the runtime sends, count too */
  isOverfull(): boolean;
  /** Waits until the reader has caught up. Gives true then, and false when the socket is closed or the reader too slow */
  ready(): boolean | Promise<boolean>;
  /** Runs when the runtime reports that bytes were sent */
  drained(): void;
  close(): void;
}

/** Creates an outbox. A slow reader pauses its run, so that the unsent bytes stay bounded (docs/design/websocket.md "Limits"). */
export function createOutbox({ peer, clock, patienceMs }: OutboxOptions): Outbox {
  const unsentBytes = () => peer.bufferedAmount ?? 0;
  let closed = false;
  let wake = () => {};

  async function caughtUp(): Promise<boolean> {
    const since = clock.monotonic();
    while (!closed && unsentBytes() > PAUSE_BYTES) {
      if (clock.monotonic() - since >= patienceMs) return false;
      const woken = Promise.withResolvers<void>();
      wake = woken.resolve;
      const timer = clock.after(POLL_MS, woken.resolve);
      await woken.promise;
      timer.clear();
    }
    return !closed;
  }

  return {
    send(text) {
      if (closed) return false;
      try {
        peer.send(text);
      } catch {
        // The socket closed just before this write. Its close hook follows
        closed = true;
      }
      return !closed && unsentBytes() <= GIVE_UP_BYTES;
    },
    isOverfull: () => unsentBytes() > GIVE_UP_BYTES,
    ready: () => (closed ? false : unsentBytes() <= PAUSE_BYTES || caughtUp()),
    drained: () => wake(),
    close() {
      closed = true;
      wake();
    },
  };
}
