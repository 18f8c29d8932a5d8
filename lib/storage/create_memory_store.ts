import { Buffer } from "node:buffer";
import { checkLimit, checkName, checkSeq, type EncodedWrite, encodeWrite } from "./encode_write.ts";
import { countTerms, createTextEngine, type IndexedText, type TermCounts } from "./memory_search.ts";
import { fieldOf, findIndexedField, scanOf } from "./indexed_fields.ts";
import { scopeWordsOf, searchTexts } from "./search_texts.ts";
import {
  createUnreadableRecords,
  forgetWritten,
  type ScanOptions,
  singleWrites,
  type Store,
  type Stored,
  type UnreadableRecords,
  type Write,
} from "./store.ts";
import { BestItems, cosineOf, type TextVector, toUnit } from "./vectors.ts";

interface Entry {
  readonly key: string;
  readonly version: number;
  readonly json: string;
  /** Order of first insertion */
  readonly order: number;
  readonly terms: TermCounts | undefined;
  readonly vector?: TextVector;
}

/** Creates a store that forgets everything with the process: for tests and `driver = "memory"`. Keeps the whole contract of Store. */
export function createMemoryStore(): Store {
  return new MemoryStore();
}

/** Methods are properties of the object itself, so that a copy of a store with one method replaced works. */
class MemoryStore implements Store {
  readonly #records = new MemoryRecords();
  #closed = false;
  readonly unreadable: UnreadableRecords = createUnreadableRecords();

  readonly get: Store["get"] = async (collection, key) => {
    this.#requireOpen();
    const entry = this.#records.entry(checkName("collection", collection), checkName("key", key));
    return entry === undefined ? undefined : toStored(entry);
  };

  readonly scan: Store["scan"] = async (collection, options) => {
    this.#requireOpen();
    const limit = checkLimit(options.limit);
    return this.#records.scan(collection, options).slice(0, limit).map(toStored);
  };

  readonly count: Store["count"] = async (collection, which = "") => {
    this.#requireOpen();
    return typeof which === "string"
      ? this.#records.withPrefix(collection, which).length
      : this.#records.scan(collection, { ...scanOf(collection, which), limit: 1 }).length;
  };

  readonly search: Store["search"] = async (collection, options) => {
    this.#requireOpen();
    const limit = checkLimit(options.limit);
    const found = this.#records.withPrefix(collection, options.prefix ?? "");
    const texts = found.filter(isText).sort((a, b) => a.order - b.order);
    return searchTexts(createTextEngine(this.#records.texts(), texts), options.query, limit).map(toStored);
  };

  readonly nearest: Store["nearest"] = async (collection, { vector: { model, values }, prefix = "", limit }) => {
    this.#requireOpen();
    const best = new BestItems<Entry>(checkLimit(limit));
    const unit = toUnit(values);
    for (const entry of this.#records.withPrefix(collection, prefix).sort((a, b) => a.order - b.order)) {
      const { vector } = entry;
      if (vector?.model !== model || vector.values.length !== unit.length) continue;
      best.add(entry, cosineOf(vector.values, unit));
    }
    return best.list().map(toStored);
  };

  readonly vectorless: Store["vectorless"] = async (collection, { model, dimensions, after, limit }) => {
    this.#requireOpen();
    checkLimit(limit);
    const page = this.#records.scan(collection, { order: "created", reverse: true, limit })
      .filter(({ order }) => after === undefined || order < after).slice(0, limit);
    const lacks = ({ terms, vector }: Entry) =>
      terms !== undefined &&
      (vector?.model !== model || (dimensions !== undefined && vector.values.length !== dimensions));
    return { records: page.filter(lacks).map(toStored), last: page.at(-1)?.order };
  };

  readonly read: Store["read"] = async (stream, options) => {
    this.#requireOpen();
    const from = checkSeq(options.afterSeq);
    const jsons = this.#records.stream(checkName("stream", stream));
    return jsons.slice(from, from + checkLimit(options.limit))
      .map((json, index) => ({ seq: from + index + 1, body: JSON.parse(json) as unknown }));
  };

  readonly takeOnce: Store["takeOnce"] = async (collection, key) => {
    this.#requireOpen();
    const entry = this.#records.take(checkName("collection", collection), checkName("key", key));
    this.unreadable.forget(collection, key);
    return entry === undefined ? undefined : toStored(entry);
  };

  readonly batch: Store["batch"] = (writes) => this.#write(writes);

  readonly #single = singleWrites(this.batch);

  readonly insertOnce: Store["insertOnce"] = this.#single.insertOnce;

  readonly putIfVersion: Store["putIfVersion"] = this.#single.putIfVersion;

  readonly append: Store["append"] = this.#single.append;

  readonly healthy: Store["healthy"] = () => !this.#closed;

  readonly close: Store["close"] = async () => {
    this.#closed = true;
  };

  async #write(writes: readonly Write[]): Promise<boolean> {
    this.#requireOpen();
    const isWritten = this.#records.applyAll(writes.map(encodeWrite));
    if (isWritten) forgetWritten(this.unreadable, writes);
    return isWritten;
  }

  #requireOpen(): void {
    if (this.#closed) throw new Error("Cannot use the store: it is closed");
  }
}

/** The records and streams of a memory store. */
class MemoryRecords {
  readonly #collections = new Map<string, Map<string, Entry>>();
  readonly #streams = new Map<string, string[]>();
  #inserted = 0;

