import { cancelError } from "../../base/cancel.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { hasRoom } from "../../base/fair_share.ts";

/** Bounds of runs, from `[runs]`. */
export interface RunLimits {
  readonly maxConcurrent: number;
  readonly maxQueued: number;
  /** Runs of one conversation that may wait for the run at work. */
  readonly maxPerConversation: number;
}

/** Place of a run in the queue. */
export interface QueuePlace {
  /** Tells whether the run may work now. */
  ready(): boolean;
  /** Resolves when the run may work. @throws {CancelError} when `signal` aborts first */
  wait(signal: AbortSignal): Promise<void>;
  /**
   * Frees the slot for others while the run waits for a person. Takes it back at once, over the limit if need be, so that an answered
   * run does not queue again. The conversation stays the run's own.
   */
  pause<T>(wait: () => Promise<T>): Promise<T>;
  /** Gives the place back. Repeating it does nothing. */
  leave(): void;
}

/** Properties of a run that decide whether it waits. */
export interface EnterOptions {
  /** Conversation, whose runs work one after the other; null: none. */
  readonly conversationId: string | null;
  /** Token that the run is made with; null: none. Default null */
  readonly tokenId?: string | null;
  /** True for a child. A child takes no slot, since its parent holds one and waits. */
  readonly isChild: boolean;
  /**
   * True when the run only hands a request on to the model, without tools and without a record. Such a run takes no slot. Bound: as
   * many as slots and queue together. Default false.
   */
  readonly isPlain?: boolean;
  /** True when the run was accepted before a restart. The bounds then do not count. Default false. */
  readonly isAccepted?: boolean;
}

/** Queue of runs: first come, first served, and one run of a conversation at a time. */
export class RunQueue {
  readonly #limits: () => RunLimits;
  readonly #onVacated: () => void;
  readonly #waiting = new Set<SlotPlace>();
  /** Conversations with a run at work. */
  readonly #busy = new Set<string>();
  #slots = 0;
  #plain = 0;

  /**
   * @param limits read at every entrance, so that a reload takes effect
   * @param onVacated called when a waiting run frees its slot and no run here takes it. Default: nothing is called
   */
  constructor(limits: () => RunLimits, onVacated: () => void = () => {}) {
    this.#limits = limits;
    this.#onVacated = onVacated;
  }

