import { Buffer } from "node:buffer";
import { checkLimit, checkName, checkSeq, type EncodedWrite, encodeWrite } from "./encode_write.ts";
import { createTextEngine, type IndexedText, toWordBag, type WordBag } from "./memory_search.ts";
import { fieldOf, findIndexedField } from "./indexed_fields.ts";
import { scopeWordsOf, searchTexts } from "./search_texts.ts";
import { createUnreadableRecords, forgetWritten, type Store, type Stored, type Write } from "./store.ts";

interface Entry {
  readonly key: string;
  readonly version: number;
  readonly json: string;
  /** Order of first insertion */
  readonly order: number;
  readonly words: WordBag | undefined;
}

/** Creates a store that forgets everything with the process: for tests and `driver = "memory"`. Keeps the whole contract of Store. */
export function createMemoryStore(): Store {
  const collections = new Map<string, Map<string, Entry>>();
  const streams = new Map<string, string[]>();
  let inserted = 0;
  let closed = false;
  const unreadable = createUnreadableRecords();

  function open(): void {
    if (closed) throw new Error("Cannot use the store: it is closed");
  }

  function entriesOf(collection: string): Map<string, Entry> {
    let entries = collections.get(collection);
    if (entries === undefined) collections.set(collection, entries = new Map());
    return entries;
  }

  /** Applies one write and returns what takes it back, or undefined when its precondition did not hold. */
  function apply(write: EncodedWrite): (() => void) | undefined {
    switch (write.op) {
      case "put":
      case "insert":
      case "putIf": {
        const entries = entriesOf(write.collection);
        const earlier = entries.get(write.key);
        if (write.op === "insert" && earlier !== undefined) return undefined;
        if (write.op === "putIf" && earlier?.version !== write.version) return undefined;
        entries.set(write.key, {
          key: write.key,
          version: (earlier?.version ?? 0) + 1,
          json: write.json,
          order: earlier?.order ?? ++inserted,
          words: write.text === undefined
            ? undefined
            : toWordBag(write.text, scopeWordsOf(write.collection, write.key).length),
        });
        return () => void (earlier === undefined ? entries.delete(write.key) : entries.set(write.key, earlier));
      }
      case "delete": {
        const entries = entriesOf(write.collection);
        const earlier = entries.get(write.key);
        entries.delete(write.key);
        return () => void (earlier !== undefined && entries.set(write.key, earlier));
      }
      case "append": {
        const earlier = streams.get(write.stream) ?? [];
        if (earlier.length !== write.expectedSeq) return undefined;
        for (const json of write.jsons) earlier.push(json);
        if (earlier.length > 0) streams.set(write.stream, earlier);
        return () => {
          earlier.length = write.expectedSeq;
        };
      }
      case "drop": {
        const earlier = streams.get(write.stream);
        streams.delete(write.stream);
        return () => void (earlier !== undefined && streams.set(write.stream, earlier));
      }
    }
  }

  function applyAll(writes: readonly Write[]): boolean {
    const undo: (() => void)[] = [];
    for (const write of writes.map(encodeWrite)) {
      const takeBack = apply(write);
      if (takeBack === undefined) {
        for (const step of undo.reverse()) step();
        return false;
      }
      undo.push(takeBack);
    }
    forgetWritten(unreadable, writes);
    return true;
  }

  function withPrefix(collection: string, prefix: string): Entry[] {
    const entries = collections.get(checkName("collection", collection));
    return entries === undefined ? [] : [...entries.values()].filter((entry) => entry.key.startsWith(prefix));
  }

  return {
    async get(collection, key) {
      open();
      checkName("collection", collection);
      checkName("key", key);
      const entry = collections.get(collection)?.get(key);
      return entry === undefined ? undefined : toStored(entry);
    },
    async scan(collection, options) {
      open();
      const limit = checkLimit(options.limit);
      const byKey = (options.order ?? "key") === "key";
      const compare = byKey
        ? (a: Entry, b: Entry) => compareKeys(a.key, b.key)
        : (a: Entry, b: Entry) => a.order - b.order;
      const direction = options.reverse === true ? -1 : 1;
      let entries = withPrefix(collection, options.prefix ?? "").sort((a, b) => direction * compare(a, b));
      const { after, where } = options;
      if (where !== undefined) {
        const field = findIndexedField(collection, { ...options, where });
        entries = entries.filter(({ json }) => fieldOf(JSON.parse(json), field) === where.value);
      }
      if (after !== undefined) {
        const order = collections.get(collection)?.get(after)?.order;
        entries = entries.filter((entry) =>
          byKey
            ? direction * compareKeys(entry.key, after) > 0
            : order !== undefined && direction * (entry.order - order) > 0
        );
      }
      return entries.slice(0, limit).map(toStored);
    },
    async count(collection, prefix = "") {
      open();
      return withPrefix(collection, prefix).length;
    },
    async search(collection, options) {
      open();
      const limit = checkLimit(options.limit);
      const texts = [...collections.values()].flatMap((entries) => [...entries.values()].filter(isText));
      const found = withPrefix(collection, options.prefix ?? "").filter(isText).sort((a, b) => a.order - b.order);
      return searchTexts(createTextEngine(texts, found), options.query, limit).map(toStored);
    },
    async takeOnce(collection, key) {
      open();
      const entries = entriesOf(checkName("collection", collection));
      const entry = entries.get(checkName("key", key));
      entries.delete(key);
      unreadable.forget(collection, key);
      return entry === undefined ? undefined : toStored(entry);
    },
    async insertOnce(collection, key, body) {
      open();
      return applyAll([{ op: "insert", collection, key, body }]);
    },
    async putIfVersion(collection, key, expectedVersion, body) {
      open();
      return applyAll([
        expectedVersion === 0
          ? { op: "insert", collection, key, body }
          : { op: "putIf", collection, key, version: expectedVersion, body },
      ]);
    },
    async append(stream, expectedSeq, records) {
      open();
      return applyAll([{ op: "append", stream, expectedSeq, records }]);
    },
    async read(stream, options) {
      open();
      const from = checkSeq(options.afterSeq);
      const jsons = streams.get(checkName("stream", stream)) ?? [];
      return jsons.slice(from, from + checkLimit(options.limit))
        .map((json, index) => ({ seq: from + index + 1, body: JSON.parse(json) as unknown }));
    },
    async batch(writes) {
      open();
      return applyAll(writes);
    },
    healthy: () => !closed,
    unreadable,
    async close() {
      closed = true;
    },
  };
}

function isText(entry: Entry): entry is Entry & IndexedText {
  return entry.words !== undefined;
}

function toStored(entry: Entry): Stored {
  return { key: entry.key, version: entry.version, body: JSON.parse(entry.json) as unknown };
}

/** By UTF-8 bytes, as databases compare; JavaScript's own order differs beyond the basic plane. */
function compareKeys(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
