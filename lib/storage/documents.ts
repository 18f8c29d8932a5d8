import { Buffer } from "node:buffer";
import type { Driver } from "unstorage";
import * as v from "valibot";
import { lazily } from "../base/lazily.ts";
import { Collection } from "./read_records.ts";
import type { CacheDriver, SealedCacheParts } from "./sealed_cache.ts";
import type { Store } from "./store.ts";

/** Cached values: the last writer wins, and losing one costs time only. */
export interface Documents {
  /** Returns outside data, which its reader parses. Undefined when there is none, or none that can be read. */
  get(key: DocumentKey): Promise<unknown>;
  /** @param value what JSON can carry */
  set(key: DocumentKey, value: object): Promise<void>;
}

/** Families of documents. Each is a mount of unstorage. */
const FAMILIES = ["models", "pages", "robots", "skills", "zones"] as const;

/** Family that stays in the store: the zone of the last look is a note of what was told, and no copy of anything. */
const OWN_FAMILY = "zones" satisfies typeof FAMILIES[number];

/** Key of a document: its family, then its name in there. At most 1,536 bytes. */
export type DocumentKey = `${typeof FAMILIES[number]}/${string}`;

/** Collection of the documents, by key in base64url. */
export const DOCUMENTS = new Collection("documents", v.object({ v: v.literal(1), text: v.string() }), {
  replaced: "values of a cache",
});

/**
 * Creates the documents over a store. unstorage is loaded with the first one: a gateway that keeps none starts without it.
 * @param options.cache driver of the program that keeps the values in place of the store. Default: the store
 */
export function createDocuments(
  { store, cache }: { readonly store: Store; readonly cache?: Omit<SealedCacheParts, "marks"> | undefined },
): Documents {
  const opened = lazily(async () => {
    const { createStorage } = await import("unstorage");
    const storage = createStorage();
    const own = storeDriver(store);
    const values = cache === undefined ? own : await sealedDriver(own, cache);
    for (const family of FAMILIES) storage.mount(family, family === OWN_FAMILY ? own : values);
    return storage;
  });
  return {
    async get(key) {
      return await (await opened()).getItem(toItemKey(key)) ?? undefined;
    },
    async set(key, value) {
      await (await opened()).setItem(toItemKey(key), value);
    },
  };
}

/** unstorage cuts a key at `?`, takes `/` for `:` and refuses `.`, so what follows the mount is base64url. */
function toItemKey(key: DocumentKey): string {
  return `${key.slice(0, key.indexOf("/"))}:${Buffer.from(key).toString("base64url")}`;
}

/** Keeps documents in a store: atomic, and as durable as it. */
function storeDriver(store: Store): Driver & CacheDriver {
  const driver: CacheDriver & Pick<Driver, "name"> = {
    name: "postern",
    async getItem(key) {
      // A damaged document counts as absent, so its user fetches it again
      return (await DOCUMENTS.tryRead(store, key))?.value.text ?? null;
    },
    async setItem(key, text) {
      await store.batch([DOCUMENTS.put(key, { v: 1, text })]);
    },
  };
  // `Documents` calls getItem and setItem alone, and unstorage passes these two on
  return driver as Driver & CacheDriver;
}

async function sealedDriver(marks: CacheDriver, cache: Omit<SealedCacheParts, "marks">): Promise<Driver> {
  const { SealedCache } = await import("./sealed_cache.ts");
  const { getItem, setItem } = new SealedCache({ ...cache, marks });
  return { name: "postern sealed", getItem, setItem } as Driver; // unstorage calls these two alone
}
