import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { createGroupCommit, ROLL_BACK } from "../../lib/storage/sqlite/group_commit.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

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
    const commits = createGroupCommit(database);
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
    const commits = createGroupCommit(database);
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

test("a transaction that cannot begin rejects every write of the group", async () => {
  await withDatabase(async (database, path) => {
    const commits = createGroupCommit(database);
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
