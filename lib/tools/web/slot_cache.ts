import { createHash } from "node:crypto";
import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { DocumentKey, Documents } from "../../storage/documents.ts";

/**
 * Values that are kept for a while, a fixed number of them: each has the place that its key leads to, and takes it from another one. So
 * there is nothing to count and nothing to delete, and the cache cannot grow.
 */
export interface SlotCache<T> {
  /** Returns the value of a key. undefined when there is none, it is over, or another one took its place */
  get(key: string): Promise<T | undefined>;
  set(key: string, value: T, ttlMs: number): Promise<void>;
}

/** Options of createSlotCache. */
export interface SlotCacheOptions<T> {
  readonly documents: Documents;
  readonly clock: Clock;
  readonly log: Logger;
  readonly family: "pages" | "robots";
  readonly slots: number;
  /** Bytes of a value as JSON. A longer one is not kept */
  readonly maxBytes: number;
  readonly schema: v.GenericSchema<unknown, T>;
}

const entrySchema = v.object({ key: v.string(), until: v.number(), value: v.unknown() });

/** Creates a cache over the documents of the store. */
export function createSlotCache<T>(options: SlotCacheOptions<T>): SlotCache<T> {
  const { documents, clock, log, family, slots, maxBytes, schema } = options;
  // The key may hold an address, which is kept as its hash alone
  const placeOf = (key: string): { readonly hash: string; readonly slot: DocumentKey } => {
    const digest = createHash("sha256").update(key).digest();
    return { hash: digest.toString("hex"), slot: `${family}/${digest.readUInt32BE() % slots}` };
  };
  return {
    async get(key) {
      const { hash, slot } = placeOf(key);
      const entry = v.safeParse(entrySchema, await documents.get(slot));
      if (!entry.success || entry.output.key !== hash || entry.output.until <= clock.now()) return undefined;
      const value = v.safeParse(schema, entry.output.value);
      return value.success ? value.output : undefined;
    },
    async set(key, value, ttlMs) {
      const { hash, slot } = placeOf(key);
      const entry = { key: hash, until: clock.now() + ttlMs, value };
      if (Buffer.byteLength(JSON.stringify(entry)) > maxBytes) return;
      // Losing a value costs time only, so that a full disk fails no call
      await documents.set(slot, entry).catch((error: unknown) =>
        log.warn("A fetched page could not be kept", { error })
      );
    },
  };
}
