import { randomBytes } from "node:crypto";

/** Randomness, handed in so that tests are repeatable. */
export interface Random {
  /** `count` unpredictable bytes, fresh each time */
  bytes(count: number): Uint8Array;
  /** `prefix` followed by 24 characters of [0-9a-z]: unique, 120 bits or more, not ordered */
  id(prefix: string): string;
}

const ALPHABET = "0123456789abcdefghijklmnopqrstuv";
const POOL_BYTES = 4096;
const ID_CHARACTERS = 24;

/** Random numbers of the operating system; ids are cut from a pool, since a call costs microseconds. */
export function createSystemRandom(): Random {
  let pool: Uint8Array = new Uint8Array(0);
  let used = 0;
  return {
    bytes: (count) => new Uint8Array(randomBytes(count)),
    id(prefix) {
      if (used + ID_CHARACTERS > pool.length) {
        pool = randomBytes(POOL_BYTES);
        used = 0;
      }
      let id = prefix;
      // The index is below pool.length, and the low five bits index the 32 letters
      for (let i = 0; i < ID_CHARACTERS; i++) id += ALPHABET[(pool[used++] as number) & 31];
      return id;
    },
  };
}
