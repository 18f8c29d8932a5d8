import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { type HttpError, refuse } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Actor } from "../base/records/caller.ts";
import { storedObject, unknownFieldsOf } from "../base/records/stored_object.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store, Stored } from "../storage/store.ts";
import type { IssuedToken, RecordAccess, TokenTerms } from "./identity.ts";
import { secretHash } from "./stored_token.ts";
import type { Tokens } from "./tokens.ts";

/** How a client that pairs is named, and when its token ends. */
export type PairingTerms = Partial<TokenTerms> & { readonly address?: string | undefined };

/** A code that was made. */
type PairingCode = { readonly code: string; readonly expiresInSeconds: number };

/** Store, clock and terms that pairing works with. */
export interface PairingOptions {
  readonly store: Store;
  /** In a cluster the clock of the database */
  readonly clock: Clock;
  readonly random: Random;
  readonly tokens: Tokens;
  /** Writes that a code was made, and that pairing is locked. Default: to the store alone */
  readonly record?: RecordAccess;
  /** Seconds a code is valid, from when it is made */
  readonly ttlSeconds: () => number;
}

/** 32 letters and digits without I, O, 0 and 1, so that one character is five bits. */
const ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_CHARACTERS = 8;
/** 80 random bits: guessing needs no lock to be hopeless, and so nobody can lock such a code out by guessing. */
const LONG_CODE_CHARACTERS = 16;
const MAX_PRESENTED_CHARACTERS = 64;
const MAX_MISSES = 5;
const LOCK_MS = 300_000;

/** The code's record is found by its hash, so taking it checks it; times are milliseconds since the epoch. */
export const PAIRING_CODES = new Collection(
  "pairing_codes",
  v.object({ v: v.literal(1), expires_at: v.number() }),
  { replaced: "never changed" },
);
/** Collection of the one record that counts wrong codes and locks pairing. */
export const PAIRING_GUARD = new Collection(
  "pairing_guard",
  storedObject({ v: v.literal(1), misses: v.number(), locked_until: v.number() }),
);
const GUARD_KEY = "guard";
const FORGET_MISSES = PAIRING_GUARD.remove(GUARD_KEY);
/** Tries of a guess while clients guess at other gateways of the cluster too. */
const MAX_TRIES = 20;

/** The pairing code and its exchange over a store (docs/design/access.md "Pairing"). Misses and the lock survive a restart; a new code clears them. */
export class Pairing {
  readonly #options: PairingOptions;
  readonly #record: RecordAccess;
  /** The newest exchange, whether it succeeds or fails */
  #tail: Promise<unknown> = Promise.resolve();
  /** Hash of the long code that was made last; "" before */
  #longHash = "";

  constructor(options: PairingOptions) {
    this.#options = options;
    this.#record = options.record ?? ((_change, writes) => options.store.batch(writes));
  }

  /**
   * A fresh code in place of any earlier one. Only its hash is kept.
   * @param by who asks at a terminal or with a token, and gets a long code, `ABCD-EFGH-JKLM-NPQR`, which nobody can lock out: no lock holds
   *   for it. Null: a start shows the code, `ABCD-EFGH`
   */
  createCode(by: Actor | null = null): Promise<PairingCode> {
    return this.#exclusively(() => this.#replaceCode(by));
  }

  /** Tells whether a text is the long code that this process made last. Guesses of strangers then bound nothing */
  isLongCode(code: string | null): boolean {
    return this.#longHash !== "" && secretHash(normalize(code ?? "")) === this.#longHash;
  }

  /** Tells whether there is a code that somebody may still come with. */
  async isPending(): Promise<boolean> {
    const { store, clock } = this.#options;
    const found = await PAIRING_CODES.page(store, { limit: 1_000 });
    return found.some(({ value }) => value.expires_at > clock.now());
  }

  /**
   * Takes the code, atomically, and issues an admin token.
   * @param terms default: the label `paired`, and no end; `address` is the peer's, for the record
   * @throws {HttpError} 401 pairing_code_required, 403 pairing_code_invalid, 429 pairing_locked with Retry-After; 400 invalid_request
   *   naming the field, which does not use the code up
   */
  async redeem(code: string | null, terms: PairingTerms = {}): Promise<IssuedToken> {
    if (code === null || code.trim() === "") throw codeRequired();
    return await this.#exclusively(() => this.#exchange(code, terms));
  }

