/**
 * The right of the work at hand to have effects on the world, for every door through which an effect leaves the gateway.
 *
 * A call begins with this right, and may lose it before its effect: a program is prepared for seconds, a request waits for its turn, the
 * process stands still. Each door therefore asks for it again, last before the effect. The right goes with the work through all functions
 * and waits between a call and its doors, so that none of them has to hand it on.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { cancelError, unlessAborted } from "./cancel.ts";

/** Right to begin effects, which a gateway of a cluster has while its lease lets it act. */
export interface EffectRight {
  /**
   * Resolves when an effect may begin; while the right is uncertain, as when the database is down, it waits.
   * @throws {CancelError} when the right is lost, or the work was cancelled
   */
  mayAct(): Promise<void>;
  /** Tells whether an effect may begin now, at once. */
  mayActNow(): boolean;
}

/** Place of the right of one piece of work. Empty until the work comes to its effects, and after its end. */
export interface EffectRightSlot {
  right?: EffectRight | undefined;
}

const slots = new AsyncLocalStorage<EffectRightSlot>();

/**
 * Does work whose doors ask for the right in the slot, and empties the slot at its end: whatever the work has left going, such as a connection
 * that others use too, needs no right of a call that is over.
 */
export async function withEffectRight<T>(slot: EffectRightSlot, work: () => Promise<T>): Promise<T> {
  try {
    return await slots.run(slot, work);
  } finally {
    slot.right = undefined;
  }
}

/** Does work that several calls wait for together: it needs no right of the call that happens to begin it. */
export function withoutEffectRight<T>(work: () => T): T {
  return slots.run({}, work);
}

/** Returns a function whose work has the right of the work at hand, wherever it is called from, as by the messages of a thread. */
export function keepingEffectRight<Given extends unknown[], T>(work: (...given: Given) => T): (...given: Given) => T {
  const slot = slots.getStore() ?? {};
  return (...given) => slots.run(slot, () => work(...given));
}

/** Tells whether the effects of the work at hand need a right: at a gateway alone, and in a call that only reads, they do not. */
export function needsEffectRight(): boolean {
  return slots.getStore()?.right !== undefined;
}

/** Tells whether the work at hand may have an effect now, at once. */
export function mayHaveEffectNow(): boolean {
  return slots.getStore()?.right?.mayActNow() ?? true;
}

/**
 * Resolves when the work at hand may have an effect. Each door awaits this last before the effect.
 * @param signal of the work: a call that was given up or halted meanwhile must have no effect later
 * @throws {CancelError} when the right is lost, or the signal aborts first
 */
export async function untilEffectMayBegin(signal: AbortSignal): Promise<void> {
  if (signal.aborted) throw cancelError(signal);
  const right = slots.getStore()?.right;
  if (right === undefined) return;
  await unlessAborted(right.mayAct(), signal);
}
