import type { Clock } from "../../lib/base/clock.ts";

/** What the outbox needs of a crossws peer. */
export interface OutboxPeer {
  readonly bufferedAmount: number;
  send(text: string): unknown;
}

/** Above this many unsent bytes the run is not read on. */
const PAUSE_BYTES = 1024 * 1024;
/** Above this many the reader is given up. */
const GIVE_UP_BYTES = 4 * 1024 * 1024;
/** Runtimes without a drain event are asked this often. */
const POLL_MS = 50;

export interface OutboxOptions {
  readonly peer: OutboxPeer;
  readonly clock: Clock;
  /** A reader that takes nothing for this long is given up */
  readonly patienceMs: number;
}

/** The sending side of one socket, with a bound on what waits in it. */
export interface Outbox {
  /** Hands a frame to the socket; does nothing once it is closed. @returns whether the reader is still worth waiting for */
  send(text: string): boolean;
  /** Whether so much waits that the reader is given up: pongs, which the runtime sends, count too */
  isOverfull(): boolean;
  /** Resolves when the reader has caught up, at once when it has: true; false when it is closed or too slow */
  ready(): boolean | Promise<boolean>;
  /** The runtime says that bytes have left */
  drained(): void;
  close(): void;
}

/** docs/design/websocket.md "Limits": a slow reader is paused, not buffered without bound. */
export function createOutbox({ peer, clock, patienceMs }: OutboxOptions): Outbox {
  let closed = false;
  let wake = () => {};

  async function caughtUp(): Promise<boolean> {
    const since = clock.monotonic();
    while (!closed && peer.bufferedAmount > PAUSE_BYTES) {
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
        // The socket went while we were about to write: its close hook follows
        closed = true;
      }
      return !closed && peer.bufferedAmount <= GIVE_UP_BYTES;
    },
    isOverfull: () => peer.bufferedAmount > GIVE_UP_BYTES,
    ready: () => (closed ? false : peer.bufferedAmount <= PAUSE_BYTES || caughtUp()),
    drained: () => wake(),
    close() {
      closed = true;
      wake();
    },
  };
}
