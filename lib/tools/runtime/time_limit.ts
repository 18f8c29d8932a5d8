import type { Clock, Timer } from "../../base/clock.ts";

/** Time limit that stands still while a call waits for a person. */
export class TimeLimit {
  readonly #clock: Clock;
  readonly #onOver: () => void;
  #leftMs: number;
  /** Time of the clock, monotonic, at which the limit last began to count. */
  #since = 0;
  /** Waits for people that go on now. */
  #pauses = 0;
  #timer: Timer | undefined = undefined;

  constructor({ clock, ms, onOver }: { readonly clock: Clock; readonly ms: number; readonly onOver: () => void }) {
    this.#clock = clock;
    this.#leftMs = ms;
    this.#onOver = onOver;
    this.#count();
  }

  /** Does work whose time does not count. */
  async pause<T>(work: () => Promise<T>): Promise<T> {
    if (this.#pauses++ === 0) this.#stand();
    try {
      return await work();
    } finally {
      if (--this.#pauses === 0) this.#count();
    }
  }

  /** Ends the limit: nothing more happens. */
  clear(): void {
    this.#timer?.clear();
    this.#timer = undefined;
    this.#pauses = Infinity;
  }

  #count(): void {
    this.#since = this.#clock.monotonic();
    this.#timer = this.#clock.after(this.#leftMs, this.#onOver);
  }

  #stand(): void {
    if (this.#timer === undefined) return;
    this.#timer.clear();
    this.#timer = undefined;
    this.#leftMs = Math.max(0, this.#leftMs - (this.#clock.monotonic() - this.#since));
  }
}
