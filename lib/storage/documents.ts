import { Buffer } from "node:buffer";
import type { Driver, Storage } from "unstorage";
import * as v from "valibot";
import { checkName } from "./encode_write.ts";
import { readable, scanAll } from "./read_records.ts";
import type { Store } from "./store.ts";

/** Documents without an invariant, as a cache: the last writer wins. What they hold is outside data to whoever reads it. */
export interface Documents {
  /** @returns undefined when there is none */
  get(key: string): Promise<unknown>;
  /** @param value any JSON value. @throws {TypeError} for anything else */
  set(key: string, value: unknown): Promise<void>;
  remove(key: string): Promise<void>;
  /** Sorted */
  keys(): Promise<readonly string[]>;
}

/** By key, in base64url. */
export const DOCUMENTS = "documents";
const bodySchema = v.object({ v: v.literal(1), text: v.string() });
const wrapperSchema = v.object({ json: v.string() });

/** @throws {v.ValiError} for a body that no version wrote */
export function parseDocument(body: unknown): v.InferOutput<typeof bodySchema> {
  return v.parse(bodySchema, body);
}

/**
 * Documents through unstorage, kept by a store: atomic, and as durable as it.
 *
 * unstorage cuts keys at `?`, joins `/` with `:` refuses `.` and guesses types from texts, so keys are base64url and a value is
 * wrapped in an object as its JSON text: every key is its own and every value comes back as it was. Keys: 1-1536 bytes.
 */
export function createDocuments(options: { readonly store: Store }): Documents {
  let opened: Promise<Storage> | undefined;
  // Loaded with the first document: a gateway that keeps none starts without it
  const open = () =>
    opened ??= import("unstorage").then(({ createStorage }) => createStorage({ driver: storeDriver(options.store) }));
  return {
    async get(key) {
      const name = encode(key);
      const found = await (await open()).getItem<unknown>(name);
      return found === null ? undefined : JSON.parse(v.parse(wrapperSchema, found).json);
    },
    async set(key, value) {
      const json: string | undefined = JSON.stringify(value);
      if (json === undefined) {
        throw new TypeError(`Cannot keep a document of type ${typeof value}: it is not a JSON value`);
      }
      const name = encode(key);
      await (await open()).setItem(name, { json });
    },
    async remove(key) {
      const name = encode(key);
      await (await open()).removeItem(name);
    },
    keys: async () => (await (await open()).getKeys()).map((key) => Buffer.from(key, "base64url").toString()).sort(),
  };
}

function encode(key: string): string {
  return Buffer.from(checkName("key", key)).toString("base64url");
}

function storeDriver(store: Store): Driver {
  return {
    name: "postern",
    hasItem: async (key) => (await store.get(DOCUMENTS, key)) !== undefined,
    async getItem(key) {
      const found = await store.get(DOCUMENTS, key);
      // A cache: what cannot be read is fetched again
      return readable(store, DOCUMENTS, found === undefined ? [] : [found], parseDocument)[0]?.value.text ?? null;
    },
    async setItem(key, text) {
      await store.batch([{ op: "put", collection: DOCUMENTS, key, body: { v: 1, text } }]);
    },
    async removeItem(key) {
      await store.batch([{ op: "delete", collection: DOCUMENTS, key }]);
    },
    async getKeys() {
      return (await Array.fromAsync(scanAll(store, DOCUMENTS))).map(({ key }) => key);
    },
  };
}
