import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { HttpError, refuse } from "../base/errors.ts";
import type { ScanOptions, Store, Stored, StreamRecord, Write } from "./store.ts";

/** Parses a stored body into a record of the wing that owns it. @throws for a body that no version wrote */
export type ParseRecord<T> = (body: unknown) => T;

/** Facts about the records of a collection beside their form. */
export interface CollectionOptions {
  /**
   * Reason why whoever changes a record says all of it, so that fields of a newer version go. Default: a change keeps such fields
   * (docs/design/storage.md "Mixed versions")
   */
  readonly replaced?: string;
  /** Writes of a repair for a record that cannot be read. Default: the record is removed */
  readonly onDamage?: DamageRepair;
}

/** Repair of a damaged record. */
export interface DamageRepair {
  /** Body that takes the place of the damaged one, so that the rest still applies */
  readonly becomes?: object;
  /** Collections whose records of the same key are removed, its own among them. Default: its own alone */
  readonly removes?: readonly string[];
  /** Collection whose records below the key, `<key>/...`, are of no use without the record */
  readonly removesBelow?: string;
  /** Returns the stream that is of no use without the record */
  readonly drops?: (key: string) => string;
}

/**
 * Kind of record, declared once: readers and writers, the doctor and its repair take from the declaration what they need.
 * `T` is a record as it is read, `B` a body as it is written.
 */
export class Collection<T, B = unknown> {
  /** Name of the collection in the store */
  readonly name: string;
  readonly parse: ParseRecord<T>;
  readonly options: CollectionOptions;

  /** @param form schema of a body, or the parser of one that a schema alone does not give */
  constructor(name: string, form: v.GenericSchema<B, T> | ParseRecord<T>, options: CollectionOptions = {}) {
    this.name = name;
    this.parse = typeof form === "function" ? form : (body) => v.parse(form, body);
    this.options = options;
  }

  /** Reads one record, as `readRecord`. @throws {HttpError} 500 `record_unreadable` */
  read(store: Pick<Store, "get" | "unreadable">, key: string): Promise<ReadRecord<T> | undefined> {
    return readRecord(store, this.name, key, this.parse);
  }

  /** Reads a record that is to be changed, for `putOver`. Version 0: there is none. A damaged one is set aside, has no value, and is replaced. */
  async readForChange(store: Pick<Store, "get" | "unreadable">, key: string): Promise<ChangingRecord<T>> {
    const stored = await store.get(this.name, key);
    return { value: this.parsed(store, stored)?.value, version: stored?.version ?? 0 };
  }

  /** Reads one record. @returns undefined where there is none, and for one that cannot be parsed, which is set aside */
  async tryRead(store: Pick<Store, "get" | "unreadable">, key: string): Promise<ReadRecord<T> | undefined> {
    return this.parsed(store, await store.get(this.name, key));
  }

  /** Returns the version of a record, readable or not. 0: there is none */
  async versionOf(store: Pick<Store, "get">, key: string): Promise<number> {
    return (await store.get(this.name, key))?.version ?? 0;
  }

  /** Reads every record, as `readRecords`: those that cannot be parsed are set aside. */
  all(store: Store, options?: ScanAllOptions): AsyncGenerator<ReadRecord<T>> {
    return readRecords(store, this.name, this.parse, options);
  }

  /** Yields the key of every record, readable or not. */
  async *keys(store: Pick<Store, "scan">, options?: ScanAllOptions): AsyncGenerator<string> {
    for await (const { key } of scanAll(store, this.name, options)) yield key;
  }

  /** Reads one page, for a caller that needs no more than its readable records. The others are set aside, and leave no trace in the page. */
  async page(store: Pick<Store, "scan" | "unreadable">, options: ScanOptions): Promise<readonly ReadRecord<T>[]> {
    return this.readable(store, await store.scan(this.name, options));
  }

  /** Returns the writes that remove those of the oldest records that are over. @param limit records that it looks at */
  async removeOldest(
    store: Pick<Store, "scan" | "unreadable">,
    limit: number,
    isOver: (value: T) => boolean,
  ): Promise<readonly Write[]> {
    const oldest = await this.page(store, { order: "created", limit });
    return oldest.filter(({ value }) => isOver(value)).map(({ key }) => this.remove(key));
  }

  /** Parses the records of a page. Those that cannot be parsed are set aside, and still are in the page: they count for its place. */
  readable(store: Pick<Store, "unreadable">, page: readonly Stored[]): readonly ReadRecord<T>[] {
    return readable(store, this.name, page, this.parse);
  }

