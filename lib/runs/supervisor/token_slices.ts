/**
 * The rules of a budget that gateways share, as functions without I/O. A record counts the tokens that are used or leased; a gateway leases
 * slices of it, and sets tokens aside for its calls from its slice without asking anybody.
 *
 * Every token of a slice is in the record already, so nothing that a gateway does between two writes can spend more than the budget. What
 * a gateway has leased and does not give back counts as spent: it may have died with calls at work.
 * Source: docs/design/cluster.md "Budgets"
 */

/** Tokens of a budget, as its record has them. */
export interface Pot {
  /** Tokens that are used, or leased to a gateway. */
  readonly tokens: number;
  /** Part of `tokens` that gateways had neither used nor given back when they last wrote the record. For people, and for checks that may be wrong. */
  readonly leased: number;
}

/** The part of a budget that one gateway has leased. */
export interface Slice {
  /** Tokens that no call has yet. Below 0 after a call that used more than was set aside for it. */
  readonly free: number;
  /** Tokens that are set aside for calls at work. */
  readonly held: number;
  /** Part of `Pot.leased` that this gateway has put there. */
  readonly told: number;
}

/** Slice of a gateway that has leased nothing. */
export const NO_SLICE: Slice = { free: 0, held: 0, told: 0 };

/** Tokens of a call: it needs all of its input, and at least one of its output. */
export interface CallNeed {
  readonly input: number;
  readonly output: number;
}

/** Part of a budget that a gateway keeps without a call for it: one in twenty. */
const PARTS = 20;

/** Returns the tokens that a gateway leases at once while there are plenty. */
export function sliceOf(limit: number): number {
  return Math.max(1, Math.floor(limit / PARTS));
}

/** Tells whether so little of a budget is left that gateways lease what they need and no more. */
export function isScarce(pot: Pot, limit: number): boolean {
  return limit - pot.tokens < 2 * sliceOf(limit);
}

/** A write that moves tokens between the record and a slice. */
export interface Move {
  /** The record, once it is written. */
  readonly pot: Pot;
  /** Tokens that the slice gets; below 0: gives back. */
  readonly amount: number;
  /** `Slice.told` before the write, and once it is made. */
  readonly toldBefore: number;
  readonly told: number;
}

/**
 * Leases what a gateway needs, or a slice while there are plenty.
 * @param options.missing tokens that its slice lacks for the calls that wait
 * @returns undefined when nothing is left, or nothing is missing
 */
export function leased(
  pot: Pot,
  slice: Slice,
  { missing, limit }: { readonly missing: number; readonly limit: number },
): Move | undefined {
  const left = limit - pot.tokens;
  const wanted = isScarce(pot, limit) ? missing : Math.max(missing, sliceOf(limit));
  const amount = Math.min(left, wanted);
  return missing <= 0 || amount <= 0 ? undefined : toMove(pot, slice, amount);
}

/** Gives tokens of a slice back. An amount below 0 was used beyond what was set aside, and is added to the record. */
export function returned(pot: Pot, slice: Slice, amount: number): Move {
  return toMove(pot, slice, -amount);
}

function toMove(pot: Pot, slice: Slice, amount: number): Move {
  const told = Math.max(0, slice.free + amount) + slice.held;
  return {
    // A record of another history may lack what is given back
    pot: { tokens: Math.max(0, pot.tokens + amount), leased: Math.max(0, pot.leased + told - slice.told) },
    amount,
    toldBefore: slice.told,
    told,
  };
}

/**
 * Returns the slice once a write is on its way. What is given back is not the gateway's any more from here on: when the answer is lost,
 * nobody knows whether others have it. What is leased is not the gateway's yet.
 */
export function sent(slice: Slice, { amount, told }: Move): Slice {
  return amount > 0 ? slice : { ...slice, free: slice.free + amount, told };
}

/** Returns the slice once a write is known to be made. Calls may have begun and ended since it was sent. */
export function written(slice: Slice, { amount, told }: Move): Slice {
  return { ...slice, free: slice.free + Math.max(0, amount), told };
}

/** Returns the slice once a write is known not to be made, since another gateway wrote first. */
export function notWritten(slice: Slice, { amount, toldBefore }: Move): Slice {
  return { ...slice, free: slice.free - Math.min(0, amount), told: toldBefore };
}

/**
 * Returns the slice once another record counts: that of the next day, or the record in another history of the database, which may lack the
 * commit that leased the slice. All of the slice stays spent, also what calls at work have and do not use.
 */
export function abandoned(_slice: Slice): Slice {
  return NO_SLICE;
}

/** Returns what a gateway gives back: all that no call has, when little is left for the others; else what is more than a slice. */
export function surplus(slice: Slice, { limit, scarce }: { readonly limit: number; readonly scarce: boolean }): number {
  // A call used more than was set aside: the record must have it
  if (slice.free < 0) return slice.free;
  const kept = scarce ? 0 : sliceOf(limit);
  return Math.max(0, slice.free - kept);
}

/**
 * Sets tokens aside for a call, without a write.
 * @param whole true: with all of the output that the call asks for, or not at all
 * @returns undefined when the slice does not have them
 */
export function setAside(
  slice: Slice,
  { input, output }: CallNeed,
  { whole }: { readonly whole: boolean },
): { readonly slice: Slice; readonly output: number } | undefined {
  const given = Math.min(output, slice.free - input);
  if (given < 1 || (whole && given < output)) return undefined;
  const amount = input + given;
  return { slice: { ...slice, free: slice.free - amount, held: slice.held + amount }, output: given };
}

/** Takes what a call used, of the tokens that were set aside for it. The rest is free again. */
export function settled(
  slice: Slice,
  { reserved, used }: { readonly reserved: number; readonly used: number },
): Slice {
  return { ...slice, held: slice.held - reserved, free: slice.free + reserved - used };
}
