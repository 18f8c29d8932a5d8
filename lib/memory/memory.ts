import { Buffer } from "node:buffer";
import * as v from "valibot";
import { memoryEntries, type MemoryView } from "../base/records/memory.ts";
import { storedObject, unknownFieldsOf } from "../base/records/stored_object.ts";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import { type Taint, taintField, UNTAINTED } from "../base/taint.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store, Stored, TextSearch } from "../storage/store.ts";
import type { MemoryVectors } from "./memory_vectors.ts";

/** A memory: one value under a namespace and a key. */
export type MemoryRecord = Readonly<Omit<MemoryView, "object" | "tags">> & { readonly tags: readonly string[] };

const bodySchema = storedObject({ v: v.literal(1), ...memoryEntries });

/** Collection of the memories. The key is `namespace/key`. Older versions are upcast here and nowhere else. */
export const MEMORY = new Collection(
  "memory",
  v.pipe(bodySchema, v.transform(({ v: _version, ...record }): MemoryRecord => record)),
);

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
  /** Outside content that it is made from. Default: none */
  readonly taint?: Taint | undefined;
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

const DEFAULT_RECALL = 10;
const MAX_ATTEMPTS = 20;

/** Records of each of the two searches that one ranking is made of. */
const FUSED = 50;
/** Constant of reciprocal rank fusion. Source: Cormack, Clarke and Buettcher, SIGIR 2009 */
const RANK_CONSTANT = 60;

/**
 * Memory that the agent keeps between conversations.
 *
 * Every method throws ToolError `invalid_input` for a value out of bounds, naming the field.
 */
export class Memory {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #vectors: MemoryVectors | undefined;
  readonly #room: ReturnType<typeof createRoom>;

  constructor({ store, clock, vectors }: {
    readonly store: Store;
    readonly clock: Clock;
    /** Vectors by which memories are found too. Default: none */
    readonly vectors?: MemoryVectors | undefined;
  }) {
    this.#store = store;
    this.#clock = clock;
    this.#vectors = vectors;
    this.#room = createRoom(() => store.count(MEMORY.name));
  }

