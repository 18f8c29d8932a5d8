import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { HttpError } from "../../lib/base/errors.ts";
import { type DiskSync, LogCopyError } from "../../lib/storage/sqlite/disk_sync.ts";
import { GroupCommit, ROLL_BACK } from "../../lib/storage/sqlite/group_commit.ts";
import { until } from "../support/until.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** A disk that takes everything at once, and whose log never grows long. */
function fakeDisk(disk: Partial<DiskSync> = {}) {
  const done = () => Promise.resolve();
  return { sync: done, isLogLong: () => false, emptyLog: done, ...disk };
}

async function withDatabase(use: (database: DatabaseSync, path: string) => Promise<void>): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "x.db");
    const database = new DatabaseSync(path);
    database.exec("PRAGMA journal_mode = WAL; CREATE TABLE t (x)");
    await use(database, path);
    database.close();
  });
}

test("a write that fails is taken back alone, and the state is unhealthy until one succeeds", async () => {
  await withDatabase(async (database) => {
    const commits = new GroupCommit(database, fakeDisk());
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    const results = await Promise.allSettled([
      commits.write(() => insert.run(1) && "first"),
      commits.write(() => {
        insert.run(2);
        throw new Error("no");
      }),
      commits.write(() => {
        insert.run(3);
        return ROLL_BACK;
      }),
      commits.write(() => insert.run(4) && "last"),
    ]);
    assert.deepEqual(results.map((result) => result.status === "fulfilled" ? result.value : String(result.reason)), [
      "first",
      "Error: no",
      ROLL_BACK,
      "last",
    ]);
    assert.deepEqual(database.prepare("SELECT x FROM t").all().map(({ x }) => x), [1, 4]);
    assert.equal(commits.healthy(), false);
    await commits.write(() => insert.run(5));
    assert.equal(commits.healthy(), true);
  });
});

test("a full disk rejects the writes, makes it unhealthy, and it recovers when there is room", async () => {
  await withDatabase(async (database) => {
    const commits = new GroupCommit(database, fakeDisk());
    const insert = database.prepare("INSERT INTO t VALUES (zeroblob(100000))");
    database.exec("PRAGMA max_page_count = 20");
    const [small, large] = await Promise.allSettled([commits.write(() => "small"), commits.write(() => insert.run())]);
    assert.equal(large.status, "rejected");
    assert.equal(commits.healthy(), false);
    assert.ok(small.status === "fulfilled" || /Cannot write/.test(String(small.reason)));
    database.exec("PRAGMA max_page_count = 100000");
    await commits.write(() => insert.run());
    assert.equal(commits.healthy(), true);
    assert.equal(database.prepare("SELECT count(*) AS n FROM t").get()?.["n"], 1);
  });
});

test("it is healthy again when a write would reach the disk, though nobody writes", async () => {
  await withDatabase(async (database, path) => {
    const commits = new GroupCommit(database, fakeDisk());
    database.exec("PRAGMA user_version = 7");
    const other = new DatabaseSync(path);
    other.exec("BEGIN IMMEDIATE");
    await assert.rejects(commits.write(() => "written"));
    for (let look = 0; look < 3; look++) {
      assert.equal(commits.healthy(), false);
      await turn();
    }
    other.exec("ROLLBACK");
    other.close();
    await until(() => commits.healthy());
    assert.equal(database.prepare("PRAGMA user_version").get()?.["user_version"], 7);
  });
});

test("a transaction that cannot begin rejects every write of the group", async () => {
  await withDatabase(async (database, path) => {
    const commits = new GroupCommit(database, fakeDisk());
    const other = new DatabaseSync(path);
    other.exec("BEGIN IMMEDIATE");
    const writes = [1, 2, 3].map(() => commits.write(() => "written"));
    for (const write of writes) await assert.rejects(write, /Cannot write to the database/);
    assert.equal(commits.healthy(), false);
    other.exec("ROLLBACK");
    other.close();
    assert.equal(await commits.write(() => "written"), "written");
    assert.equal(commits.healthy(), true);
  });
});

