import assert from "node:assert/strict";
import { copyFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Logger } from "../../lib/base/telemetry/log.ts";
import { Memory } from "../../lib/memory/memory.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { migrate, type Migration } from "../../lib/storage/sqlite/migrate.ts";
import { migrations } from "../../lib/storage/sqlite/migrations.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { runFixture } from "../support/run_fixture.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Each adds a row that tells its version. */
const STEPS: readonly Migration[] = [
  { version: 1, up: (database) => database.exec("CREATE TABLE steps (version INTEGER); INSERT INTO steps VALUES (1)") },
  ...[2, 3, 4, 5, 6].map((version) => ({
    version,
    up: (database: DatabaseSync) => database.exec(`INSERT INTO steps VALUES (${version})`),
  })),
];

function stepsOf(path: string): unknown[] {
  const database = new DatabaseSync(path);
  try {
    return database.prepare("SELECT version FROM steps ORDER BY version").all().map((row) => row["version"]);
  } finally {
    database.close();
  }
}

function migrateFile(path: string, steps: readonly Migration[], log?: Pick<Logger, "info">): void {
  const database = new DatabaseSync(path);
  try {
    migrate(database, path, steps, log);
  } finally {
    database.close();
  }
}

test("the migrations count from 1 without a gap", () => {
  assert.deepEqual(migrations.map(({ version }) => version), migrations.map((_, index) => index + 1));
});

test("a new database takes every step and needs no backup", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    migrateFile(path, STEPS.slice(0, 1));
    assert.deepEqual([stepsOf(path), readdirSync(folder)], [[1], ["x.db"]]);
  });
});

test("a step for which the disk has no room fails with that reason, and takes nothing", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    migrateFile(path, STEPS.slice(0, 1));
    const fills: Migration = {
      version: 2,
      up(database) {
        // SQLite rolls back by itself when it finds no room
        database.exec("INSERT INTO steps VALUES (2); PRAGMA max_page_count = 4");
        database.exec("INSERT INTO steps VALUES (zeroblob(100000))");
      },
    };
    assert.throws(() => migrateFile(path, [...STEPS.slice(0, 1), fills]), /full/);
    assert.deepEqual(stepsOf(path), [1]);
  });
});

test("an upgrade backs up once what was before its first step, and the three newest backups stay", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    migrateFile(path, STEPS.slice(0, 1));
    writeFileSync(join(folder, "x.db.bak-mine"), "not ours");
    const backups = () => readdirSync(folder).filter((name) => /bak-\d/.test(name)).sort();
    migrateFile(path, STEPS.slice(0, 2));
    migrateFile(path, STEPS.slice(0, 3));
    migrateFile(path, STEPS.slice(0, 5));
    assert.deepEqual(backups(), ["x.db.bak-1", "x.db.bak-2", "x.db.bak-3"]);
    migrateFile(path, STEPS);
    assert.deepEqual(stepsOf(path), [1, 2, 3, 4, 5, 6]);
    assert.deepEqual(backups(), ["x.db.bak-2", "x.db.bak-3", "x.db.bak-5"]);
    for (const name of backups()) assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600);
    assert.deepEqual(stepsOf(join(folder, "x.db.bak-3")), [1, 2, 3]);
    assert.ok(readdirSync(folder).includes("x.db.bak-mine"));
  });
});

test("a step that fails is taken back whole and can be tried again, over its half-written backup", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    migrateFile(path, STEPS.slice(0, 2));
    const failing: Migration = {
      version: 3,
      up(database) {
        database.exec("INSERT INTO steps VALUES (333)");
        database.exec("not SQL");
      },
    };
    assert.throws(() => migrateFile(path, [...STEPS.slice(0, 2), failing]));
    assert.deepEqual(stepsOf(path), [1, 2]);
    writeFileSync(join(folder, "x.db.bak-2"), "half a backup");
    migrateFile(path, STEPS.slice(0, 3));
    assert.deepEqual([stepsOf(path), stepsOf(join(folder, "x.db.bak-2"))], [[1, 2, 3], [1, 2]]);
  });
});

