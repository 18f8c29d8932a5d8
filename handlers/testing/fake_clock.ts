import { CancelError, cancelError } from "../../lib/base/cancel.ts";
import type { Clock, Timer } from "../../lib/base/clock.ts";
import { nextTick } from "../../lib/base/tick.ts";

/** A clock that stands still until it is moved. */
export interface FakeClock extends Clock {
  /** Moves time on by `ms`, firing due timers in order and letting promises settle between them */
  advance(ms: number): Promise<void>;
  /** Timers that wait now: a test that ends with some has leaked them */
  pending(): number;
}

/**
 * Creates a clock that stands still.
 * @param start milliseconds since the epoch. Default: the first of January 2026
 */
export function createFakeClock(start: number = Date.UTC(2026, 0, 1)): FakeClock {
  let elapsed = 0;
  let order = 0;
  const timers = new Set<{ at: number; order: number; every: number; fn: () => void }>();
  const add = (ms: number, every: number, fn: () => void): Timer => {
    const timer = { at: elapsed + ms, order: order++, every, fn };
    timers.add(timer);
    return { clear: () => void timers.delete(timer) };
  };
  const clock: FakeClock = {
    now: () => start + elapsed,
    monotonic: () => elapsed,
    pending: () => timers.size,
    after: (ms, fn) => add(ms, 0, fn),
    every: (ms, fn) => add(ms, ms, fn),
    sleep(ms, signal) {
      if (signal?.aborted) return Promise.reject(cancelError(signal));
      return new Promise((resolve, reject) => {
        const onAbort = () => {
          timer.clear();
          // The listener is only added when there is a signal
          reject(cancelError(signal as AbortSignal));
        };
        const timer = add(ms, 0, () => {
          signal?.removeEventListener("abort", onAbort);
          resolve();
        });
        signal?.addEventListener("abort", onAbort, { once: true });
      });
    },
    timeoutSignal(ms) {
      const controller = new AbortController();
      const timer = add(ms, 0, () => controller.abort(new CancelError("timeout")));
      return { signal: controller.signal, clear: timer.clear };
    },
    async advance(ms) {
      const end = elapsed + ms;
      await nextTick();
      for (;;) {
        const due = [...timers].filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at || a.order - b.order)[0];
        if (due === undefined) break;
        elapsed = due.at;
        if (due.every > 0) due.at += due.every;
        else timers.delete(due);
        due.fn();
        await nextTick();
      }
      elapsed = end;
      await nextTick();
    },
  };
  return clock;
}
