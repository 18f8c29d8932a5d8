import assert from "node:assert/strict";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Tokens } from "../../lib/access/tokens.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { Memory } from "../../lib/memory/memory.ts";
import { Plans } from "../../lib/memory/plans.ts";
import { migrations } from "../../lib/storage/sqlite/migrations.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { openDatabase } from "../../lib/storage/sqlite/open_database.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const clock = createFakeClock();
const modeOf = (path: string) => statSync(path).mode & 0o777;

function isConfigError(code: string, path: string): (error: unknown) => boolean {
  return (error) =>
    error instanceof ConfigError && error.code === code && error.file === path && error.message.includes(`"${path}"`);
}

test("files are the owner's alone, also those that were not", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "a", "b", "postern.db");
    const store = await openSqliteStore({ path, clock });
    await store.insertOnce("c", "k", 1);
    assert.deepEqual([modeOf(join(folder, "a")), modeOf(join(folder, "a", "b"))], [0o700, 0o700]);
    for (const name of readdirSync(join(folder, "a", "b"))) {
      assert.equal(modeOf(join(folder, "a", "b", name)), 0o600, name);
    }
    await store.close();
    chmodSync(path, 0o644);
    await (await openSqliteStore({ path, clock })).close();
    assert.equal(modeOf(path), 0o600);
  });
});

test("a reopened store has its records, its streams and its index", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const first = await openSqliteStore({ path, clock });
    await first.batch([
      { op: "put", collection: "c", key: "k", body: { a: [1] }, text: "needle" },
      { op: "append", stream: "s", expectedSeq: 0, records: [1, 2] },
    ]);
    await first.close();
    const second = await openSqliteStore({ path, clock });
    assert.deepEqual(await second.search("c", { query: "needle", limit: 1 }), [{
      key: "k",
      version: 1,
      body: { a: [1] },
    }]);
    assert.equal(await second.append("s", 2, [3]), true);
    assert.equal(second.healthy(), true);
    await second.close();
  });
});

test("a file that is no database is refused, by name, and left as it is", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const text = "This is a letter, not a database. ".repeat(200);
    writeFileSync(path, text);
    await assert.rejects(openSqliteStore({ path, clock }), isConfigError("database_corrupt", path));
    assert.equal(readFileSync(path, "utf8"), text);
  });
});

test("a damaged database is refused, by name", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const store = await openSqliteStore({ path, clock });
    await store.insertOnce("c", "k", 1);
    await store.close();
    const bytes = readFileSync(path);
    bytes.fill(0xaa, 100, 4096);
    writeFileSync(path, bytes);
    await assert.rejects(openSqliteStore({ path, clock }), isConfigError("database_corrupt", path));
  });
});

for (const lost of ["missing", "empty"]) {
  test(`a database that is ${lost} beside a full log is refused, and the log stays`, async () => {
    await withTemporaryFolder(async (folder) => {
      const path = join(folder, "postern.db");
      const store = await openSqliteStore({ path, clock });
      await store.insertOnce("a", "b", { text: "kept" });
      const copy = join(folder, "copy.db");
      copyFileSync(`${path}-wal`, `${copy}-wal`);
      await store.close();
      if (lost === "empty") writeFileSync(copy, "");
      const log = readFileSync(`${copy}-wal`);
      await assert.rejects(openSqliteStore({ path: copy, clock }), isConfigError("database_corrupt", copy));
      assert.deepEqual(readFileSync(`${copy}-wal`), log);
      assert.equal(existsSync(copy), lost === "empty");
    });
  });
}

test("another program's database is refused and not changed", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const other = new DatabaseSync(path);
    other.exec("CREATE TABLE contacts (name TEXT)");
    other.close();
    const before = readFileSync(path);
    await assert.rejects(openSqliteStore({ path, clock }), isConfigError("database_corrupt", path));
    assert.deepEqual(readFileSync(path), before);
  });
});

