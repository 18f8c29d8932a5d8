import { cancelReason } from "../../lib/base/cancel.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";

/**
 * Cancels the run with the signal's reason when it aborts; at once when it already has.
 * @param signal undefined for work that outlives its client: nothing is watched
 * @returns what ends the watch
 */
export function cancelOnAbort(handle: RunHandle, signal: AbortSignal | undefined): () => void {
  if (signal === undefined) return () => {};
  const stop = () => handle.cancel(cancelReason(signal));
  if (signal.aborted) stop();
  else signal.addEventListener("abort", stop, { once: true });
  return () => signal.removeEventListener("abort", stop);
}
