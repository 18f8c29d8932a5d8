import { Buffer } from "node:buffer";
import type { Driver } from "unstorage";
import * as v from "valibot";
import { type Clock, withTimeout } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { createRecordCipher, SealError } from "./record_cipher.ts";

/** Functions of an unstorage driver that a cache needs. */
export type CacheDriver = Required<Pick<Driver, "getItem" | "setItem">>;

/** Parts of a sealed cache. */
export interface SealedCacheParts {
  /** Keeps the values, and may be anybody's */
  readonly driver: CacheDriver;
  /** Keeps for each value its name in the driver and its key */
  readonly marks: CacheDriver;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Pick<Logger, "warn">;
}

/** Milliseconds that the driver may take for one value. */
const WAIT_MS = 1_000;
/** Milliseconds for which a driver that failed is not asked again. */
const AWAY_MS = 30_000;
const KEY_BYTES = 32;
const NAME_BYTES = 16;
/** UTF-16 units of a sealed value. */
const MAX_SEALED = 4_194_304;

const markSchema = v.pipe(
  v.string(),
  v.parseJson(),
  v.object({ item: v.pipe(v.string(), v.regex(/^postern-[0-9a-f]{32}$/)), key: v.string() }),
);
const SEALED = /^([A-Za-z0-9+/]{16})\.([A-Za-z0-9+/]+=*)$/;

/**
 * Cache whose values lie with a driver of the program, where others may read and write them.
 *
 * Each value is sealed with a key of its own, which only the gateway's store has, and to its name. So a value that was altered, exchanged with
 * another one, or put back after a later one does not open, and counts as absent. Names in the driver are random: they say nothing, and no
 * other gateway has the same. A driver that fails costs one wait, and is left alone for a while.
 */
export class SealedCache implements CacheDriver {
  readonly #parts: SealedCacheParts;
  /** Monotonic milliseconds from which the driver is asked again */
  #downUntil = Number.NEGATIVE_INFINITY;
  #isTold = false;

  constructor(parts: SealedCacheParts) {
    this.#parts = parts;
  }

  readonly getItem: CacheDriver["getItem"] = async (key) => {
    const { driver, random } = this.#parts;
    const mark = await this.#markOf(key);
    if (mark === undefined) return null;
    const given = await this.#ask(() => driver.getItem(mark.item));
    const [, nonce, data] = typeof given === "string" && given.length <= MAX_SEALED ? SEALED.exec(given) ?? [] : [];
    if (nonce === undefined || data === undefined) return null;
    const cipher = createRecordCipher(Buffer.from(mark.key, "base64"), random);
    try {
      return cipher.open({ key: cipher.keyId, nonce, data }, key);
    } catch (error) {
      if (error instanceof SealError) return null;
      throw error;
    }
  };

  readonly setItem: CacheDriver["setItem"] = async (key, text) => {
    const { driver, marks, random } = this.#parts;
    const known = await this.#markOf(key);
    const item = known?.item ?? `postern-${Buffer.from(random.bytes(NAME_BYTES)).toString("hex")}`;
    const own = random.bytes(KEY_BYTES);
    const { nonce, data } = createRecordCipher(own, random).seal(text, key);
    const isKept = await this.#ask(async () => {
      await driver.setItem(item, `${nonce}.${data}`, {});
      return true;
    });
    // Until here the value before does not open any more, and the new one not yet: both are absent
    if (isKept !== true) return;
    await marks.setItem(key, JSON.stringify({ item, key: Buffer.from(own).toString("base64") }), {});
  };

  async #markOf(key: string) {
    const mark = v.safeParse(markSchema, await this.#parts.marks.getItem(key));
    return mark.success && Buffer.from(mark.output.key, "base64").length === KEY_BYTES ? mark.output : undefined;
  }

  /** Asks the driver, for a bounded time. Returns undefined when it fails, and while it is left alone. */
  async #ask<T>(work: () => T | Promise<T>): Promise<T | undefined> {
    const { clock } = this.#parts;
    if (clock.monotonic() < this.#downUntil) return undefined;
    try {
      const asked = (async () => ({ answer: await work() }))();
      const done = await withTimeout(asked, { ms: WAIT_MS, clock });
      if (done === undefined) throw new Error(`It gave no answer for ${WAIT_MS} ms`);
      this.#isTold = false;
      return done.answer;
    } catch (error) {
      this.#downUntil = clock.monotonic() + AWAY_MS;
      if (!this.#isTold) this.#parts.log.warn("The cache of the program failed: values are fetched again", { error });
      this.#isTold = true;
      return undefined;
    }
  }
}

/** Returns the driver that a program gave as its cache. @throws {ConfigError} `cache_invalid` */
export function readCacheDriver(given: unknown): CacheDriver {
  const { getItem, setItem }: Partial<CacheDriver> = typeof given === "object" && given !== null ? given : {};
  if (typeof getItem !== "function" || typeof setItem !== "function") {
    const reason = "give a driver of unstorage that can write, such as fsDriver({ base }); it has getItem and setItem";
    throw new ConfigError("cache_invalid", `Cannot use the option "cache": ${reason}`, { key: "cache" });
  }
  return { getItem: getItem.bind(given), setItem: setItem.bind(given) };
}