test("a path that cannot be a file is refused, by name", async () => {
  await withTemporaryFolder(async (folder) => {
    const taken = join(folder, "taken");
    mkdirSync(taken, { mode: 0o755 });
    await assert.rejects(openSqliteStore({ path: taken, clock }), isConfigError("database_unusable", taken));
    assert.equal(modeOf(taken), 0o755);
    writeFileSync(join(folder, "file"), "");
    const below = join(folder, "file", "postern.db");
    await assert.rejects(openSqliteStore({ path: below, clock }), isConfigError("database_unusable", below));
  });
});

test("a newer database is refused with the version it needs, and not changed", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    await (await openSqliteStore({ path, clock })).close();
    const newer = new DatabaseSync(path);
    newer.exec("PRAGMA user_version = 99");
    newer.close();
    await assert.rejects(openSqliteStore({ path, clock }), (error) => {
      assert.ok(isConfigError("database_too_new", path)(error));
      assert.match(String(error), new RegExp(`version is 99.*up to ${migrations.length}\\b`));
      return true;
    });
    const after = new DatabaseSync(path);
    assert.equal(after.prepare("PRAGMA user_version").get()?.["user_version"], 99);
    after.close();
    assert.deepEqual(readdirSync(folder).filter((name) => name.includes("bak")), []);
  });
});

test("writes of one turn share commits, 64 at most in each", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    const store = await openSqliteStore({ path, clock });
    const commits = () => countCommits(readFileSync(`${path}-wal`));
    const before = commits();
    await Promise.all(Array.from({ length: 100 }, (_, index) => store.insertOnce("c", `k${index}`, index)));
    assert.equal(commits() - before, 2);
    await store.insertOnce("c", "alone", 1);
    assert.equal(commits() - before, 3);
    await store.close();
  });
});

/** Frames of a write-ahead log that end a transaction. Source: sqlite.org/fileformat2.html section 4.1 */
function countCommits(log: Uint8Array): number {
  const view = new DataView(log.buffer, log.byteOffset, log.byteLength);
  const pageBytes = view.getUint32(8);
  let commits = 0;
  for (let at = 32; at + 24 <= log.length; at += 24 + pageBytes) if (view.getUint32(at + 4) !== 0) commits++;
  return commits;
}

test("a database of each released version opens and keeps what it held", async () => {
  const fixtures = fileURLToPath(new URL("../../fixtures/databases", import.meta.url));
  for (const { version } of migrations) {
    assert.ok(existsSync(join(fixtures, `v${version}.db`)), `no fixture of version ${version}`);
  }
  for (const name of readdirSync(fixtures).filter((file) => file.endsWith(".db"))) {
    await withTemporaryFolder(async (folder) => {
      const path = join(folder, "postern.db");
      copyFileSync(join(fixtures, name), path);
      const store = await openSqliteStore({ path, clock });
      const tokens = await Tokens.open({ store, clock, random: createSeededRandom() });
      assert.deepEqual(tokens.verify(`pst_${"A".repeat(43)}`)?.scopes, ["chat"]);
      const [found] = await new Memory({ store, clock }).recall({ query: "scripts deploy" });
      assert.equal(found?.value, "The deploy script needs Node 24");
      const { tasks } = await new Plans({ store, clock }).list("fixture");
      assert.deepEqual(tasks.map(({ title, status }) => [title, status]), [["first", "completed"], [
        "second",
        "pending",
      ]]);
      assert.deepEqual((await store.read("fixture", { afterSeq: 0, limit: 10 })).map(({ body }) => body), [
        { v: 1, text: "one" },
        "true",
        123,
        null,
      ]);
      await store.close();
    });
  }
});

test("copies of the pages that a group changes are kept in memory, in no file of their own", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = openDatabase(join(folder, "postern.db"), migrations);
    assert.equal(database.prepare("PRAGMA temp_store").get()?.["temp_store"], 2);
    database.close();
  });
});
