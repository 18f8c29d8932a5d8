import { CancelError, cancelError } from "./cancel.ts";
import type { Random } from "./random.ts";

/** A timer that can be cleared before it fires; clearing twice does nothing. */
export interface Timer {
  /** Ends the timer; does nothing once it has fired */
  clear(): void;
}

/** A signal that aborts with CancelError `timeout`; clear it when the work is done. */
export interface TimeoutSignal extends Timer {
  /** Aborts when the time is over */
  readonly signal: AbortSignal;
}

/** The only source of time. Durations are measured by `monotonic`, records are stamped by `now`. */
export interface Clock {
  /** Milliseconds since the epoch */
  now(): number;
  /** Milliseconds since an arbitrary start; never goes back */
  monotonic(): number;
  /** Resolves after `ms` milliseconds. @throws {CancelError} when `signal` aborts first */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Returns a signal that aborts after `ms` milliseconds; does not keep the process alive */
  timeoutSignal(ms: number): TimeoutSignal;
  /** Runs `fn` once after `ms` milliseconds; does not keep the process alive */
  after(ms: number, fn: () => void): Timer;
  /** Runs `fn` each `ms` milliseconds; does not keep the process alive. `fn` must not throw */
  every(ms: number, fn: () => void): Timer;
}

/** Key under which the testing kit hands `createGateway` the clock of a test, beside its options: no program stops the time of a gateway. */
export const TEST_CLOCK: unique symbol = Symbol("clock of a test");

/** The clock of a running process. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep(ms, signal) {
    if (signal?.aborted) return Promise.reject(cancelError(signal));
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        clearTimeout(timer);
        // The listener is only added when there is a signal
        reject(cancelError(signal as AbortSignal));
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      }, ms);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  },
  timeoutSignal(ms) {
    const controller = new AbortController();
    const timer = this.after(ms, () => controller.abort(new CancelError("timeout")));
    return { signal: controller.signal, clear: () => timer.clear() };
  },
  after(ms, fn) {
    return new SystemTimer(setTimeout(fn, ms));
  },
  every(ms, fn) {
    return new SystemTimer(setInterval(fn, ms));
  },
};

/** Keeps no process alive. */
class SystemTimer implements Timer {
  readonly #handle: NodeJS.Timeout;

  constructor(handle: NodeJS.Timeout) {
    handle.unref?.();
    this.#handle = handle;
  }

  /** Clears a timeout or an interval: browsers, Node and Deno keep both kinds in one list. */
  clear(): void {
    clearTimeout(this.#handle);
  }
}

/** The time of `clock` as ISO 8601. Formatting costs more than the rest of an event, so a text serves its whole millisecond. */
export function createIsoTime(clock: Pick<Clock, "now">): () => string {
  let last = Number.NaN;
  let text = "";
  return () => {
    const now = Math.floor(clock.now());
    if (now !== last) {
      last = now;
      text = new Date(now).toISOString();
    }
    return text;
  };
}

/**
 * Waits for work, at most `ms` milliseconds. The work itself goes on. Leaves no timer behind.
 * @returns the result of the work. Undefined when the time was over first
 * @throws the error of the work, when it comes in time
 */
export async function withTimeout<T>(
  work: Promise<T>,
  { ms, clock }: { readonly ms: number; readonly clock: Clock },
): Promise<T | undefined> {
  const waiting = new AbortController();
  try {
    return await Promise.race([work, clock.sleep(ms, waiting.signal).then(() => undefined, () => undefined)]);
  } finally {
    waiting.abort();
  }
}

/** Waits between tries of one thing: each twice as long as the one before, up to a bound. Sleep with a signal, so that a wait can be cancelled. */
export class Backoff {
  readonly #bounds: { readonly firstMs: number; readonly mostMs: number };
  readonly #random: Random | undefined;
  #nextMs: number;

  /** @param random shortens each wait by up to a half, so that many who try do not come at once. Default: no wait is shortened */
  constructor(bounds: { readonly firstMs: number; readonly mostMs: number }, random?: Random) {
    this.#bounds = bounds;
    this.#random = random;
    this.#nextMs = bounds.firstMs;
  }

  /** Returns the next wait, in whole milliseconds. */
  next(): number {
    const ms = this.#nextMs;
    this.#nextMs = Math.min(2 * ms, this.#bounds.mostMs);
    const [share = 255] = this.#random?.bytes(1) ?? [];
    return Math.round(ms * (0.5 + share / 510));
  }

  /** Begins with the shortest wait again, after a success. */
  reset(): void {
    this.#nextMs = this.#bounds.firstMs;
  }
}
