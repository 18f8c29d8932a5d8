import { CancelError, cancelError } from "./cancel.ts";

/** A wait for the news of one key. */
export interface Listening {
  /** Resolves at the next `wake`. @throws {CancelError} when the signal aborts first */
  readonly heard: Promise<void>;
  /** Resolves `heard`, as if there were news. */
  wake(): void;
  /** Ends the wait. Every wait must be stopped; stopping twice does nothing. */
  stop(): void;
}

/** Wakes whoever waits for news of a key. */
export class KeyedNotifier {
  readonly #waiting = new Map<string, Set<() => void>>();

  /** Starts to wait for the news of a key. */
  listen(key: string, signal: AbortSignal): Listening {
    const news = Promise.withResolvers<void>();
    // A listener that stops without having waited leaves nothing unhandled
    news.promise.catch(() => {});
    const abort = () => news.reject(cancelError(signal));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    const listeners = this.#waiting.get(key) ?? new Set();
    this.#waiting.set(key, listeners.add(news.resolve));
    return {
      heard: news.promise,
      wake: news.resolve,
      stop: () => {
        signal.removeEventListener("abort", abort);
        if (listeners.delete(news.resolve) && listeners.size === 0) this.#waiting.delete(key);
      },
    };
  }

  /** Wakes everybody who waits for this key now. */
  wake(key: string): void {
    // Most of the time nobody waits at all, and an empty map is cheaper to see than a missing key
    const listeners = this.#waiting.size === 0 ? undefined : this.#waiting.get(key);
    if (listeners !== undefined) { for (const wake of [...listeners]) wake(); }
  }
}

/** Does one piece of work after the other for each key, in the order of the calls. Other keys go on meanwhile. */
export type KeyedMutex = <T>(key: string, work: () => Promise<T>) => Promise<T>;

/** Creates a mutex where no key is held. */
export function createKeyedMutex(): KeyedMutex {
  const tails = new Map<string, Promise<unknown>>();
  return async (key, work) => {
    const before = tails.get(key);
    const mine = before === undefined ? work() : before.then(work, work);
    const tail = mine.catch(() => {});
    tails.set(key, tail);
    try {
      return await mine;
    } finally {
      if (tails.get(key) === tail) tails.delete(key);
    }
  };
}

/** Waits for the work of a key, together with all who wait for that key. @throws {CancelError} when the signal aborts; the error of the work */
export type SharedWait<T> = (key: string, signal: AbortSignal) => Promise<T>;

/** Creates a wait whose work is done once for all who wait for a key. @param work its signal aborts when the last of them has gone */
export function createSharedWait<T>(work: (key: string, signal: AbortSignal) => Promise<T>): SharedWait<T> {
  interface Wait {
    readonly result: Promise<T>;
    readonly gone: AbortController;
    count: number;
  }
  const waits = new Map<string, Wait>();
  const begin = (key: string): Wait => {
    const gone = new AbortController();
    const result = work(key, gone.signal);
    const wait: Wait = { result, gone, count: 0 };
    const forget = () => void (waits.get(key) === wait && waits.delete(key));
    result.then(forget, forget);
    waits.set(key, wait);
    return wait;
  };
  return async (key, signal) => {
    if (signal.aborted) throw cancelError(signal);
    const wait = waits.get(key) ?? begin(key);
    wait.count++;
    const left = Promise.withResolvers<never>();
    const leave = () => left.reject(cancelError(signal));
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await Promise.race([wait.result, left.promise]);
    } finally {
      signal.removeEventListener("abort", leave);
      if (--wait.count === 0) {
        if (waits.get(key) === wait) waits.delete(key);
        wait.gone.abort(new CancelError("cancelled"));
      }
    }
  };
}

/** Lets a few pieces of work at a time pass for each key. The others wait for a slot, in their order. */
export class KeyedSemaphore {
  readonly #max: number;
  readonly #queues = new Map<string, { taken: number; readonly waiting: Set<() => void> }>();

  /** @param max slots of each key */
  constructor(max: number) {
    this.#max = max;
  }

  /** Returns how many wait for a slot of a key. */
  waiting(key: string): number {
    return this.#queues.get(key)?.waiting.size ?? 0;
  }

  /** Does the work once there is a slot. @throws {CancelError} when the signal aborts while it waits; the error of the work */
  async pass<T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(key) ?? { taken: 0, waiting: new Set() };
    this.#queues.set(key, queue);
    if (queue.taken >= this.#max) await waitForSlot(queue.waiting, signal);
    else queue.taken++;
    try {
      if (signal.aborted) throw cancelError(signal);
      return await work();
    } finally {
      // The slot stays taken and goes to the longest waiting: a call that comes before it has woken cannot get the same slot
      const [next] = queue.waiting;
      if (next !== undefined) next();
      else if (--queue.taken === 0) this.#queues.delete(key);
    }
  }
}

function waitForSlot(waiting: Set<() => void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.reject(cancelError(signal));
  return new Promise((resolve, reject) => {
    const pass = () => {
      signal.removeEventListener("abort", abort);
      waiting.delete(pass);
      resolve();
    };
    const abort = () => {
      waiting.delete(pass);
      reject(cancelError(signal));
    };
    waiting.add(pass);
    signal.addEventListener("abort", abort, { once: true });
  });
}