  /** @throws {HttpError} 503 `overloaded` */
  enter(options: EnterOptions): QueuePlace {
    if (options.isPlain) return this.#enterPlain();
    const place = new SlotPlace(this, options);
    if (this.#mayStart(options)) this.#start(place);
    else {
      if (!options.isAccepted) this.#checkBounds(options);
      this.#waiting.add(place);
    }
    return place;
  }

  /** Returns how many more runs could work now. */
  freeSlots(): number {
    return Math.max(0, this.#limits().maxConcurrent - this.#slots - this.#waiting.size);
  }

  /** Takes back a slot that was lent, over the limit if need be. */
  takeSlot(): void {
    this.#slots++;
  }

  /** Frees the slot of a run that waits. */
  vacateSlot(): void {
    this.#slots--;
    this.#startNext();
    if (this.freeSlots() > 0) this.#onVacated();
  }

  /** Takes a place back whose run leaves. @param isLent true: others have its slot meanwhile */
  takeBack(place: SlotPlace, isLent: boolean): void {
    if (!place.isReady) {
      this.#waiting.delete(place);
      return;
    }
    const { conversationId, isChild } = place.options;
    if (!isChild && !isLent) this.#slots--;
    if (conversationId !== null) this.#busy.delete(conversationId);
    this.#startNext();
  }

  #startNext(): void {
    for (const next of this.#waiting) {
      if (!this.#mayStart(next.options)) continue;
      this.#waiting.delete(next);
      this.#start(next);
    }
  }

  #enterPlain(): QueuePlace {
    const { maxConcurrent, maxQueued } = this.#limits();
    if (this.#plain >= maxConcurrent + maxQueued) throw overloaded("too many requests are with the model");
    this.#plain++;
    return new PlainPlace(() => void this.#plain--);
  }

  #mayStart({ conversationId, isChild }: EnterOptions): boolean {
    return (isChild || this.#slots < this.#limits().maxConcurrent) &&
      (conversationId === null || !this.#busy.has(conversationId));
  }

  #start(place: SlotPlace): void {
    const { conversationId, isChild } = place.options;
    if (!isChild) this.#slots++;
    if (conversationId !== null) this.#busy.add(conversationId);
    place.isReady = true;
    place.onReady?.();
  }

  /** @throws {HttpError} 503 `overloaded` */
  #checkBounds({ conversationId, tokenId = null }: EnterOptions): void {
    const { maxQueued, maxPerConversation } = this.#limits();
    const own = [...this.#waiting].filter(({ options }) => (options.tokenId ?? null) === tokenId).length;
    if (!hasRoom({ all: this.#waiting.size, own }, maxQueued)) throw overloaded("too many runs are waiting");
    if (conversationId === null) return;
    let ahead = 0;
    for (const place of this.#waiting) if (place.options.conversationId === conversationId) ahead++;
    if (ahead >= maxPerConversation) throw overloaded("too many runs of this conversation are waiting");
  }
}

/** Place of a run that works in a slot, or in the slot of its parent. */
class SlotPlace implements QueuePlace {
  readonly options: EnterOptions;
  /** True once the queue lets the run work. */
  isReady = false;
  /** Wakes who waits for that. */
  onReady: (() => void) | undefined = undefined;
  readonly #queue: RunQueue;
  /** Number of waits that the slot is lent for. */
  #paused = 0;
  #left = false;

  constructor(queue: RunQueue, options: EnterOptions) {
    this.#queue = queue;
    this.options = options;
  }

  ready(): boolean {
    return this.isReady;
  }

  wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(cancelError(signal));
    if (this.isReady) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const onAbort = () => reject(cancelError(signal));
      signal.addEventListener("abort", onAbort, { once: true });
      this.onReady = () => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
    });
  }

  async pause<T>(wait: () => Promise<T>): Promise<T> {
    this.#countPause(1);
    try {
      return await wait();
    } finally {
      this.#countPause(-1);
    }
  }

  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.#queue.takeBack(this, this.#paused > 0);
  }

  #countPause(count: number): void {
    const wasPaused = this.#paused > 0;
    this.#paused += count;
    const isPaused = this.#paused > 0;
    if (this.options.isChild || this.#left || wasPaused === isPaused) return;
    if (isPaused) this.#queue.vacateSlot();
    else this.#queue.takeSlot();
  }
}

/** Place of a run without a slot, which may work at once and frees none while it waits. */
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

/** Returns the refusal of a run for which there is no room. */
export function overloaded(reason: string): HttpError {
  return refuse("overloaded", `Cannot start the run: ${reason}; try again later`);
}

/** The runs at work, in no order. */
export interface ActiveRuns<T extends { readonly id: string }> {
  readonly size: () => number;
  add(run: T): void;
  /** Removes a run. Repeating it does nothing. */
  remove(run: T): void;
  find(id: string): T | undefined;
  all(): readonly T[];
}

/**
 * Returns an empty list of runs over one array. A Map or Set would keep ended runs alive: each table that V8 replaces holds all runs of its
 * time until the next major collection. Finding by id is rare and looks through the runs at work alone.
 */
export function createActiveRuns<T extends { readonly id: string }>(): ActiveRuns<T> {
  const runs: T[] = [];
  return {
    size: () => runs.length,
    add: (run) => void runs.push(run),
    remove(run) {
      const at = runs.indexOf(run);
      if (at < 0) return;
      const last = runs.pop() as T; // it was found, so there is one
      if (last !== run) runs[at] = last;
    },
    find: (id) => runs.find((run) => run.id === id),
    all: () => [...runs],
  };
}
