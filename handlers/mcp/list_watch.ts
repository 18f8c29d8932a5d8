import { canonicalDigest } from "../../lib/base/json.ts";
import type { Clock, Timer } from "../../lib/base/clock.ts";

/** Options of `ListWatch`. */
export interface ListWatchOptions {
  /** Returns what clients are shown of the list */
  readonly read: () => unknown | Promise<unknown>;
  /** How often the list is compared while a client wants to know of changes, in milliseconds */
  readonly everyMs: number;
  readonly clock: Clock;
  /** Called when the list has changed */
  readonly onChange: () => void;
}

/** Tells clients when a list changes, whatever the reason. It sleeps while nobody listens. */
export class ListWatch {
  readonly #options: ListWatchOptions;
  #listeners = 0;
  #timer: Timer | undefined = undefined;
  #known: string | undefined = undefined;

  constructor(options: ListWatchOptions) {
    this.#options = options;
  }

  /** Watches for one more client. @returns a function that ends this */
  listen(): () => void {
    if (this.#listeners++ === 0) this.#start();
    let isOver = false;
    return () => {
      if (!isOver && --this.#listeners === 0) this.stop();
      isOver = true;
    };
  }

  stop(): void {
    this.#timer?.clear();
    this.#timer = undefined;
    this.#known = undefined;
  }

  #start(): void {
    this.#timer = this.#options.clock.every(this.#options.everyMs, () => void this.#look());
    void this.#look();
  }

  async #look(): Promise<void> {
    const { read, onChange } = this.#options;
    const timer = this.#timer;
    try {
      const list = read();
      const now = canonicalDigest(list instanceof Promise ? await list : list);
      if (list instanceof Promise && this.#timer !== timer) return;
      const hasChanged = this.#known !== undefined && now !== this.#known;
      this.#known = now;
      if (hasChanged) onChange();
    } catch {
      // A list that cannot be read now is compared the next time
    }
  }
}
