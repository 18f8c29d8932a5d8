import type { Clock } from "./clock.ts";

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
