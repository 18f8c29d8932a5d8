import type { Clock } from "./clock.ts";

/**
 * Waits for work, but no longer than `ms` milliseconds; the work goes on. Leaves no timer.
 * @returns what the work gives; undefined when the time was over first
 * @throws what the work throws in time
 */
export async function waitAtMost<T>(
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
