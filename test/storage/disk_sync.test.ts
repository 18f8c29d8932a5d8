import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { copyFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { createDiskSync, LogCopyError } from "../../lib/storage/sqlite/disk_sync.ts";
import { BUSY_TIMEOUT_MS } from "../../lib/storage/sqlite/open_database.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const LONG_LOG_BYTES = 8 * 1024 * 1024;
/** Sizes in a log of pages of 4,096 bytes. Source: sqlite.org/fileformat2.html section 4 */
const LOG_HEADER_BYTES = 32;
const FRAME_BYTES = 24 + 4096;
const TEXT = "x".repeat(20_000);

async function fill(store: Store, from: number, count: number): Promise<void> {
  for (let i = from; i < from + count; i += 50) {
    await Promise.all(Array.from({ length: 50 }, (_, j) => store.insertOnce("texts", `${i + j}`, TEXT)));
  }
}

const open = (path: string) => openSqliteStore({ path, clock: createFakeClock() });

/** Counts the records that a process started now would find, in a copy of the files as they are. */
async function countInCopy(path: string): Promise<number> {
  const copy = `${path}.copy`;
  copyFileSync(path, copy);
  copyFileSync(`${path}-wal`, `${copy}-wal`);
  const store = await open(copy);
  const count = await store.count("texts");
  await store.close();
  return count;
}

test("the log is emptied again and again, and at any moment the files hold every write that was acknowledged", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "x.db");
    const store = await open(path);
    let longest = 0;
    for (let written = 0; written < 2000; written += 250) {
      await fill(store, written, 250);
      longest = Math.max(longest, statSync(`${path}-wal`).size);
      assert.equal(await countInCopy(path), written + 250);
    }
    assert.ok(longest < 2.5 * LONG_LOG_BYTES, `the log grew to ${longest} bytes`);
    assert.equal(store.healthy(), true);
    await store.close();
    const again = await open(path);
    assert.equal(await again.count("texts"), 2000);
    await again.close();
  }));

test("while another connection reads the log stays, and nothing of it is lost or waited for", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "x.db");
    const store = await open(path);
    await fill(store, 0, 50);
    const reader = new DatabaseSync(path, { readOnly: true });
    reader.exec("BEGIN");
    const seen = () => reader.prepare("SELECT count(*) AS n FROM sqlite_schema").get();
    seen();
    const took: number[] = [];
    for (let written = 50; written < 1000; written += 50) {
      const begun = performance.now();
      await fill(store, written, 50);
      took.push(performance.now() - begun);
    }
    // Any of them may meet a slow disk, and all of the last would wait: the log is long by then
    assert.ok(Math.min(...took.slice(-5)) < BUSY_TIMEOUT_MS, `no write waits for a reader, but for ${took} ms`);
    assert.equal(await countInCopy(path), 1000);
    reader.exec("COMMIT");
    reader.close();
    await fill(store, 1000, 50);
    assert.equal(await countInCopy(path), 1050);
    // The log is started over and cut after the writes that made it long were told to be done
    await until(() => statSync(`${path}-wal`).size < 2.5 * LONG_LOG_BYTES, "the log is never cut back");
    await store.close();
  }));

test("when power is lost as the log starts over, every mix of its old and new beginning gives every write", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "x.db");
    const store = await open(path);
    await fill(store, 0, 100);
    const database = new DatabaseSync(path);
    const disk = createDiskSync(database, path);
    const before = readFileSync(`${path}-wal`);
    await disk.emptyLog();
    const after = readFileSync(`${path}-wal`);
    const [header, frame] = [LOG_HEADER_BYTES, LOG_HEADER_BYTES + FRAME_BYTES];
    assert.equal(after.length, before.length, "the file keeps its length");
    assert.notDeepEqual(after.subarray(0, header), before.subarray(0, header), "the log has started over");
    assert.deepEqual(after.subarray(frame), before.subarray(frame), "in one frame");
    for (const first of [before, after]) {
      for (const second of [before, after]) {
        const copy = join(folder, "copy.db");
        copyFileSync(path, copy);
        const log = Buffer.concat([first.subarray(0, header), second.subarray(header, frame), before.subarray(frame)]);
        writeFileSync(`${copy}-wal`, log);
        const found = await open(copy);
        assert.equal(await found.count("texts"), 100, `header ${first === after}, frame ${second === after}`);
        await found.close();
      }
    }
    database.close();
    disk.close();
    await store.close();
  }));

test("the folder, which holds the names of database and log, is synced once with the first sync", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "x.db");
    const store = await open(path);
    const database = new DatabaseSync(path);
    const synced: string[] = [];
    const disk = createDiskSync(database, path, { syncFolder: async (name) => void synced.push(name) });
    await disk.sync();
    await disk.sync();
    assert.deepEqual(synced, [folder]);
    database.close();
    disk.close();
    await store.close();
  }));

test("a copy of the log that finds no room is told apart from a sync that failed, and leaves the log whole", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "x.db");
    const store = await open(path);
    await fill(store, 0, 50);
    const database = new DatabaseSync(path);
    const full = {
      exec: (sql: string) => database.exec(sql),
      prepare: (sql: string) => {
        const statement = database.prepare(sql);
        if (!sql.includes("wal_checkpoint")) return statement;
        return {
          get() {
            throw new Error("database or disk is full");
          },
        };
      },
    };
    // Only these two are used of it
    const disk = createDiskSync(full as unknown as DatabaseSync, path);
    await assert.rejects(disk.emptyLog(), LogCopyError);
    assert.equal(await countInCopy(path), 50);
    database.close();
    disk.close();
    await store.close();
  }));
