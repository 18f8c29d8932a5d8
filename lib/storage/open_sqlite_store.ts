import type { Clock } from "../base/clock.ts";
import { checkLimit, checkName, checkSeq, encodeWrite } from "./encode_write.ts";
import { migrations } from "./sqlite/migrations.ts";
import { createGroupCommit, ROLL_BACK } from "./sqlite/group_commit.ts";
import { createDiskSync } from "./sqlite/disk_sync.ts";
import { openDatabase } from "./sqlite/open_database.ts";
import { createRecordStatements } from "./sqlite/record_statements.ts";
import { createUnreadableRecords, forgetWritten, type Store, type Write } from "./store.ts";

/** Times that a read waits for writes which came while it waited */
const MAX_ROUNDS = 3;

/**
 * Opens the store in one SQLite file: WAL, full sync, group commit. A write whose promise has resolved survives `kill -9` and a loss
 * of power. Reads see what is committed, and wait for the disk when others have just written.
 * @throws {ConfigError} naming the file: `database_too_new`, `database_corrupt`, `database_unusable`
 */
export async function openSqliteStore(options: { readonly path: string; readonly clock: Clock }): Promise<Store> {
  const database = openDatabase(options.path, migrations);
  const records = createRecordStatements(database, () => options.clock.now());
  const disk = createDiskSync(database, options.path);
  const commits = createGroupCommit(database, disk);
  const unreadable = createUnreadableRecords();
  let closed = false;

  function open(): void {
    if (closed) throw new Error(`Cannot use the store "${options.path}": it is closed`);
  }

  /**
   * Before a read: what others have written and not heard of yet comes to the disk first, so that whoever reads it finds its writer
   * gone on. Where writes never cease a read waits for no more than those before it.
   */
  async function readable(): Promise<void> {
    open();
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const settled = commits.settled();
      if (settled === undefined) break;
      await settled;
    }
    open();
  }

  async function writeAll(writes: readonly Write[]): Promise<boolean> {
    open();
    if (writes.length === 0) return true;
    const encoded = writes.map(encodeWrite);
    const result = await commits.write(() => encoded.every((write) => records.apply(write)) || ROLL_BACK);
    if (result === true) forgetWritten(unreadable, writes);
    return result === true;
  }

  return {
    async get(collection, key) {
      await readable();
      return records.get(checkName("collection", collection), checkName("key", key));
    },
    async scan(collection, options) {
      await readable();
      checkLimit(options.limit);
      return records.scan(checkName("collection", collection), options);
    },
    async count(collection, prefix = "") {
      await readable();
      return records.count(checkName("collection", collection), prefix);
    },
    async search(collection, options) {
      await readable();
      checkLimit(options.limit);
      return records.search(checkName("collection", collection), options);
    },
    async takeOnce(collection, key) {
      open();
      checkName("collection", collection);
      checkName("key", key);
      const taken = await commits.write(() => records.take(collection, key));
      unreadable.forget(collection, key);
      return taken === ROLL_BACK ? undefined : taken;
    },
    insertOnce: (collection, key, body) => writeAll([{ op: "insert", collection, key, body }]),
    putIfVersion: (collection, key, expectedVersion, body) =>
      writeAll([
        expectedVersion === 0
          ? { op: "insert", collection, key, body }
          : { op: "putIf", collection, key, version: expectedVersion, body },
      ]),
    append: (stream, expectedSeq, bodies) => writeAll([{ op: "append", stream, expectedSeq, records: bodies }]),
    async read(stream, options) {
      await readable();
      return records.read(checkName("stream", stream), checkSeq(options.afterSeq), checkLimit(options.limit));
    },
    batch: writeAll,
    healthy: () => !closed && commits.healthy(),
    unreadable,
    async close() {
      if (closed) return;
      closed = true;
      await commits.flush();
      disk.handBack();
      database.close();
      disk.close();
    },
  };
}
