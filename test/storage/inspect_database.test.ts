import assert from "node:assert/strict";
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { findUnreadable, inspectDatabase } from "../../lib/storage/inspect_database.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const PARSERS = { collections: {}, streams: {} };

/** Writes a record and version 7,777 to a database, and copies what a killed gateway would leave of it. */
async function leaveBehind(folder: string, names: readonly string[]): Promise<string> {
  const path = join(folder, "open.db");
  await (await openSqliteStore({ path, clock: createFakeClock() })).close();
  const database = new DatabaseSync(path);
  try {
    database.exec("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 7777");
    database.exec(
      "INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES ('c', 'k', 1, '{', 0, 0)",
    );
    for (const name of names) copyFileSync(`${path}${name}`, join(folder, `left.db${name}`));
  } finally {
    database.close();
  }
  return join(folder, "left.db");
}

test("the log that a killed gateway left counts, and stays as it is", () =>
  withTemporaryFolder(async (folder) => {
    const path = await leaveBehind(folder, ["", "-wal"]);
    const bytes = () => [path, `${path}-wal`].map((file) => readFileSync(file, "base64"));
    const before = bytes();
    assert.equal(inspectDatabase(path)?.version, 7777);
    const { unreadable, looked, finished } = findUnreadable(path, PARSERS, () => false);
    assert.deepEqual([unreadable.map(({ key }) => key), looked, finished], [["k"], 1, true]);
    assert.deepEqual(bytes(), before);
  }));

test("without a log, or with an empty one, nothing is made beside the file", () =>
  withTemporaryFolder(async (folder) => {
    const path = await leaveBehind(folder, [""]);
    const left = () => readdirSync(folder).filter((name) => name.startsWith("left"));
    for (const files of [["left.db"], ["left.db", "left.db-wal"]]) {
      if (files.length > 1) writeFileSync(`${path}-wal`, "");
      const facts = inspectDatabase(path);
      assert.deepEqual([facts?.damage, facts?.version], [null, facts?.knownVersion]);
      assert.equal(findUnreadable(path, PARSERS, () => false).looked, 0);
      assert.deepEqual(left(), files);
    }
  }));

test("an empty file beside a full log is refused, and the log stays", () =>
  withTemporaryFolder(async (folder) => {
    const path = await leaveBehind(folder, ["-wal"]);
    writeFileSync(path, "");
    const log = readFileSync(`${path}-wal`);
    for (const look of [() => inspectDatabase(path), () => findUnreadable(path, PARSERS, () => false)]) {
      assert.throws(look, { code: "database_corrupt", message: /missing or empty/ });
    }
    assert.deepEqual(readFileSync(`${path}-wal`), log);
  }));

test("a file that is too large is not checked, and one that is not there is no database", () =>
  withTemporaryFolder(async (folder) => {
    const path = await leaveBehind(folder, [""]);
    const { bytes = 0 } = inspectDatabase(path) ?? {};
    assert.equal(inspectDatabase(path, { maxBytes: bytes })?.damage, null);
    assert.equal(inspectDatabase(path, { maxBytes: bytes - 1 })?.damage, undefined);
    assert.equal(inspectDatabase(join(folder, "none.db")), undefined);
  }));

test("records and streams are parsed each by its own parser, until enough is found or the time is over", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const store = await openSqliteStore({ path, clock: createFakeClock() });
    const names = ["own", "__proto__", "constructor", "other"];
    await store.batch(names.flatMap((name) => [
      { op: "put" as const, collection: name, key: "k", body: 1 },
      { op: "append" as const, stream: `${name}/x`, expectedSeq: 0, records: [1] },
    ]));
    await store.close();
    const refuse = () => {
      throw new Error("No");
    };
    const parsers = { collections: { own: refuse }, streams: { own: refuse } };
    const found = findUnreadable(path, parsers, () => false);
    assert.deepEqual(found.unreadable.map(({ collection, key }) => `${collection} ${key}`), ["own k", "own/x 1"]);
    assert.deepEqual([found.looked, found.finished], [8, true]);
    let asked = 0;
    const early = findUnreadable(path, parsers, () => ++asked > 3);
    assert.deepEqual([early.looked, early.finished, early.unreadable.length], [3, false, 1]);
  }));