  /** Parses one record. @returns undefined where there is none, and for one that cannot be parsed, which is set aside */
  parsed(store: Pick<Store, "unreadable">, stored: Stored | undefined): ReadRecord<T> | undefined {
    return stored && this.readable(store, [stored])[0];
  }

  put(key: string, body: B): RecordWrite {
    return { op: "put", collection: this.name, key, body };
  }

  insert(key: string, body: B): RecordWrite {
    return { op: "insert", collection: this.name, key, body };
  }

  /** Returns the write that replaces the record of this version. 0: there is none yet */
  putOver(key: string, version: number, body: B): RecordWrite {
    return version === 0 ? this.insert(key, body) : { op: "putIf", collection: this.name, key, version, body };
  }

  remove(key: string): Write {
    return { op: "delete", collection: this.name, key };
  }

  check(key: string, version: number): Write {
    return { op: "check", collection: this.name, key, version };
  }
}

/** Write of a record. */
type RecordWrite = Extract<Write, { readonly body: unknown }>;

/** A stored record with its parsed body. */
export interface ReadRecord<T> {
  readonly key: string;
  readonly version: number;
  readonly value: T;
}

/** Record that is to be changed, as it was read. */
export interface ChangingRecord<T> {
  readonly value: T | undefined;
  readonly version: number;
}

/**
 * Reads every record of a collection, page by page. The one reader for all scans: a record that cannot be parsed is set aside
 * (`store.unreadable`), and the scan goes on with the others.
 */
export async function* readRecords<T>(
  store: Store,
  collection: string,
  parse: ParseRecord<T>,
  options: ScanAllOptions = {},
): AsyncGenerator<ReadRecord<T>> {
  for await (const stored of scanAll(store, collection, options)) yield* readable(store, collection, [stored], parse);
}

/** Returns the records of a page that can be parsed. The others are set aside, and still are in the page: they count for its place. */
export function readable<T>(
  store: Pick<Store, "unreadable">,
  collection: string,
  page: readonly Stored[],
  parse: ParseRecord<T>,
): readonly ReadRecord<T>[] {
  return page.flatMap(({ key, version, body }) => {
    try {
      return [{ key, version, value: parse(body) }];
    } catch (error) {
      setAside(store, { collection, key }, body, error);
      return [];
    }
  });
}

/**
 * Reads one record.
 * @returns undefined where there is none
 * @throws {HttpError} 500 `record_unreadable` for one that cannot be parsed, which is set aside
 */
export async function readRecord<T>(
  store: Pick<Store, "get" | "unreadable">,
  collection: string,
  key: string,
  parse: ParseRecord<T>,
): Promise<ReadRecord<T> | undefined> {
  const stored = await store.get(collection, key);
  if (stored === undefined) return undefined;
  const [found] = readable(store, collection, [stored], parse);
  if (found === undefined) throw unreadable(collection, key);
  return found;
}

/** Parses one record of a stream. @throws {HttpError} 500 `record_unreadable` for one that cannot be parsed, which is set aside */
export function readEntry<T>(store: Store, stream: string, { seq, body }: StreamRecord, parse: ParseRecord<T>): T {
  const stored = { key: String(seq), version: 1, body };
  const [found] = readable(store, stream, [stored], parse);
  if (found === undefined) throw unreadable(stream, stored.key);
  return found.value;
}

/** Parses one record of a stream whose other records stand for themselves. @returns undefined for one that was set aside */
export function tryEntry<T>(store: Store, stream: string, entry: StreamRecord, parse: ParseRecord<T>): T | undefined {
  const { seq, body } = entry;
  const stored = { key: String(seq), version: 1, body };
  return readable(store, stream, [stored], parse)[0]?.value;
}

/** Parses a record whose key says everything. @throws {TypeError} for a body other than an object of version 1 */
export function parseMark(body: unknown): void {
  if (typeof body === "object" && body !== null && "v" in body && body.v === 1) return;
  throw new TypeError("The body is no mark");
}

/** Tells whether an error says that a record cannot be read. */
export function isUnreadable(error: unknown): error is HttpError {
  return error instanceof HttpError && error.code === "record_unreadable";
}

/** Gives undefined for a record that was set aside: for scans that go on with the others. */
export async function unlessUnreadable<T>(reading: Promise<T> | undefined): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isUnreadable(error)) return undefined;
    throw error;
  }
}

