import type { WhereField } from "./indexed_fields.ts";
import type { UnreadableRecords } from "./unreadable_records.ts";

/**
 * The store contract: a few named atomic operations, async in type, one call = one transaction.
 * Every persisted body is a JSON value with a version of its own, parsed and upcast by the room that owns the collection.
 * Source: docs/design/storage.md "The store"
 */

/** A record as it is kept. `version` counts its writes from 1. */
export interface Stored {
  readonly key: string;
  readonly version: number;
  /** undefined when the stored text is not JSON: no parser takes it, so one damaged record never hides the others of a page */
  readonly body: unknown;
}

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

export interface SearchOptions {
  /** Plain words; query syntax of the engine is quoted away */
  readonly query: string;
  readonly prefix?: string;
  /** 1-1000 records */
  readonly limit: number;
}

/** A record of an append-only stream. `seq` counts from 1 without a gap. */
export interface StreamRecord {
  readonly seq: number;
  /** undefined when the stored text is not JSON */
  readonly body: unknown;
}

/** One write of a batch. `text` makes the record findable by `search`. */
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
  /** Precondition: the stream's last seq is `expectedSeq` (0: empty) */
  | {
    readonly op: "append";
    readonly stream: string;
    readonly expectedSeq: number;
    readonly records: readonly unknown[];
  }
  /** Forgets a whole stream */
  | { readonly op: "drop"; readonly stream: string };

export interface Store {
  get(collection: string, key: string): Promise<Stored | undefined>;
  scan(collection: string, options: ScanOptions): Promise<readonly Stored[]>;
  count(collection: string, prefix?: string): Promise<number>;
  /** Ranked full text, best first, over records written with `text` */
  search(collection: string, options: SearchOptions): Promise<readonly Stored[]>;
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
  /** Whether the last write reached the disk; false makes `/health` say `degraded` */
  healthy(): boolean;
  /** Records that readers found to be damaged (read_records.ts) */
  readonly unreadable: UnreadableRecords;
  close(): Promise<void>;
}
