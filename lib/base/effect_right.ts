/**
 * The right of the work at hand to have effects on the world, for every door through which an effect leaves the gateway.
 *
 * A call begins with this right, and may lose it before its effect: a program is prepared for seconds, a request waits for its turn, the
 * process stands still. Each door therefore asks for it again, last before the effect. The right goes with the work through all functions
 * and waits between a call and its doors, so that none of them hands it on and none can forget it.
 */
import { AsyncLocalStorage } from "node:async_hooks";

/** Right to begin effects, which a gateway of a cluster has until a deadline. */
export interface EffectRight {
  /**
   * Resolves when an effect may begin; while the right is uncertain, as when the database is away, it waits.
   * @throws {CancelError} when the right is lost, or the work was cancelled
   */
  mayAct(): Promise<void>;
  /** Returns the monotonic time, in ms, after which an effect may not begin unless `mayAct` says so again. */
  deadline(): number;
}

/** Place of the right of one piece of work. Empty until the work comes to its effects. */
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

/** Returns the right of the work at hand. Undefined: its effects need none, as at a gateway alone, or it has none to come */
export function effectRight(): EffectRight | undefined {
  return slots.getStore()?.right;
}
