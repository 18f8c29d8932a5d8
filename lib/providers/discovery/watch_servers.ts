import type { Clock, Timer } from "../../base/clock.ts";

/** The clock, and the look that is taken again and again. */
export interface WatchServersOptions {
  readonly clock: Clock;
  /** Looks which local servers answer. One call at a time. Must not throw */
  readonly look: () => Promise<void>;
}

const CALM_MS = 30_000;
/** Least time between two looks, however many requests fail */
const LEAST_MS = 1_000;

/** A watch over local servers: looks from time to time, and soon after a sign of a change. */
export class ServersWatch {
  readonly #options: WatchServersOptions;
  #timer: Timer | undefined = undefined;
  #endedAt = Number.NEGATIVE_INFINITY;
  #looking = false;
  /** True when another look was asked for since the newest one began */
  #wanted = false;
  #stopped = false;

  constructor(options: WatchServersOptions) {
    this.#options = options;
    this.#schedule(CALM_MS);
  }

  /** Looks again soon: the server in use failed to answer */
  lookSoon(): void {
    if (this.#stopped || this.#wanted) return;
    this.#wanted = true;
    if (!this.#looking) this.#schedule(Math.max(0, this.#endedAt + LEAST_MS - this.#options.clock.monotonic()));
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.clear();
  }

  #schedule(ms: number): void {
    this.#timer?.clear();
    this.#timer = this.#options.clock.after(ms, () => void this.#run());
  }

  async #run(): Promise<void> {
    this.#looking = true;
    this.#wanted = false;
    await this.#options.look();
    this.#looking = false;
    this.#endedAt = this.#options.clock.monotonic();
    if (!this.#stopped) this.#schedule(this.#wanted ? LEAST_MS : CALM_MS);
  }
}
