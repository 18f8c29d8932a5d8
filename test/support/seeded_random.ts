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

/** Returns how many examples a property is tried with: `usual`, or the factor `TRIES` of the environment times as many. */
export function triesOf(usual: number): number {
  return usual * Number(process.env["TRIES"] ?? 1);
}
