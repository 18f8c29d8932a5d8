import { cancelError } from "./cancel.ts";
import type { Clock } from "./clock.ts";

/** Long work cut into slices, so that others get their turn and a cancellation is heard. */
export interface Slices {
  /** Whether the slice has taken its time */
  isOver(): boolean;
  /** Lets the event loop turn. @throws {CancelError} when the signal aborted */
  next(): Promise<void>;
}

const SLICE_MS = 10;

/** The first slice starts now. */
export function createSlices({ clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal }): Slices {
  let started = clock.monotonic();
  return {
    isOver: () => clock.monotonic() - started > SLICE_MS,
    async next() {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (signal.aborted) throw cancelError(signal);
      started = clock.monotonic();
    },
  };
}
