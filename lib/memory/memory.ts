import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import { readable, readRecord, readRecords, scanAll } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";

/** A memory: one value under a namespace and a key. Times are ISO 8601. */
export interface MemoryRecord {
  readonly namespace: string;
  readonly key: string;
  readonly value: string;
  readonly tags: readonly string[];
  readonly created_at: string;
  readonly updated_at: string;
}

const bodySchema = v.object({
  v: v.literal(1),
  namespace: v.string(),
  key: v.string(),
  value: v.string(),
  tags: v.array(v.string()),
  created_at: v.string(),
  updated_at: v.string(),
});

/**
 * Parses a stored body into the newest form of a memory. Older versions are upcast here and nowhere else.
 * @throws {v.ValiError} for a body that no version wrote
 */
export function parseMemoryRecord(body: unknown): MemoryRecord {
  const { v: _version, ...record } = v.parse(bodySchema, body);
  return record;
}

/** Returns the body to store, in the newest version. */
export function toMemoryBody(record: MemoryRecord): v.InferOutput<typeof bodySchema> {
  return { v: 1, ...record, tags: [...record.tags] };
}

/** Namespace of memories that name none. */
export const DEFAULT_NAMESPACE = "default";

/** Bounds of one memory and of all of them. */
export const MEMORY_LIMITS = {
  keyCharacters: 256,
  valueBytes: 64 * 1024,
  tags: 20,
  tagCharacters: 64,
  /** Memories in all namespaces together */
  records: 100_000,
  /** Memories that one recall returns */
  recall: 100,
} as const;

/** A memory to store. */
export interface StoreMemoryInput {
  /** 1-256 characters */
  readonly key: string;
  /** At most 64 KiB of UTF-8 */
  readonly value: string;
  /** 1-64 of `[A-Za-z0-9_.-]`. Default `default` */
  readonly namespace?: string | undefined;
  /** At most 20, each 1-64 characters. Default none */
  readonly tags?: readonly string[] | undefined;
}

/** A search for memories: by key, by words, or the newest. */
export interface RecallInput {
  /** Plain words, searched in key, value and tags */
  readonly query?: string | undefined;
  /** Exactly this key */
  readonly key?: string | undefined;
  /** Default `default` */
  readonly namespace?: string | undefined;
  /** 1-100. Default 10 */
  readonly limit?: number | undefined;
}

/** A page of memories for people to look through. */
export interface MemoryListInput {
  /** Default: all of them */
  readonly namespace?: string | undefined;
  /** Plain words, searched in key, value and tags: the best come first, and there is no second page */
  readonly query?: string | undefined;
  /** Goes on after this place, the `place` of the last record of the page before */
  readonly after?: string | undefined;
  /** 1-1000 */
  readonly limit: number;
}

/**
 * Memory that the agent keeps between conversations.
 *
 * Every method throws ToolError `invalid_input` for a value out of bounds, naming the field.
 */
export interface Memory {
  /** Keeps a value under its key, in place of an earlier one. @throws {ToolError} `memory_full` */
  store(input: StoreMemoryInput): Promise<{ readonly record: MemoryRecord; readonly replaced: boolean }>;
  /** By key: that one or none. By query: ranked, best first. `key` wins over `query`. With neither: the newest first */
  recall(input: RecallInput): Promise<readonly MemoryRecord[]>;
  /** Returns a page of what is kept, newest first, and the place after which the next page begins; undefined when there is none. */
  list(
    input: MemoryListInput,
  ): Promise<
    { readonly records: readonly MemoryRecord[]; readonly hasMore: boolean; readonly last: string | undefined }
  >;
  /** Forgets all memories, or all memories of a namespace. @returns how many there were */
  forgetAll(input: { readonly namespace?: string | undefined }): Promise<number>;
  /** @returns false when there is no such key */
  forget(input: { readonly key: string; readonly namespace?: string | undefined }): Promise<boolean>;
}

/** Collection of the memories. The key is `namespace/key`. */
export const MEMORY = "memory";
const DEFAULT_RECALL = 10;
const MAX_ATTEMPTS = 20;

