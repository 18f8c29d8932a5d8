import { canonicalDigest } from "../../lib/base/json.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { Poller } from "../../lib/base/poller.ts";

/** Options of `ListWatch`. */
export interface ListWatchOptions {
  /** Returns what clients are shown of the list */
  readonly read: () => unknown | Promise<unknown>;
  /** How often the list is compared while a client wants to know of changes, in milliseconds */
  readonly everyMs: number;
  readonly clock: Clock;
  /** Runs when the list has changed */
  readonly onChange: () => void;
}

/** Tells clients when a list changes, whatever the reason. It sleeps while nobody listens. */
export class ListWatch {
  readonly #options: ListWatchOptions;
  #listeners = 0;
  readonly #poller: Poller;
  /** Number of the times that this was stopped. */
  #stops = 0;
  #known: string | undefined = undefined;

  constructor(options: ListWatchOptions) {
    this.#options = options;
    // A list that cannot be read now is compared the next time
    this.#poller = new Poller(() => this.#look());
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
    void this.#poller.stop();
    this.#stops++;
    this.#known = undefined;
  }

  #start(): void {
    this.#poller.start(this.#options.clock, this.#options.everyMs);
    void this.#poller.look();
  }

  async #look(): Promise<void> {
    const { read, onChange } = this.#options;
    const stops = this.#stops;
    const list = read();
    const now = canonicalDigest(list instanceof Promise ? await list : list);
    if (this.#stops !== stops) return;
    const hasChanged = this.#known !== undefined && now !== this.#known;
    this.#known = now;
    if (hasChanged) onChange();
  }
}
