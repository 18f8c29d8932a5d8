import type { DatabaseSync } from "node:sqlite";
import type { Clock } from "../base/clock.ts";
import { nextTick } from "../base/tick.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { checkLimit, checkName, checkSeq, encodeWrite } from "./encode_write.ts";
import { migrations } from "./sqlite/migrations.ts";
import { GroupCommit, ROLL_BACK } from "./sqlite/group_commit.ts";
import { createDiskSync, type DiskSync } from "./sqlite/disk_sync.ts";
import { openDatabase } from "./sqlite/open_database.ts";
import { RecordStatements } from "./sqlite/record_statements.ts";
import { createUnreadableRecords, forgetWritten, singleWrites, type Store, type UnreadableRecords } from "./store.ts";
import { BestItems, cosineOf, toUnit } from "./vectors.ts";

/** Vectors that are compared before the event loop goes on: some milliseconds for vectors of 1,536 numbers. */
const VECTORS_PER_TICK = 500;
/** Times that a read waits for writes which came while it waited */
const MAX_ROUNDS = 3;

/** Options of `openSqliteStore`. */
export interface SqliteStoreOptions {
  /** Path of the database file */
  readonly path: string;
  readonly clock: Clock;
  /** Receives notices of migrations. Default: nobody does */
  readonly log?: Logger;
}

/**
 * Opens the store in one SQLite file: WAL, full sync, group commit. A write whose promise has resolved survives `kill -9` and a loss
 * of power. Reads see what is committed, and wait for the disk when others have just written.
 * @throws {ConfigError} naming the file: `database_too_new`, `database_corrupt`, `database_unusable`
 */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  return new SqliteStore(options);
}

/** Methods are properties of the object itself, so that a copy of a store with one method replaced works. */
class SqliteStore implements Store {
  readonly #path: string;
  readonly #database: DatabaseSync;
  readonly #records: RecordStatements;
  readonly #disk: DiskSync;
  readonly #commits: GroupCommit;
  #closed = false;
  readonly unreadable: UnreadableRecords = createUnreadableRecords();

  constructor({ path, clock, log }: SqliteStoreOptions) {
    this.#path = path;
    this.#database = openDatabase(path, migrations, log);
    this.#records = new RecordStatements(this.#database, () => clock.now());
    this.#disk = createDiskSync(this.#database, path);
    this.#commits = new GroupCommit(this.#database, this.#disk);
  }

  readonly get: Store["get"] = async (collection, key) => {
    await this.#readable();
    return this.#records.get(checkName("collection", collection), checkName("key", key));
  };

  readonly scan: Store["scan"] = async (collection, options) => {
    await this.#readable();
    checkLimit(options.limit);
    return this.#records.scan(checkName("collection", collection), options);
  };

  readonly count: Store["count"] = async (collection, which = "") => {
    await this.#readable();
    return this.#records.count(checkName("collection", collection), which);
  };

  readonly search: Store["search"] = async (collection, options) => {
    await this.#readable();
    checkLimit(options.limit);
    return this.#records.search(checkName("collection", collection), options);
  };

  readonly nearest: Store["nearest"] = async (collection, { vector, prefix = "", limit }) => {
    await this.#readable();
    checkName("collection", collection);
    const best = new BestItems<number>(checkLimit(limit));
    const values = toUnit(vector.values);
    const range = { collection, prefix, vector: { model: vector.model, values } };
    for (let afterId = 0;;) {
      const page = this.#records.vectors.page(range, { afterId, limit: VECTORS_PER_TICK });
      for (const one of page) if (one.values !== undefined) best.add(one.id, cosineOf(one.values, values));
      if (page.length < VECTORS_PER_TICK) break;
      afterId = page.at(-1)?.id ?? afterId;
      await nextTick();
      this.#requireOpen();
    }
    return this.#records.withIds(best.list());
  };

  readonly vectorless: Store["vectorless"] = async (collection, options) => {
    await this.#readable();
    checkLimit(options.limit);
    return this.#records.vectorless(checkName("collection", collection), options);
  };

  readonly read: Store["read"] = async (stream, options) => {
    await this.#readable();
    return this.#records.read(checkName("stream", stream), checkSeq(options.afterSeq), checkLimit(options.limit));
  };

  readonly takeOnce: Store["takeOnce"] = async (collection, key) => {
    this.#requireOpen();
    checkName("collection", collection);
    checkName("key", key);
    const taken = await this.#commits.write(() => this.#records.take(collection, key));
    this.unreadable.forget(collection, key);
    return taken === ROLL_BACK ? undefined : taken;
  };

  readonly batch: Store["batch"] = async (writes) => {
    this.#requireOpen();
    if (writes.length === 0) return true;
    const encoded = writes.map(encodeWrite);
    const result = await this.#commits.write(() => encoded.every((write) => this.#records.apply(write)) || ROLL_BACK);
    if (result === true) forgetWritten(this.unreadable, writes);
    return result === true;
  };

  readonly #single = singleWrites(this.batch);

  readonly insertOnce: Store["insertOnce"] = this.#single.insertOnce;

  readonly putIfVersion: Store["putIfVersion"] = this.#single.putIfVersion;

  readonly append: Store["append"] = this.#single.append;

  readonly healthy: Store["healthy"] = () => !this.#closed && this.#commits.healthy();

  readonly close: Store["close"] = async () => {
    if (this.#closed) return;
    this.#closed = true;
    await this.#commits.flush();
    this.#disk.handBack();
    this.#database.close();
    this.#disk.close();
  };

  #requireOpen(): void {
    if (this.#closed) throw new Error(`Cannot use the store "${this.#path}": it is closed`);
  }

  /**
   * Waits before a read until the writes that others have committed are on the disk, so that a reader never knows more than the writer.
   * While writes never cease, a read waits for the writes before it and no more.
   */
  async #readable(): Promise<void> {
    this.#requireOpen();
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const settled = this.#commits.settled();
      if (settled === undefined) break;
      await settled;
    }
    this.#requireOpen();
  }
}
