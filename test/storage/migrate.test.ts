import assert from "node:assert/strict";
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { migrate, type Migration } from "../../lib/storage/sqlite/migrate.ts";
import { migrations } from "../../lib/storage/sqlite/migrations.ts";
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

function migrateFile(path: string, steps: readonly Migration[]): void {
  const database = new DatabaseSync(path);
  try {
    migrate(database, path, steps);
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

test("each step backs up what was before it, and the three newest backups stay", async () => {
  await withTemporaryFolder((folder) => {
    const path = join(folder, "x.db");
    migrateFile(path, STEPS.slice(0, 2));
    writeFileSync(join(folder, "x.db.bak-mine"), "not ours");
    migrateFile(path, STEPS);
    assert.deepEqual(stepsOf(path), [1, 2, 3, 4, 5, 6]);
    const backups = readdirSync(folder).filter((name) => /bak-\d/.test(name)).sort();
    assert.deepEqual(backups, ["x.db.bak-3", "x.db.bak-4", "x.db.bak-5"]);
    for (const name of backups) assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600);
    assert.deepEqual(stepsOf(join(folder, "x.db.bak-4")), [1, 2, 3, 4]);
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
