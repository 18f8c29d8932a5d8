import type { Clock, Timer } from "../../base/clock.ts";

/** Stream that can stand still. */
interface PausableStream {
  pause(): unknown;
  resume(): unknown;
}

/** Options of an OutputBrake. */
export interface OutputBrakeOptions {
  readonly clock: Clock;
  /** Amount that may come in one window */
  readonly most: number;
}

/** Milliseconds of one window. */
const WINDOW_MS = 100;

/**
 * Brake on the output of a program: a stream that brought more than it may in 100 ms stands still for as long. The program then waits at
 * its full pipe, so that a flood takes a share of the gateway's time and not all of it. Nothing is lost.
 */
export class OutputBrake {
  readonly #stream: PausableStream;
  readonly #options: OutputBrakeOptions;
  #taken = 0;
  #since = 0;
  #waiting: Timer | undefined;

  constructor(stream: PausableStream, options: OutputBrakeOptions) {
    this.#stream = stream;
    this.#options = options;
  }

  /** Counts an amount that came. */
  take(amount: number): void {
    const { clock, most } = this.#options;
    const now = clock.monotonic();
    if (now - this.#since >= WINDOW_MS) {
      this.#since = now;
      this.#taken = 0;
    }
    this.#taken += amount;
    if (this.#taken <= most || this.#waiting !== undefined) return;
    this.#stream.pause();
    this.#waiting = clock.after(WINDOW_MS, () => this.release());
  }

  /** Lets the stream flow again. */
  release(): void {
    if (this.#waiting === undefined) return;
    this.#waiting.clear();
    this.#waiting = undefined;
    this.#stream.resume();
  }
}
