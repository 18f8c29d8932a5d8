import { cancelError } from "./cancel.ts";

/** One who waits for news. */
export interface Listening {
  /** Resolves at the next `wake`. @throws {CancelError} when the signal aborts first */
  readonly heard: Promise<void>;
  /** As if there were news */
  wake(): void;
  /** Must be called when the wait is over; twice does nothing */
  stop(): void;
}

/** Those who wait for news of something, by its id. */
export interface Waiters {
  listen(id: string, signal: AbortSignal): Listening;
  wake(id: string): void;
}

export function createWaiters(): Waiters {
  const waiting = new Map<string, Set<() => void>>();
  return {
    listen(id, signal) {
      const news = Promise.withResolvers<void>();
      // A listener that stops without having waited leaves nothing unhandled
      news.promise.catch(() => {});
      const abort = () => news.reject(cancelError(signal));
      if (signal.aborted) abort();
      signal.addEventListener("abort", abort, { once: true });
      const listeners = waiting.get(id) ?? new Set();
      waiting.set(id, listeners.add(news.resolve));
      return {
        heard: news.promise,
        wake: news.resolve,
        stop() {
          signal.removeEventListener("abort", abort);
          if (listeners.delete(news.resolve) && listeners.size === 0) waiting.delete(id);
        },
      };
    },
    wake(id) {
      // Mostly nobody waits at all, which is cheaper to see than who does
      const listeners = waiting.size === 0 ? undefined : waiting.get(id);
      if (listeners !== undefined) { for (const wake of [...listeners]) wake(); }
    },
  };
}
