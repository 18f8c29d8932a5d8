import process from "node:process";
import type { Random } from "../../lib/base/random.ts";

/** Repeatable numbers for tests: never for a gateway. */
export function createSeededRandom(seed = 1): Random {
  let state = seed >>> 0;
  const next = () => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % 256;
  };
  return {
    bytes: (count) => Uint8Array.from({ length: count }, next),
    id: (prefix) => prefix + Array.from({ length: 24 }, () => "0123456789abcdefghijklmnopqrstuv"[next() & 31]).join(""),
  };
}

/** Returns how many examples a property is tried with, or how large a thing is made: `usual`, or the factor `TRIES` of the environment times as much. */
export function triesOf(usual: number): number {
  return usual * Number(process.env["TRIES"] ?? 1);
}

/**
 * Returns what a run tries on a row of a table: each third, other ones on the next row, so that each row and each column has its tests. All
 * where `TRIES` asks for more.
 */
export function someOf<T>(columns: readonly T[], row: number): readonly T[] {
  return triesOf(1) > 1 ? columns : columns.filter((_, column) => (row + column) % 3 === 0);
}