  /** Keeps a value under its key, in place of an earlier one. @throws {ToolError} `memory_full` */
  async store(input: StoreMemoryInput): Promise<{ readonly record: MemoryRecord; readonly replaced: boolean }> {
    const namespace = checkNamespace(input.namespace);
    const key = checkKey(input.key);
    const value = checkValue(input.value);
    const tags = checkTags(input.tags ?? []);
    const at = storeKey(namespace, key);
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      // A record that cannot be read is replaced
      const { value: before, version } = await MEMORY.readForChange(this.#store, at);
      if (version === 0 && !await this.#room.take()) {
        throw new ToolError(
          "memory_full",
          `Cannot store "${key}": memory holds ${MEMORY_LIMITS.records} records already; forget one first`,
        );
      }
      const now = new Date(this.#clock.now()).toISOString();
      const times = { created_at: before?.created_at ?? now, updated_at: now };
      const record = { namespace, key, value, tags, ...times, ...taintField(input.taint ?? UNTAINTED) };
      const body = { ...unknownFieldsOf(before), ...toMemoryBody(record) };
      const write = { ...MEMORY.putOver(at, version, body), text: memoryText(record) };
      const written = await this.#store.batch([write]).finally(() => version === 0 && this.#room.settled());
      if (!written) continue;
      this.#vectors?.stored(at);
      return { record, replaced: version > 0 };
    }
    throw new ToolError("memory_busy", `Cannot store "${key}": it is being changed by others; try again`);
  }

  /** Returns the memory of a key, or the memories of a query, best first, or the newest without either. `key` wins over `query` */
  async recall(input: RecallInput): Promise<readonly MemoryRecord[]> {
    const namespace = checkNamespace(input.namespace);
    const limit = checkLimit(input.limit ?? DEFAULT_RECALL);
    if (input.key !== undefined) {
      const at = storeKey(namespace, checkKey(input.key));
      const found = await MEMORY.read(this.#store, at);
      return found === undefined ? [] : [found.value];
    }
    const prefix = storeKey(namespace, "");
    const found = input.query === undefined || input.query.trim() === ""
      ? await this.#store.scan(MEMORY.name, { prefix, order: "created", reverse: true, limit })
      : await this.#search({ query: input.query, prefix, limit });
    return this.#readable(found);
  }

  /** Returns a page of what is kept, newest first, and the place after which the next page begins; undefined when there is none. */
  async list({ namespace, query = "", after, limit }: MemoryListInput): Promise<
    { readonly records: readonly MemoryRecord[]; readonly hasMore: boolean; readonly last: string | undefined }
  > {
    const prefix = prefixOf(namespace);
    if (query.trim() !== "") {
      const found = await this.#search({ query, limit, ...prefix });
      return { records: this.#readable(found), hasMore: false, last: found.at(-1)?.key };
    }
    const options = { order: "created", reverse: true, after, ...prefix } as const;
    const records: MemoryRecord[] = [];
    let last: string | undefined;
    for await (const { key, value } of MEMORY.all(this.#store, options)) {
      if (records.length === limit) return { records, hasMore: true, last };
      records.push(value);
      last = key;
    }
    return { records, hasMore: false, last };
  }

  /** Forgets all memories, or all memories of a namespace. @returns how many there were */
  async forgetAll({ namespace }: { readonly namespace?: string | undefined }): Promise<number> {
    let forgotten = 0;
    for await (const key of MEMORY.keys(this.#store, prefixOf(namespace))) {
      if (await this.#store.takeOnce(MEMORY.name, key) !== undefined) forgotten++;
    }
    return forgotten;
  }

  /** Forgets a memory. @returns false when there is no such key */
  async forget(input: { readonly key: string; readonly namespace?: string | undefined }): Promise<boolean> {
    const at = storeKey(checkNamespace(input.namespace), checkKey(input.key));
    return (await this.#store.takeOnce(MEMORY.name, at)) !== undefined;
  }

  /** Searches by words, and by meaning where an embedding model is in use. */
  async #search({ query, limit, ...prefix }: TextSearch): Promise<readonly Stored[]> {
    const near = this.#vectors?.nearest(query, { ...prefix, limit: FUSED });
    if (near === undefined) return await this.#store.search(MEMORY.name, { query, limit, ...prefix });
    const byWords = await this.#store.search(MEMORY.name, { query, limit: Math.max(limit, FUSED), ...prefix });
    const byMeaning = await near;
    return [
      ...new Map([...fuse([byWords.slice(0, FUSED), byMeaning]), ...byWords].map((one) => [one.key, one])).values(),
    ]
      .slice(0, limit);
  }

  /** Returns the memories of a page that can be read. The others are set aside. */
  #readable(page: readonly Stored[]): readonly MemoryRecord[] {
    return MEMORY.readable(this.#store, page).map(({ value }) => value);
  }
}

/** Returns the part of a scan or search that names a namespace. Empty without one. */
function prefixOf(namespace: string | undefined): { readonly prefix?: string } {
  return namespace === undefined ? {} : { prefix: storeKey(checkNamespace(namespace), "") };
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

/** Joins lists by reciprocal rank: the higher a record is in each list, the higher in the result. */
function fuse(lists: readonly (readonly Stored[])[]): readonly Stored[] {
  const found = new Map<string, { readonly record: Stored; score: number }>();
  for (const list of lists) {
    for (const [place, record] of list.entries()) {
      const known = found.get(record.key) ?? { record, score: 0 };
      known.score += 1 / (RANK_CONSTANT + place + 1);
      found.set(record.key, known);
    }
  }
  return [...found.values()].sort((a, b) => b.score - a.score).map(({ record }) => record);
}

/** Returns the text that a memory is found by. */
export function memoryText(record: Pick<MemoryRecord, "key" | "tags" | "value">): string {
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
