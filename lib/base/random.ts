import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";

/** Randomness, handed in so that tests are repeatable. */
export interface Random {
  /** `count` unpredictable bytes, fresh each time */
  bytes(count: number): Uint8Array;
  /** `prefix` followed by 24 characters of [0-9a-z]: unique, 120 bits or more, not ordered */
  id(prefix: string): string;
}

const ALPHABET = new TextEncoder().encode("0123456789abcdefghijklmnopqrstuv");
const POOL_BYTES = 4096;
/** A start needs a few ids. Larger first pools make V8 optimise their loop, which costs 7 ms and 5 MiB */
const FIRST_POOL_BYTES = 480;
const ID_CHARACTERS = 24;

/** Creates randomness of the operating system. Ids are cut from a pool, since a call costs microseconds. */
export function createSystemRandom(): Random {
  /** Letters of ASCII: a string that is cut is flat, one that is put together is made flat again at its first use */
  let pool = Buffer.alloc(0);
  let used = 0;
  return {
    bytes: (count) => new Uint8Array(randomBytes(count)),
    id(prefix) {
      if (used + ID_CHARACTERS > pool.length) {
        pool = randomBytes(pool.length === 0 ? FIRST_POOL_BYTES : POOL_BYTES);
        // The index is below pool.length, and the low five bits index the 32 letters
        for (let i = 0; i < pool.length; i++) pool[i] = ALPHABET[(pool[i] as number) & 31] as number;
        used = 0;
      }
      return prefix + pool.toString("latin1", used, used += ID_CHARACTERS);
    },
  };
}