/** Creates the memory over a store, one record for each namespace and key. */
export function createMemory(options: { readonly store: Store; readonly clock: Clock }): Memory {
  const { store, clock } = options;
  const room = createRoom(() => store.count(MEMORY));

  return {
    async store(input) {
      const namespace = checkNamespace(input.namespace);
      const key = checkKey(input.key);
      const value = checkValue(input.value);
      const tags = checkTags(input.tags ?? []);
      const at = storeKey(namespace, key);
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        const earlier = await store.get(MEMORY, at);
        if (earlier === undefined && !await room.take()) {
          throw new ToolError(
            "memory_full",
            `Cannot store "${key}": memory holds ${MEMORY_LIMITS.records} records already; forget one first`,
          );
        }
        const now = new Date(clock.now()).toISOString();
        // A record that cannot be read is replaced
        const [before] = readable(store, MEMORY, earlier === undefined ? [] : [earlier], parseMemoryRecord);
        const createdAt = before?.value.created_at ?? now;
        const record: MemoryRecord = { namespace, key, value, tags, created_at: createdAt, updated_at: now };
        const content = { collection: MEMORY, key: at, body: toMemoryBody(record), text: searchText(record) };
        const write: Write = earlier === undefined
          ? { op: "insert", ...content }
          : { op: "putIf", version: earlier.version, ...content };
        const written = await store.batch([write]).finally(() => earlier === undefined && room.settled());
        if (written) return { record, replaced: earlier !== undefined };
      }
      throw new ToolError("memory_busy", `Cannot store "${key}": it is being changed by others; try again`);
    },

    async recall(input) {
      const namespace = checkNamespace(input.namespace);
      const limit = checkLimit(input.limit ?? DEFAULT_RECALL);
      if (input.key !== undefined) {
        const found = await readRecord(store, MEMORY, storeKey(namespace, checkKey(input.key)), parseMemoryRecord);
        return found === undefined ? [] : [found.value];
      }
      const prefix = storeKey(namespace, "");
      const found = input.query === undefined || input.query.trim() === ""
        ? await store.scan(MEMORY, { prefix, order: "created", reverse: true, limit })
        : await store.search(MEMORY, { query: input.query, prefix, limit });
      return readable(store, MEMORY, found, parseMemoryRecord).map(({ value }) => value);
    },

    async list({ namespace, query = "", after, limit }) {
      const prefix = namespace === undefined ? {} : { prefix: storeKey(checkNamespace(namespace), "") };
      if (query.trim() !== "") {
        const found = await store.search(MEMORY, { query, limit, ...prefix });
        const records = readable(store, MEMORY, found, parseMemoryRecord).map(({ value }) => value);
        return { records, hasMore: false, last: found.at(-1)?.key };
      }
      const options = { order: "created", reverse: true, after, ...prefix } as const;
      const records: MemoryRecord[] = [];
      let last: string | undefined;
      for await (const { key, value } of readRecords(store, MEMORY, parseMemoryRecord, options)) {
        if (records.length === limit) return { records, hasMore: true, last };
        records.push(value);
        last = key;
      }
      return { records, hasMore: false, last };
    },

    async forgetAll({ namespace }) {
      const prefix = namespace === undefined ? {} : { prefix: storeKey(checkNamespace(namespace), "") };
      let forgotten = 0;
      for await (const { key } of scanAll(store, MEMORY, prefix)) {
        if (await store.takeOnce(MEMORY, key) !== undefined) forgotten++;
      }
      return forgotten;
    },

    async forget(input) {
      const at = storeKey(checkNamespace(input.namespace), checkKey(input.key));
      return (await store.takeOnce(MEMORY, at)) !== undefined;
    },
  };
}

/**
 * Creates the count of free places. Counting all records takes milliseconds, so it happens only when the places of the count before
 * are used up. It then also finds the places of memories that were forgotten meanwhile.
 */
function createRoom(count: () => Promise<number>) {
  let free = 0;
  let beingWritten = 0;
  let counting: Promise<void> | undefined;
  return {
    async take(): Promise<boolean> {
      if (free <= 0) {
        counting ??= count().then((records) => void (free = MEMORY_LIMITS.records - records - beingWritten))
          .finally(() => void (counting = undefined));
        await counting;
      }
      if (free <= 0) return false;
      free--;
      beingWritten++;
      return true;
    },
    settled: () => void beingWritten--,
  };
}

/** A namespace has no slash, so the first one ends it and no two pairs share a key. */
function storeKey(namespace: string, key: string): string {
  return `${namespace}/${key}`;
}

function searchText(record: MemoryRecord): string {
  return [record.key, ...record.tags, record.value].join("\n");
}

function checkNamespace(namespace: string = DEFAULT_NAMESPACE): string {
  if (/^[A-Za-z0-9_.-]{1,64}$/.test(namespace)) return namespace;
  throw invalid("namespace", "it must be 1-64 characters of A-Z, a-z, 0-9, _, . and -");
}

function checkKey(key: string): string {
  if (key.length < 1 || key.length > MEMORY_LIMITS.keyCharacters) {
    throw invalid("key", `it must be 1-${MEMORY_LIMITS.keyCharacters} characters, and has ${key.length}`);
  }
  if (key.includes("\0") || !key.isWellFormed()) throw invalid("key", "it must be valid Unicode without NUL");
  return key;
}

function checkValue(value: string): string {
  const bytes = Buffer.byteLength(value);
  if (bytes <= MEMORY_LIMITS.valueBytes) return value;
  throw invalid("value", `it must be at most ${MEMORY_LIMITS.valueBytes} bytes, and has ${bytes}`);
}

function checkTags(tags: readonly string[]): readonly string[] {
  if (tags.length > MEMORY_LIMITS.tags) throw invalid("tags", `there must be at most ${MEMORY_LIMITS.tags}`);
  for (const tag of tags) {
    if (tag.length < 1 || tag.length > MEMORY_LIMITS.tagCharacters) {
      throw invalid("tags", `each must be 1-${MEMORY_LIMITS.tagCharacters} characters`);
    }
  }
  return [...new Set(tags)];
}

function checkLimit(limit: number): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= MEMORY_LIMITS.recall) return limit;
  throw invalid("limit", `it must be a whole number of 1-${MEMORY_LIMITS.recall}`);
}

function invalid(field: string, reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot use "${field}": ${reason}`);
}
