import type { WhereField } from "./indexed_fields.ts";
import type { TextVector } from "./vectors.ts";

/**
 * The store contract: a few named atomic operations, async in type, one call = one transaction.
 * Every stored body is a JSON value with a version of its own. The wing that owns the collection parses and upcasts it.
 * Source: docs/design/storage.md "The store"
 */

/** A record as it is kept. `version` counts its writes from 1. */
export interface Stored {
  readonly key: string;
  readonly version: number;
  /** undefined when the stored text is not JSON: no parser takes it, so one damaged record never hides the others of a page */
  readonly body: unknown;
}

/** Records that a scan returns, and their order. */
export interface ScanOptions {
  /** Only keys that start with this */
  readonly prefix?: string;
  /** `key`: by key bytes; `created`: by the order of first insertion. Default `key` */
  readonly order?: "key" | "created";
  /** Last first. Default false */
  readonly reverse?: boolean;
  /** Only records whose field has this value: a field of indexed_fields.ts, in the order it names, without `prefix` */
  readonly where?: WhereField | undefined;
  /** Go on after this key (which need not exist any more when the order is `key`) */
  readonly after?: string;
  /** 1-1000 records */
  readonly limit: number;
}

/** A search for words in the texts of a collection. */
export interface TextSearch {
  /** Plain words; query syntax of the engine is quoted away */
  readonly query: string;
  readonly prefix?: string;
  /** 1-1000 records */
  readonly limit: number;
}

/** A search for the records whose vectors are nearest to one. */
export interface VectorSearch {
  /** Records with a vector of this model and length are compared, by the cosine of the angle */
  readonly vector: TextVector;
  readonly prefix?: string;
  /** 1-1000 records */
  readonly limit: number;
}

/** A look for records that have a text and no vector. */
export interface VectorlessScan {
  /** Model whose vectors count */
  readonly model: string;
  /** Length of the vectors that count. Default: any */
  readonly dimensions?: number | undefined;
  /** Goes on after this place, the `last` of the page before. Default: from the newest record on */
  readonly after?: number | undefined;
  /** 1-1000 records to look at */
  readonly limit: number;
}

/** Records without a vector among those that were looked at. */
export interface VectorlessPage {
  readonly records: readonly Stored[];
  /** Place of the last record that was looked at, in the order of insertion. Undefined when there was none */
  readonly last: number | undefined;
}

/** A record of an append-only stream. `seq` counts from 1 without a gap. */
export interface StreamRecord {
  readonly seq: number;
  /** undefined when the stored text is not JSON */
  readonly body: unknown;
}

/** A write of a batch. `text` makes the record findable by `search`. */
export type Write =
  | {
    readonly op: "put";
    readonly collection: string;
    readonly key: string;
    readonly body: unknown;
    readonly text?: string;
  }
  /** Precondition: the key is absent */
  | {
    readonly op: "insert";
    readonly collection: string;
    readonly key: string;
    readonly body: unknown;
    readonly text?: string;
  }
  /** Precondition: the record has exactly this version */
  | {
    readonly op: "putIf";
    readonly collection: string;
    readonly key: string;
    readonly version: number;
    readonly body: unknown;
    readonly text?: string;
  }
  | { readonly op: "delete"; readonly collection: string; readonly key: string }
  /** Keeps a vector with the record until its next write. Precondition: the record has a text and exactly this version, which stays */
  | {
    readonly op: "vector";
    readonly collection: string;
    readonly key: string;
    readonly version: number;
    readonly vector: TextVector;
  }
  /**
   * Writes nothing. Precondition: the record has exactly this version (0: the key is absent). No other batch changes the record before
   * this batch is written.
   */
  | { readonly op: "check"; readonly collection: string; readonly key: string; readonly version: number }
  /** Precondition: the stream's last seq is `expectedSeq` (0: empty) */
  | {
    readonly op: "append";
    readonly stream: string;
    readonly expectedSeq: number;
    readonly records: readonly unknown[];
  }
  /** Forgets a whole stream */
  | { readonly op: "drop"; readonly stream: string };

