import type { Clock, Timer } from "../../base/clock.ts";

/** Progress of a request grants it its time again, up to this many times its time in all. */
const MAX_EXTENSION = 10;

/**
 * Time limit of one request. Progress restarts it, up to ten times the limit in all. It stands still while a person or a model is asked
 * something for the request.
 */
export class RequestDeadline {
  readonly timeoutMs: number;
  readonly #clock: Clock;
  readonly #controller = new AbortController();
  #timer: Timer | undefined;
  /** Milliseconds that are left in all */
  #leftMs: number;
  #runsSince: number;
  #pauses = 0;
  #isCleared = false;

  constructor({ clock, timeoutMs }: { readonly clock: Clock; readonly timeoutMs: number }) {
    this.#clock = clock;
    this.timeoutMs = timeoutMs;
    this.#leftMs = timeoutMs * MAX_EXTENSION;
    this.#runsSince = clock.monotonic();
    this.#begin();
  }

  /** Aborts when the time is over. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** True when the time is over. */
  get isOver(): boolean {
    return this.#controller.signal.aborted;
  }

  /** Restarts the limit. */
  extend(): void {
    if (this.#pauses > 0 || this.isOver) return;
    this.#stop();
    this.#begin();
  }

  /** Stops the time. @returns a function that lets it run again */
  pause(): () => void {
    if (this.#pauses++ === 0) this.#stop();
    return () => {
      this.#pauses--;
      if (this.#pauses === 0 && !this.isOver) this.#begin();
    };
  }

  /** Ends the limit. A pause that ends later does not begin it again. */
  clear(): void {
    this.#isCleared = true;
    this.#timer?.clear();
  }

  #stop(): void {
    this.#timer?.clear();
    this.#leftMs -= this.#clock.monotonic() - this.#runsSince;
  }

  #begin(): void {
    if (this.#isCleared) return;
    this.#runsSince = this.#clock.monotonic();
    this.#timer = this.#clock.after(
      Math.max(0, Math.min(this.timeoutMs, this.#leftMs)),
      () => this.#controller.abort(),
    );
  }
}
