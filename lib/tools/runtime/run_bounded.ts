import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";

/** How long work that was told to stop may take to do so before it is left behind */
const STOP_GRACE_MS = 2000;

/** How the work ended; `stopped` when its signal aborted first, by the caller or by the time limit. */
export type Ending<T> =
  | { readonly kind: "done"; readonly value: T }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "stopped"; readonly error: CancelError };

/**
 * Runs work under the caller's signal and a time limit.
 *
 * Work that does not hear its signal is left behind 2 s after it aborted, so that nothing hangs; what it does later is lost.
 */
export async function runBounded<T>(
  work: (signal: AbortSignal) => Promise<T>,
  options: { readonly clock: Clock; readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<Ending<T>> {
  const { clock, timeoutMs, signal } = options;
  if (signal.aborted) return { kind: "stopped", error: cancelError(signal) };
  const controller = new AbortController();
  const abort = () => controller.abort(cancelError(signal));
  signal.addEventListener("abort", abort, { once: true });
  const limit = clock.after(timeoutMs, () => controller.abort(new CancelError("timeout")));
  const stopped = stopAfterGrace(controller.signal, clock);
  try {
    const working = work(controller.signal).then(
      (value): Ending<T> => ({ kind: "done", value }),
      // What work throws once it was told to stop is the stopping, unless it has something to say to the model
      (error: unknown): Ending<T> =>
        controller.signal.aborted && !(error instanceof ToolError)
          ? { kind: "stopped", error: cancelError(controller.signal) }
          : { kind: "failed", error },
    );
    return await Promise.race([working, stopped.ending]);
  } finally {
    signal.removeEventListener("abort", abort);
    limit.clear();
    stopped.clear();
  }
}

function stopAfterGrace(signal: AbortSignal, clock: Clock) {
  let timer: Timer | undefined;
  const ending = new Promise<Ending<never>>((resolve) => {
    signal.addEventListener("abort", () => {
      timer = clock.after(STOP_GRACE_MS, () => resolve({ kind: "stopped", error: cancelError(signal) }));
    }, { once: true });
  });
  return { ending, clear: () => timer?.clear() };
}