function setAside(
  { unreadable }: Pick<Store, "unreadable">,
  place: { readonly collection: string; readonly key: string },
  body: unknown,
  error: unknown,
): void {
  unreadable.add({ ...place, reason: reasonOf(body, error) });
}

/**
 * Names the field that a parser did not take. The messages of a schema hold the value too, which may be a secret.
 * @param body undefined: the text is not JSON
 */
export function reasonOf(body: unknown, error: unknown): string {
  if (body === undefined) return "it is not JSON";
  const issues = error instanceof Error && "issues" in error && Array.isArray(error.issues) ? error.issues : [];
  const path: unknown = issues[0]?.path;
  if (!Array.isArray(path) || path.length === 0) return "its content is not that of a record of this collection";
  return `its field "${path.map((item) => String(item?.key)).join(".").slice(0, 200)}" is missing or wrong`;
}

function unreadable(collection: string, key: string): HttpError {
  const place = `${JSON.stringify(key.slice(0, 200))} of ${JSON.stringify(collection.slice(0, 200))}`;
  return refuse(
    "record_unreadable",
    `Cannot read record ${place}: it is damaged; "postern doctor --repair" removes it while no gateway runs`,
    { headers: { "x-should-retry": "false" } },
  );
}

/** Options of a scan without a limit. */
export interface ScanAllOptions extends Omit<ScanOptions, "after" | "limit"> {
  readonly after?: string | undefined;
}

const PAGE = 100;

/**
 * Yields every record of a collection. Reads a page at a time, so a caller that stops early reads no more than that.
 *
 * Records may be deleted meanwhile when the order is `key`. With `created`, the record that was yielded last must stay.
 */
export async function* scanAll(
  store: Pick<Store, "scan">,
  collection: string,
  { after, ...options }: ScanAllOptions = {},
): AsyncGenerator<Stored> {
  for (let last = after;;) {
    const page = await store.scan(collection, {
      ...options,
      limit: PAGE,
      ...(last === undefined ? {} : { after: last }),
    });
    yield* page;
    if (page.length < PAGE) return;
    last = page.at(-1)?.key;
  }
}

/** Pause between two tries. Milliseconds */
const AGAIN_MS = 1_000;

/** Makes calls of a store again and again while it cannot be reached. @throws {CancelError} when nobody waits for them any more */
export type Patience = <T>(work: () => Promise<T>) => Promise<T>;

/** Returns a function that waits for the store. Each of its calls is made as a whole again: give it one that may be made twice. */
export function patiently<Given extends unknown[], T>(
  patience: Patience,
  work: (...given: Given) => Promise<T>,
): (...given: Given) => Promise<T> {
  return (...given) => patience(() => work(...given));
}

/** Tells whether a store could not be reached, so that the same call may succeed later. */
export function isStorageAway(error: unknown): error is HttpError {
  return error instanceof HttpError && error.code === "storage_unavailable";
}

/** Error of a write whose answer was lost: nobody knows whether it was made. Any other `storage_unavailable` says that it was not. */
export class UnknownWriteError extends HttpError {
  constructor({ code, message, status, type, headers, cause }: HttpError) {
    super(code, message, { status, type, headers, cause });
  }
}

/**
 * Makes a patience that tries again while the store cannot be reached.
 * @param options.signal ends the pauses
 * @param options.pauseMs milliseconds between two tries. Default 1,000
 * @param options.afterPause is called before each further try, and throws when nobody may make it any more. Default: anybody may
 * @param options.giveUpMs milliseconds after which a call throws the error of its last try. Default: it tries for ever
 * @throws {CancelError} when the signal aborts; the error of a call that failed otherwise
 */
export function createPatience(
  { clock, signal, pauseMs = AGAIN_MS, giveUpMs, afterPause }: {
    readonly clock: Pick<Clock, "sleep" | "monotonic">;
    readonly signal: AbortSignal;
    readonly pauseMs?: number;
    readonly giveUpMs?: number;
    readonly afterPause?: () => Promise<void>;
  },
): Patience {
  return async (work) => {
    const end = giveUpMs === undefined ? Infinity : clock.monotonic() + giveUpMs;
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!isStorageAway(error) || clock.monotonic() >= end) throw error;
        await clock.sleep(pauseMs, signal);
        await afterPause?.();
      }
    }
  };
}