/** A sync that ends when the test says so. */
function heldSync() {
  const held: { readonly resolve: () => void; readonly reject: (error: Error) => void }[] = [];
  const sync = () => new Promise<void>((resolve, reject) => void held.push({ resolve, reject }));
  return { sync, held };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

test("what is committed can be read at once, and its writer hears of it when it is on the disk", async () => {
  await withDatabase(async (database) => {
    const { sync, held } = heldSync();
    const commits = new GroupCommit(database, fakeDisk({ sync }));
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    let isDurable = false;
    const first = commits.write(() => insert.run(1)).then(() => (isDurable = true));
    await turn();
    await turn();
    assert.deepEqual([database.prepare("SELECT x FROM t").all().length, isDurable, held.length], [1, false, 1]);
    // Two transactions are committed while the sync is at work: they share the next one
    const second = commits.write(() => insert.run(2));
    await turn();
    const third = commits.write(() => insert.run(3));
    await turn();
    assert.equal(held.length, 1);
    held[0]?.resolve();
    await first;
    await turn();
    assert.equal(held.length, 2);
    held[1]?.resolve();
    await Promise.all([second, third]);
    assert.equal(held.length, 2);
  });
});

test("after a sync that failed nothing is written any more, whatever the disk says later", async () => {
  await withDatabase(async (database) => {
    const { sync, held } = heldSync();
    const commits = new GroupCommit(database, fakeDisk({ sync }));
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    const lost = assert.rejects(commits.write(() => insert.run(1)), /the disk did not take/);
    await turn();
    const next = assert.rejects(commits.write(() => insert.run(2)), /the disk did not take/);
    await turn();
    held[0]?.reject(new Error("EIO"));
    await lost;
    await turn();
    held[1]?.resolve();
    await next;
    await assert.rejects(commits.write(() => insert.run(3)), /the disk did not take/);
    assert.equal(commits.healthy(), false);
  });
});

test("whoever asks is told when what is committed now is on the disk", async () => {
  await withDatabase(async (database) => {
    const { sync, held } = heldSync();
    const commits = new GroupCommit(database, fakeDisk({ sync }));
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    assert.equal(commits.settled(), undefined);
    const told: string[] = [];
    const first = commits.write(() => insert.run(1)).then(() => told.push("first"));
    await turn();
    const during = commits.settled()?.then(() => told.push("what was being synced"));
    const second = commits.write(() => insert.run(2)).then(() => told.push("second"));
    await turn();
    const after = commits.settled()?.then(() => told.push("what was committed since"));
    held[0]?.resolve();
    await Promise.all([first, during]);
    await turn();
    assert.deepEqual(told.toSorted(), ["first", "what was being synced"]);
    held[1]?.resolve();
    await Promise.all([second, after]);
    assert.equal(told.length, 4);
    assert.equal(commits.settled(), undefined);
  });
});

test("a write during the copy of the log is committed when the copy has ended, not before", async () => {
  await withDatabase(async (database) => {
    const { sync: emptyLog, held } = heldSync();
    let isLong = true;
    const commits = new GroupCommit(database, fakeDisk({ isLogLong: () => isLong, emptyLog }));
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    const rows = () => Number(database.prepare("SELECT count(*) AS n FROM t").get()?.["n"]);
    await commits.write(() => insert.run(0));
    await until(() => held.length === 1);
    isLong = false;
    // Groups of all three kinds: sent off by their size, by their turn, and by a flush
    const writes = Array.from({ length: 65 }, (_, i) => commits.write(() => insert.run(i + 1)));
    await turn();
    await turn();
    void commits.flush();
    await turn();
    assert.equal(rows(), 1);
    held[0]?.resolve();
    await Promise.all(writes);
    assert.deepEqual([rows(), held.length], [66, 1]);
  });
});

test("a disk that is full refuses with 503 and the reason, and the next write after there is room succeeds", async () => {
  await withDatabase(async (database) => {
    const commits = new GroupCommit(database, fakeDisk());
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    const pages = Number(database.prepare("PRAGMA page_count").get()?.["page_count"]);
    database.exec(`PRAGMA max_page_count = ${pages}`);
    await assert.rejects(commits.write(() => insert.run("x".repeat(100_000))), (error) => {
      assert.ok(error instanceof HttpError);
      assert.deepEqual([error.status, error.code], [503, "storage_unavailable"]);
      assert.match(error.message, /disk is full.*make room/);
      return true;
    });
    assert.equal(commits.healthy(), false);
    database.exec(`PRAGMA max_page_count = ${pages + 100}`);
    assert.notEqual(await commits.write(() => insert.run("x".repeat(100_000))), ROLL_BACK);
    assert.equal(commits.healthy(), true);
  });
});

test("a log that cannot be copied for want of room loses no write, and is copied once there is room", async () => {
  await withDatabase(async (database) => {
    let [isFull, copies] = [true, 0];
    const disk = fakeDisk({
      isLogLong: () => copies === 0,
      emptyLog: () => {
        if (isFull) return Promise.reject(new LogCopyError("database or disk is full"));
        copies++;
        return Promise.resolve();
      },
    });
    const commits = new GroupCommit(database, disk);
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    await commits.write(() => insert.run(1));
    await commits.flush();
    assert.equal(commits.healthy(), false);
    await commits.write(() => insert.run(2));
    isFull = false;
    await until(() => commits.healthy());
    assert.equal(copies, 1);
    assert.equal(Number(database.prepare("SELECT count(*) AS n FROM t").get()?.["n"]), 2);
  });
});

test("a log that could not be synced while it was copied refuses every write from then on", async () => {
  await withDatabase(async (database) => {
    const commits = new GroupCommit(
      database,
      fakeDisk({ isLogLong: () => true, emptyLog: () => Promise.reject(new Error("EIO")) }),
    );
    const insert = database.prepare("INSERT INTO t VALUES (?)");
    await commits.write(() => insert.run(1));
    await commits.flush();
    await assert.rejects(commits.write(() => insert.run(2)), { code: "storage_unavailable" });
    assert.equal(commits.healthy(), false);
  });
});