  entry(collection: string, key: string): Entry | undefined {
    return this.#collections.get(collection)?.get(key);
  }

  stream(stream: string): readonly string[] {
    return this.#streams.get(stream) ?? [];
  }

  /** Returns every text of the store. */
  texts(): readonly (Entry & IndexedText)[] {
    return [...this.#collections.values()].flatMap((entries) => [...entries.values()].filter(isText));
  }

  withPrefix(collection: string, prefix: string): Entry[] {
    const entries = this.#collections.get(checkName("collection", collection));
    return entries === undefined ? [] : [...entries.values()].filter((entry) => entry.key.startsWith(prefix));
  }

  /** Returns all entries of a scan, however many `limit` asks for. */
  scan(collection: string, options: ScanOptions): readonly Entry[] {
    const byKey = (options.order ?? "key") === "key";
    const compare = byKey
      ? (a: Entry, b: Entry) => compareKeys(a.key, b.key)
      : (a: Entry, b: Entry) => a.order - b.order;
    const direction = options.reverse === true ? -1 : 1;
    let entries = this.withPrefix(collection, options.prefix ?? "").sort((a, b) => direction * compare(a, b));
    const { after, where } = options;
    if (where !== undefined) {
      const field = findIndexedField(collection, { ...options, where });
      entries = entries.filter(({ json }) => fieldOf(JSON.parse(json), field) === where.value);
    }
    if (after === undefined) return entries;
    if (byKey) return entries.filter((entry) => direction * compareKeys(entry.key, after) > 0);
    const order = this.entry(collection, after)?.order;
    return entries.filter((entry) => order !== undefined && direction * (entry.order - order) > 0);
  }

  take(collection: string, key: string): Entry | undefined {
    const entries = this.#entriesOf(collection);
    const entry = entries.get(key);
    entries.delete(key);
    return entry;
  }

  /** Applies all writes or none. Returns false when a precondition did not hold. */
  applyAll(writes: readonly EncodedWrite[]): boolean {
    const undo: (() => void)[] = [];
    for (const write of writes) {
      const takeBack = this.#apply(write);
      if (takeBack === undefined) {
        for (const step of undo.reverse()) step();
        return false;
      }
      undo.push(takeBack);
    }
    return true;
  }

  /** Applies a write and returns the function that takes it back. Undefined when its precondition did not hold. */
  #apply(write: EncodedWrite): (() => void) | undefined {
    switch (write.op) {
      case "put":
      case "insert":
      case "putIf":
        return this.#put(write);
      case "delete": {
        const earlier = this.take(write.collection, write.key);
        return () => void (earlier !== undefined && this.#entriesOf(write.collection).set(write.key, earlier));
      }
      case "vector": {
        const entries = this.#entriesOf(write.collection);
        const earlier = entries.get(write.key);
        if (earlier?.version !== write.version || !isText(earlier)) return undefined;
        entries.set(write.key, { ...earlier, vector: write.vector });
        return () => void entries.set(write.key, earlier);
      }
      case "check": {
        const isThere = (this.entry(write.collection, write.key)?.version ?? 0) === write.version;
        return isThere ? () => {} : undefined;
      }
      case "append": {
        const earlier = this.#streams.get(write.stream) ?? [];
        if (earlier.length !== write.expectedSeq) return undefined;
        for (const json of write.jsons) earlier.push(json);
        if (earlier.length > 0) this.#streams.set(write.stream, earlier);
        return () => {
          earlier.length = write.expectedSeq;
        };
      }
      case "drop": {
        const earlier = this.#streams.get(write.stream);
        this.#streams.delete(write.stream);
        return () => void (earlier !== undefined && this.#streams.set(write.stream, earlier));
      }
    }
  }

  #put(write: Extract<EncodedWrite, { readonly json: string }>): (() => void) | undefined {
    const { collection, key, json, text } = write;
    const entries = this.#entriesOf(collection);
    const earlier = entries.get(key);
    if (write.op === "insert" && earlier !== undefined) return undefined;
    if (write.op === "putIf" && earlier?.version !== write.version) return undefined;
    entries.set(key, {
      key,
      version: (earlier?.version ?? 0) + 1,
      json,
      order: earlier?.order ?? ++this.#inserted,
      terms: text === undefined ? undefined : countTerms(text, scopeWordsOf(collection, key).length),
    });
    return () => void (earlier === undefined ? entries.delete(key) : entries.set(key, earlier));
  }

  #entriesOf(collection: string): Map<string, Entry> {
    let entries = this.#collections.get(collection);
    if (entries === undefined) this.#collections.set(collection, entries = new Map());
    return entries;
  }
}

function isText(entry: Entry): entry is Entry & IndexedText {
  return entry.terms !== undefined;
}

function toStored(entry: Entry): Stored {
  return { key: entry.key, version: entry.version, body: JSON.parse(entry.json) as unknown };
}

/** By UTF-8 bytes, as databases compare; JavaScript's own order differs beyond the basic plane. */
function compareKeys(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
