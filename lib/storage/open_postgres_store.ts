import type { Clock, Timer } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import { type Logger, SILENT } from "../base/telemetry/log.ts";
import { checkLimit, checkName, checkSeq, encodeWrite } from "./encode_write.ts";
import { type BatchOutcome, type BatchWrite, BatchWriter } from "./postgres/batch_writer.ts";
import { migrateSchema } from "./postgres/migrate_schema.ts";
import type { PostgresDatabase } from "./postgres/postgres_database.ts";
import { RecordQueries } from "./postgres/record_queries.ts";
import { ServerWatch } from "./postgres/server_watch.ts";
import { quoteName } from "./postgres/statement_text.ts";
import { TextQueries } from "./postgres/text_queries.ts";
import {
  createUnreadableRecords,
  forgetWritten,
  singleWrites,
  type Store,
  type UnreadableRecords,
  type Write,
} from "./store.ts";

/** Time between two removals of old ids of batches, and how long an id is kept: longer than any writer asks for one. Milliseconds */
const FORGET_EVERY_MS = 60_000;
const IDS_KEPT = "10 minutes";
/** Ids that one statement removes. */
const IDS_PER_REMOVAL = 10_000;

/** Options of `openPostgresStore`. */
export interface PostgresStoreOptions {
  /** The store closes it */
  readonly database: PostgresDatabase;
  /** `[storage] schema` */
  readonly schema: string;
  /** `[storage] engine_unchecked` */
  readonly engineUnchecked?: boolean;
  readonly clock: Clock;
  readonly random: Random;
  /** Receives notices of migrations, and of a server that does not answer. Default: nobody does */
  readonly log?: Logger;
  /** Aborts at the end of the gateway's start. Until then, and for 30 seconds at most, calls wait for a server that is down. Default: none waits */
  readonly started?: AbortSignal | undefined;
  /** Aborts when the start is given up, which ends each wait of it. Default: it never does */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Opens the store in one schema of a PostgreSQL database, whose tables it makes or brings to their next version. A write whose promise has
 * resolved is committed. While the server is down, every call rejects with HttpError `storage_unavailable`.
 * @throws {ConfigError} what `migrateSchema` throws; {DatabaseAwayError} a server that cannot be reached
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<Store> {
  const { database, schema, engineUnchecked, log = SILENT } = options;
  const session = await database.dedicated();
  try {
    await migrateSchema(session, {
      schema,
      name: database.name,
      log,
      ...engineUnchecked === true && { engineUnchecked },
    });
  } finally {
    await session.close();
  }
  const { clock, random, started, signal } = options;
  const watch = new ServerWatch(database, { clock, random, log, started, signal });
  return new PostgresStore(options, watch);
}

/** Methods are properties of the object itself, so that a copy of a store with one method replaced works. */
class PostgresStore implements Store {
  readonly #database: PostgresDatabase;
  readonly #schema: string;
  readonly #watch: ServerWatch;
  readonly #records: RecordQueries;
  readonly #texts: TextQueries;
  readonly #writer: BatchWriter;
  readonly #forgetting: Timer;
  #closed = false;
  readonly unreadable: UnreadableRecords = createUnreadableRecords();

  constructor(options: PostgresStoreOptions, watch: ServerWatch) {
    const { database, schema, clock, random } = options;
    this.#database = database;
    this.#schema = schema;
    this.#watch = watch;
    this.#records = new RecordQueries(database, schema);
    this.#texts = new TextQueries(database, schema);
    this.#writer = new BatchWriter({ database, schema, watch, clock, random });
    this.#forgetting = clock.every(FORGET_EVERY_MS, () => void this.#forgetIds());
  }

  readonly get: Store["get"] = (collection, key) =>
    this.#read(() => this.#records.get(checkName("collection", collection), checkName("key", key)));

  readonly scan: Store["scan"] = (collection, options) =>
    this.#read(() => {
      checkLimit(options.limit);
      return this.#records.scan(checkName("collection", collection), options);
    });

  readonly count: Store["count"] = (collection, which = "") =>
    this.#read(() => this.#records.count(checkName("collection", collection), which));

  readonly search: Store["search"] = (collection, options) =>
    this.#read(() => {
      checkLimit(options.limit);
      return this.#texts.search(checkName("collection", collection), options);
    });

  readonly nearest: Store["nearest"] = (collection, { vector, prefix = "", limit }) =>
    this.#read(() => {
      checkLimit(limit);
      return this.#records.nearest(checkName("collection", collection), { vector, prefix, limit });
    });

  readonly vectorless: Store["vectorless"] = (collection, options) =>
    this.#read(() => {
      checkLimit(options.limit);
      return this.#records.vectorless(checkName("collection", collection), options);
    });

  readonly read: Store["read"] = (stream, options) =>
    this.#read(() =>
      this.#records.read(checkName("stream", stream), checkSeq(options.afterSeq), checkLimit(options.limit))
    );

  readonly takeOnce: Store["takeOnce"] = async (collection, key) => {
    this.#requireWritable();
    const place = { collection: checkName("collection", collection), key: checkName("key", key) };
    const taken = await this.#writer.write([{ op: "take", ...place }]);
    this.unreadable.forget(collection, key);
    return typeof taken === "boolean" || taken === null
      ? undefined
      : { key, version: taken.version, body: parseBody(taken.body) };
  };

  readonly batch: Store["batch"] = (writes) => this.#write(writes);

  readonly #single = singleWrites(this.batch);

  readonly insertOnce: Store["insertOnce"] = this.#single.insertOnce;

  readonly putIfVersion: Store["putIfVersion"] = this.#single.putIfVersion;

  readonly append: Store["append"] = this.#single.append;

  readonly healthy: Store["healthy"] = () => {
    if (this.#closed) return false;
    this.#watch.probe();
    return this.#watch.isThere();
  };

  readonly close: Store["close"] = async () => {
    if (this.#closed) return;
    this.#closed = true;
    this.#forgetting.clear();
    await this.#writer.flush();
    this.#watch.stop();
    await this.#database.close();
  };

  async #read<T>(work: () => Promise<T>): Promise<T> {
    this.#requireOpen();
    return await this.#watch.read(async () => await work());
  }

  async #write(writes: readonly Write[]): Promise<boolean> {
    this.#requireWritable();
    if (writes.length === 0) return true;
    const encoded: readonly BatchWrite[] = writes.map(encodeWrite);
    const outcome: BatchOutcome = await this.#writer.write(encoded);
    if (outcome === true) forgetWritten(this.unreadable, writes);
    return outcome === true;
  }

  /** Removes the ids of batches that nobody asks for any more. */
  async #forgetIds(): Promise<void> {
    if (!this.#watch.isThere()) return;
    const batches = `${quoteName(this.#schema)}.batches`;
    await this.#database.query(
      `DELETE FROM ${batches} WHERE id IN (
         SELECT id FROM ${batches} WHERE written_at < now() - interval '${IDS_KEPT}' LIMIT ${IDS_PER_REMOVAL} FOR UPDATE SKIP LOCKED
       )`,
    ).catch((error) => void this.#watch.refusalOf(error));
  }

  #requireWritable(): void {
    this.#requireOpen();
    this.#watch.requireThere();
  }

  #requireOpen(): void {
    if (this.#closed) throw new Error(`Cannot use the store in the database ${this.#database.name}: it is closed`);
  }
}

function parseBody(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}
