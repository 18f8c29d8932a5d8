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

/**
 * The sending side of one socket, with a bound on what waits in it. A slow reader pauses its run, so that the unsent bytes stay bounded
 * (docs/design/websocket.md "Limits").
 */
export class Outbox {
  readonly #peer: OutboxPeer;
  readonly #clock: Clock;
  readonly #patienceMs: number;
  #isClosed = false;
  #wake = () => {};

  /** @param patienceMs a reader that reads nothing for this long is disconnected */
  constructor(peer: OutboxPeer, { clock, patienceMs }: { readonly clock: Clock; readonly patienceMs: number }) {
    this.#peer = peer;
    this.#clock = clock;
    this.#patienceMs = patienceMs;
  }

  /** Hands a frame to the socket; does nothing once it is closed. @returns false when the reader is to be disconnected */
  send(text: string): boolean {
    if (this.#isClosed) return false;
    try {
      this.#peer.send(text);
    } catch {
      // The socket closed just before this write. Its close hook follows
      this.#isClosed = true;
    }
    return !this.#isClosed && !this.isOverfull();
  }

  /** Tells whether the unsent bytes are over the limit. Pongs, which the runtime sends, count too */
  isOverfull(): boolean {
    return this.#unsentBytes() > GIVE_UP_BYTES;
  }

  /** Waits until the reader has caught up. Gives true then, and false when the socket is closed or the reader too slow */
  ready(): boolean | Promise<boolean> {
    return this.#isClosed ? false : this.#unsentBytes() <= PAUSE_BYTES || this.#caughtUp();
  }

  /** Runs when the runtime reports that bytes were sent */
  drained(): void {
    this.#wake();
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  #unsentBytes(): number {
    return this.#peer.bufferedAmount ?? 0;
  }

  async #caughtUp(): Promise<boolean> {
    const since = this.#clock.monotonic();
    while (!this.#isClosed && this.#unsentBytes() > PAUSE_BYTES) {
      if (this.#clock.monotonic() - since >= this.#patienceMs) return false;
      const woken = Promise.withResolvers<void>();
      this.#wake = woken.resolve;
      const timer = this.#clock.after(POLL_MS, woken.resolve);
      await woken.promise;
      timer.clear();
    }
    return !this.#isClosed;
  }
}