/** The place where records are (docs/design/storage.md "The store"). */
export interface Store {
  get(collection: string, key: string): Promise<Stored | undefined>;
  scan(collection: string, options: ScanOptions): Promise<readonly Stored[]>;
  /** Counts the records with this prefix, or those whose field has this value */
  count(collection: string, which?: string | WhereField): Promise<number>;
  /** Ranked full text, best first, over records written with `text` */
  search(collection: string, options: TextSearch): Promise<readonly Stored[]>;
  /**
   * Returns the records with the nearest vectors, nearest first. Looks at all of them. `postgres` compares exactly those alone whose signs are
   * nearest, some thousand at the usual lengths
   */
  nearest(collection: string, options: VectorSearch): Promise<readonly Stored[]>;
  /** Looks for records with a text and without a vector, newest first */
  vectorless(collection: string, options: VectorlessScan): Promise<VectorlessPage>;
  /** Removes and returns the record; of many callers exactly one gets it */
  takeOnce(collection: string, key: string): Promise<Stored | undefined>;
  /** @returns false when the key exists */
  insertOnce(collection: string, key: string, body: unknown): Promise<boolean>;
  /** @param expectedVersion 0 means absent. @returns false when the version is another */
  putIfVersion(collection: string, key: string, expectedVersion: number, body: unknown): Promise<boolean>;
  /** @returns false when the stream's last seq is not `expectedSeq` */
  append(stream: string, expectedSeq: number, records: readonly unknown[]): Promise<boolean>;
  read(
    stream: string,
    options: { readonly afterSeq: number; readonly limit: number },
  ): Promise<readonly StreamRecord[]>;
  /** All or nothing, in order. Resolves when it is durable. @returns false when a precondition did not hold and nothing was written */
  batch(writes: readonly Write[]): Promise<boolean>;
  /** Returns whether the last write reached the disk. When false, `/health` says `degraded` */
  healthy(): boolean;
  /** Records that readers found to be damaged (read_records.ts) */
  readonly unreadable: UnreadableRecords;
  close(): Promise<void>;
}

/** Returns the operations that are a batch of one write. */
export function singleWrites(batch: Store["batch"]): Pick<Store, "insertOnce" | "putIfVersion" | "append"> {
  return {
    insertOnce: (collection, key, body) => batch([{ op: "insert", collection, key, body }]),
    putIfVersion: (collection, key, version, body) =>
      batch([
        version === 0 ? { op: "insert", collection, key, body } : { op: "putIf", collection, key, version, body },
      ]),
    append: (stream, expectedSeq, records) => batch([{ op: "append", stream, expectedSeq, records }]),
  };
}

/** A record that was set aside, since no reader can use it. */
export interface UnreadableRecord {
  /** Collection of a record, name of a stream */
  readonly collection: string;
  /** Key of a record, position in a stream */
  readonly key: string;
  /** Reason why the record cannot be read. Never holds a part of its content */
  readonly reason: string;
}

/** The records of a store that were found unreadable since it was opened, until each is written or deleted. */
export interface UnreadableRecords {
  add(record: UnreadableRecord): void;
  /** Call after the record was written or deleted. Without `key`: all of a stream that was dropped */
  forget(collection: string, key?: string): void;
  /** In the order in which they were found, at most 1,000 */
  list(): readonly UnreadableRecord[];
  count(): number;
  /** Tells of each record that is found, those found before first */
  watch(listener: (record: UnreadableRecord) => void): void;
}

/** Records that the list holds. It is for people, and a thousand say enough. */
const MAX_KEPT = 1_000;

/** Creates an empty list of records that were set aside. */
export function createUnreadableRecords(): UnreadableRecords {
  const found = new Map<string, UnreadableRecord>();
  const listeners: ((record: UnreadableRecord) => void)[] = [];
  const placeOf = (collection: string, key: string) => JSON.stringify([collection, key]);
  return {
    add(record) {
      const place = placeOf(record.collection, record.key);
      if (found.has(place) || found.size >= MAX_KEPT) return;
      found.set(place, record);
      for (const listener of listeners) listener(record);
    },
    forget(collection, key) {
      if (key !== undefined) found.delete(placeOf(collection, key));
      else for (const [place, record] of found) if (record.collection === collection) found.delete(place);
    },
    list: () => [...found.values()],
    count: () => found.size,
    watch(listener) {
      listeners.push(listener);
      for (const record of found.values()) listener(record);
    },
  };
}

/** Forgets the records that these writes, which are done, have replaced or removed. */
export function forgetWritten(unreadable: UnreadableRecords, writes: readonly Write[]): void {
  if (unreadable.count() === 0) return;
  for (const write of writes) {
    if (write.op === "drop") unreadable.forget(write.stream);
    else if (write.op !== "append" && write.op !== "vector" && write.op !== "check") {
      unreadable.forget(write.collection, write.key);
    }
  }
}
