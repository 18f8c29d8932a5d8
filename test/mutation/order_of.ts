import type { Mutant } from "./find_mutants.ts";

/** A mutant with the folder it is counted in. */
export interface Drawn {
  readonly folder: string;
  readonly mutant: Mutant;
}

/**
 * Draws the mutants of every folder in an order that the seed decides, one folder after the other in turn: however soon the time is
 * up, each folder has had as many tries as the others, or all of its own.
 */
export function orderOf(mutants: ReadonlyMap<string, readonly Mutant[]>, seed: number): readonly Drawn[] {
  const next = seededNumbers(seed);
  const drawn = [...mutants].map(([folder, found]) => {
    const keyed = found.map((mutant) => ({ folder, mutant, key: next() }));
    return keyed.toSorted((a, b) => a.key - b.key).map(({ key: _, ...each }) => each);
  });
  const longest = Math.max(0, ...drawn.map(({ length }) => length));
  return Array.from({ length: longest }, (_, turn) => drawn.flatMap((each) => each.slice(turn, turn + 1))).flat();
}

/** Numbers from 0 up to 1, the same for the same seed: mulberry32. */
function seededNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