  /** Runs one exchange at a time, so that parallel guesses cannot pass the lock between its check and its count. */
  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    this.#tail = result.catch(() => {});
    return result;
  }

  async #replaceCode(by: Actor | null): Promise<PairingCode> {
    const { store, clock, tokens, random } = this.#options;
    let code = "";
    // The low five bits index the 32 letters
    const characters = by === null ? CODE_CHARACTERS : LONG_CODE_CHARACTERS;
    for (const byte of random.bytes(characters)) code += ALPHABET.charAt(byte & 31);
    const ttlSeconds = this.#options.ttlSeconds();
    const body = { v: 1, expires_at: clock.now() + ttlSeconds * 1000 } as const;
    await tokens.changeBy(by, async (also) => {
      const earlier = await store.scan(PAIRING_CODES.name, { limit: 1_000 });
      return await this.#record({ kind: "code_made", by }, [
        ...earlier.map(({ key }) => PAIRING_CODES.remove(key)),
        FORGET_MISSES,
        PAIRING_CODES.put(secretHash(code), body),
        ...also,
      ]);
    });
    this.#longHash = by === null ? "" : secretHash(code);
    return { code: code.replace(/.{4}(?=.)/g, "$&-"), expiresInSeconds: ttlSeconds };
  }

  async #exchange(
    presented: string,
    { label = "paired", address: peer, ...terms }: PairingTerms,
  ): Promise<IssuedToken> {
    const { store, tokens } = this.#options;
    const address = peer ?? null;
    const { misses, hash, taken } = await this.#takeCode(presented, address);
    let issued: IssuedToken;
    try {
      issued = await tokens.issue({ scopes: ["admin"], label, ...terms, paired: { address } });
    } catch (error) {
      // The code did not serve: it stays good for another try
      await store.insertOnce(PAIRING_CODES.name, hash, taken.body);
      throw error;
    }
    if (misses > 0) await store.batch([FORGET_MISSES]);
    return issued;
  }

  /**
   * Takes the code that a client presents. The client is told whether its code is right once the guess is counted, at
   * whichever gateways others guess at the same moment.
   * @throws {HttpError} 403 pairing_code_invalid, 429 pairing_locked, 503 storage_unavailable
   */
  async #takeCode(presented: string, address: string | null) {
    const { store, clock } = this.#options;
    const code = normalize(presented);
    const hash = secretHash(code);
    if (code.length === LONG_CODE_CHARACTERS) {
      const taken = await store.takeOnce(PAIRING_CODES.name, hash);
      if (taken === undefined || this.#expiryOf(taken) <= clock.now()) throw invalidCode();
      return { misses: 0, hash, taken };
    }
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const guard = await this.#refuseWhileLocked();
      const taken = code.length === CODE_CHARACTERS ? await this.#take(hash, guard) : undefined;
      if (taken === "changed") continue;
      if (taken !== undefined && this.#expiryOf(taken) > clock.now()) return { misses: guard.misses, hash, taken };
      if (await this.#countMiss(guard, address)) throw invalidCode();
    }
    throw refuse("storage_unavailable", "Cannot pair: too many clients try to pair at the same time; try again");
  }

  /** @returns `changed` when another gateway has counted a guess or taken the code meanwhile */
  async #take(hash: string, guard: PairingGuard): Promise<Stored | undefined | "changed"> {
    const { store } = this.#options;
    const found = await store.get(PAIRING_CODES.name, hash);
    if (found === undefined) return undefined;
    const isTaken = await store.batch([
      PAIRING_GUARD.check(GUARD_KEY, guard.version),
      PAIRING_CODES.check(hash, found.version),
      PAIRING_CODES.remove(hash),
    ]);
    return isTaken ? found : "changed";
  }

  /** Returns how many wrong codes came since the last right one. @throws {HttpError} 429 pairing_locked */
  async #refuseWhileLocked(): Promise<PairingGuard> {
    const { store, clock } = this.#options;
    const { value: found, version } = await PAIRING_GUARD.readForChange(store, GUARD_KEY);
    if (version === 0) return { misses: 0, version };
    // How many wrong codes came is unknown, so no code counts before a new one is made
    if (found === undefined) throw locked(LOCK_MS);
    const { misses, locked_until: lockedUntil } = found;
    const waitMs = lockedUntil - clock.now();
    if (waitMs > 0) throw locked(waitMs);
    // A lock that has run out starts the count again
    return { ...unknownFieldsOf(found), misses: lockedUntil > 0 ? 0 : misses, version };
  }

  /** Returns when a code expires, in milliseconds since the epoch: 0 for a code whose record cannot be read. */
  #expiryOf(taken: Stored): number {
    return PAIRING_CODES.parsed(this.#options.store, taken)?.value.expires_at ?? 0;
  }

  /** Writes one more wrong code, and the lock after too many of them. @returns false when another gateway has counted one meanwhile */
  async #countMiss(earlier: PairingGuard, address: string | null): Promise<boolean> {
    const { store, clock } = this.#options;
    const misses = earlier.misses + 1;
    const lockedUntil = misses >= MAX_MISSES ? clock.now() + LOCK_MS : 0;
    const body = { ...unknownFieldsOf(earlier), v: 1, misses, locked_until: lockedUntil } as const;
    const writes = [PAIRING_GUARD.putOver(GUARD_KEY, earlier.version, body)];
    return await (lockedUntil === 0 ? store.batch(writes) : this.#record({ kind: "locked", address }, writes));
  }
}

/** Wrong codes since the last right one, and the version of their record: 0 where there is none. Carries the record's unknown fields. */
interface PairingGuard {
  readonly misses: number;
  readonly version: number;
}

/** Returns a code as it was made, without hyphens; "" for a text that is too long for one. */
function normalize(presented: string): string {
  return presented.length > MAX_PRESENTED_CHARACTERS ? "" : presented.toUpperCase().replace(/[\s-]/g, "");
}

function codeRequired(): HttpError {
  return refuse("pairing_code_required", "Cannot pair: send the pairing code in the header X-Pairing-Code");
}

function invalidCode(): HttpError {
  return refuse(
    "pairing_code_invalid",
    'Cannot pair: the code is wrong, used or expired; "postern pair" prints a new one',
  );
}

function locked(waitMs: number): HttpError {
  const seconds = Math.ceil(waitMs / 1000);
  return refuse(
    "pairing_locked",
    `Cannot pair: too many wrong codes; try again in ${seconds} s, or run "postern pair" for a new code`,
    { headers: { "retry-after": String(seconds) } },
  );
}