test("the steps of a new database are one transaction: where the last one fails, nothing is left", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    const failing: Migration = { version: 3, up: (database) => database.exec("not SQL") };
    assert.throws(() => migrateFile(path, [...STEPS.slice(0, 2), failing]));
    const database = new DatabaseSync(path);
    const left = database.prepare("SELECT count(*) AS n FROM sqlite_schema").get()?.["n"];
    database.close();
    assert.equal(left, 0);
    migrateFile(path, STEPS.slice(0, 3));
    assert.deepEqual(stepsOf(path), [1, 2, 3]);
  });
});

test("the log tells of each step, and of none of a new database", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    const told: unknown[] = [];
    const log = { info: (_message: string, fields?: Readonly<Record<string, unknown>>) => void told.push(fields) };
    migrateFile(path, STEPS.slice(0, 2), log);
    assert.deepEqual(told, []);
    migrateFile(path, STEPS.slice(0, 3), log);
    const step = { file: path, from_version: 2, to_version: 3 };
    assert.deepEqual(told, [step, step]);
  });
});

const TEXTS: readonly (readonly [key: string, value: string, query: string])[] = [
  ["zh", "数据库每天凌晨两点自动备份", "备份"],
  ["de", "Die Donaudampfschifffahrtsgesellschaft", "Schifffahrt"],
  ["en", "Deployments need two reviewers", "reviewing"],
];

/** Writes a database of version 3 with 1,200 memories, more than one page of the step to version 4, and one that is damaged. */
function writeVersion3(path: string): void {
  copyFileSync(fileURLToPath(new URL("../../fixtures/databases/v3.db", import.meta.url)), path);
  const database = new DatabaseSync(path);
  const insert = database.prepare(
    `INSERT INTO records (collection, key, version, body, searchable, created_at, updated_at)
     VALUES ('memory', ?, 1, ?, 1, 0, 0)`,
  );
  const put = (key: string, value: string) => {
    const time = "2026-01-01T00:00:00.000Z";
    const body = { v: 1, namespace: "default", key, value, tags: [], created_at: time, updated_at: time };
    insert.run(`default/${key}`, JSON.stringify(body));
  };
  database.exec("BEGIN");
  for (let index = 0; index < 1_200; index++) put(`filler${index}`, `nothing to see, number ${index}`);
  insert.run("default/damaged", '{"v":1,"key":"damaged"');
  for (const [key, value] of TEXTS) put(key, value);
  database.exec("COMMIT");
  database.close();
}

async function assertAllFound(path: string): Promise<void> {
  const clock = createFakeClock();
  const store = await openSqliteStore({ path, clock });
  const memory = new Memory({ store, clock });
  for (const [key, , query] of TEXTS) assert.equal((await memory.recall({ query }))[0]?.key, key, query);
  assert.equal((await memory.recall({ query: "number 1199" }))[0]?.key, "filler1199");
  assert.deepEqual(await memory.recall({ query: "damaged" }), []);
  assert.equal((await memory.recall({ query: "deploy script" }))[0]?.key, "deploy");
  // A memory that the step left out can be written and removed
  await memory.store({ key: "damaged", value: "whole again" });
  assert.equal((await memory.recall({ query: "whole again" }))[0]?.key, "damaged");
  for (const key of ["damaged", "zh"]) assert.ok(await memory.forget({ key }));
  assert.deepEqual(await memory.recall({ query: "备份" }), []);
  await store.close();
}

test("memories of version 3 are found by parts of words, forms and scripts without spaces after the step to version 4", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    writeVersion3(path);
    await assertAllFound(path);
  });
});

test("a migration that is killed before it is committed is done again by the next start", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.db");
    writeVersion3(path);
    const opener = runFixture("storage/migrating_opener.ts", path, "4");
    for await (const line of opener.lines) {
      assert.equal(line, "migrated");
      await opener.kill();
    }
    const database = new DatabaseSync(path);
    assert.equal(database.prepare("PRAGMA user_version").get()?.["user_version"], 3);
    database.close();
    await assertAllFound(path);
  });
});
