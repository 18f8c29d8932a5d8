import { cancelError } from "../../base/cancel.ts";
import { HttpError } from "../../base/errors.ts";

/** Bounds of `[runs]`. */
export interface RunLimits {
  readonly maxConcurrent: number;
  readonly maxQueued: number;
  /** Runs of one conversation that may wait for the one at work */
  readonly maxPerConversation: number;
}

/** A run's place. */
export interface QueuePlace {
  /** Whether the run may work now */
  ready(): boolean;
  /** Resolves when it may. @throws {CancelError} when `signal` aborts first */
  wait(signal: AbortSignal): Promise<void>;
  /**
   * Lends its slot to others while it waits for a person, and takes it back at once, over the limit if need be: who was answered
   * does not queue again. Its conversation stays its own
   */
  pause<T>(wait: () => Promise<T>): Promise<T>;
  /** Gives the place back; twice does nothing */
  leave(): void;
}

export interface EnterOptions {
  /** Runs of one conversation work one after the other; null: none */
  readonly conversationId: string | null;
  /** A child takes no slot: its parent holds one and waits for it */
  readonly isChild: boolean;
  /** Only hands a request on to the model, without tools and without a record: takes no slot; as many as slots and queue together. Default false */
  readonly isPlain?: boolean;
  /** Was accepted before a restart: the bounds do not count. Default false */
  readonly isAccepted?: boolean;
}

/** First come, first served, a conversation's runs one at a time. */
export interface RunQueue {
  /** @throws {HttpError} 503 `overloaded` */
  enter(options: EnterOptions): QueuePlace;
}

interface Waiting {
  readonly options: EnterOptions;
  readonly start: () => void;
}

/** @param limits read at every entrance, so that a reload takes effect */
export function createRunQueue(limits: () => RunLimits): RunQueue {
  const waiting = new Set<Waiting>();
  const busy = new Set<string>();
  let slots = 0;
  let plain = 0;

  const mayStart = ({ conversationId, isChild }: EnterOptions) =>
    (isChild || slots < limits().maxConcurrent) && (conversationId === null || !busy.has(conversationId));
  const take = ({ conversationId, isChild }: EnterOptions) => {
    if (!isChild) slots++;
    if (conversationId !== null) busy.add(conversationId);
  };
  const leavePlain = () => void plain--;
  const startNext = () => {
    for (const next of waiting) {
      if (!mayStart(next.options)) continue;
      waiting.delete(next);
      take(next.options);
      next.start();
    }
  };

  return {
    enter(options) {
      const { conversationId } = options;
      if (options.isPlain) {
        const { maxConcurrent, maxQueued } = limits();
        if (plain >= maxConcurrent + maxQueued) throw overloaded("too many requests are with the model");
        plain++;
        return new PlainPlace(leavePlain);
      }
      let ready = false;
      let paused = 0;
      let left = false;
      const lend = (count: number) => {
        const wasLent = paused > 0;
        paused += count;
        const isLent = paused > 0;
        if (options.isChild || left || wasLent === isLent) return;
        slots += isLent ? -1 : 1;
        if (isLent) startNext();
      };
      let wake: (() => void) | undefined;
      const entry: Waiting = {
        options,
        start() {
          ready = true;
          wake?.();
        },
      };
      if (mayStart(options)) {
        take(options);
        ready = true;
      } else if (options.isAccepted) {
        waiting.add(entry);
      } else {
        if (waiting.size >= limits().maxQueued) throw overloaded("too many runs are waiting");
        const ahead = conversationId === null ? 0 : countOf(waiting, conversationId);
        if (ahead >= limits().maxPerConversation) throw overloaded("too many runs of this conversation are waiting");
        waiting.add(entry);
      }
      return {
        ready: () => ready,
        wait(signal) {
          if (signal.aborted) return Promise.reject(cancelError(signal));
          if (ready) return Promise.resolve();
          return new Promise((resolve, reject) => {
            const onAbort = () => reject(cancelError(signal));
            signal.addEventListener("abort", onAbort, { once: true });
            wake = () => {
              signal.removeEventListener("abort", onAbort);
              resolve();
            };
          });
        },
        async pause(wait) {
          lend(1);
          try {
            return await wait();
          } finally {
            lend(-1);
          }
        },
        leave() {
          if (left) return;
          left = true;
          if (!ready) {
            waiting.delete(entry);
            return;
          }
          if (!options.isChild && paused === 0) slots--;
          if (conversationId !== null) busy.delete(conversationId);
          if (waiting.size > 0) startNext();
        },
      };
    },
  };
}

/** Holds no slot: it may work at once, and has nothing to lend. */
class PlainPlace implements QueuePlace {
  #onLeave: (() => void) | undefined;

  constructor(onLeave: () => void) {
    this.#onLeave = onLeave;
  }

  ready(): boolean {
    return true;
  }

  wait(): Promise<void> {
    return Promise.resolve();
  }

  pause<T>(wait: () => Promise<T>): Promise<T> {
    return wait();
  }

  leave(): void {
    this.#onLeave?.();
    this.#onLeave = undefined;
  }
}

function countOf(waiting: ReadonlySet<Waiting>, conversationId: string): number {
  let count = 0;
  for (const entry of waiting) if (entry.options.conversationId === conversationId) count++;
  return count;
}

function overloaded(reason: string): HttpError {
  return new HttpError("overloaded", `Cannot start the run: ${reason}; try again later`, {
    status: 503,
    type: "api_error",
    headers: { "Retry-After": "1" },
  });
}
