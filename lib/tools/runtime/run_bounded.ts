import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { firstBytes } from "../../base/text.ts";
import type { ToolResult } from "./tool.ts";

/** Milliseconds that work gets to end after its signal has aborted; then nobody waits for it any more */
const STOP_GRACE_MS = 2000;

/** Ending of the work. `stopped`: its signal aborted first, by the caller or by the time limit. */
export type Ending<T> =
  | { readonly kind: "done"; readonly value: T }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "stopped"; readonly error: CancelError };

/**
 * Runs work under the caller's signal and a time limit.
 *
 * Work that ignores its signal is given up 2 s after the signal aborted, so that nothing hangs. Its later result is dropped.
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
      // An error after the signal aborted counts as the stop, except a ToolError, which has a message for the model
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

/** Largest output of a tool, in bytes of UTF-8. */
const MAX_OUTPUT_BYTES = 262_144;
/** Largest `data` of a tool as JSON, in UTF-16 units */
const MAX_DATA = 1_048_576;
/** Bytes beyond the cut that are redacted too, so that a secret which lies across the cut is still found whole */
const SLACK_BYTES = 8192;

/** Cuts output and data to their bounds, with a notice, and removes known secrets from both. */
export function boundResult(result: ToolResult, redact: (text: string) => string): ToolResult {
  const size = Buffer.byteLength(result.output);
  const redacted = redact(firstBytes(result.output, MAX_OUTPUT_BYTES + SLACK_BYTES));
  const output = firstBytes(redacted, MAX_OUTPUT_BYTES);
  const notice = size > MAX_OUTPUT_BYTES || output !== redacted
    ? `\n[Output cut at ${MAX_OUTPUT_BYTES} of ${size} bytes: ask for less at a time]`
    : "";
  const data = boundData(result.data, redact);
  return { output: output + notice, isError: result.isError, ...(data === undefined ? {} : { data }) };
}

function boundData(data: unknown, redact: (text: string) => string): unknown {
  const json = JSON.stringify(data);
  if (json === undefined || json.length > MAX_DATA) return undefined;
  return JSON.parse(json, (_key, value: unknown) => (typeof value === "string" ? redact(value) : value));
}
