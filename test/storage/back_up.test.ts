import assert from "node:assert/strict";
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { backUp } from "../../lib/storage/back_up.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { COOKIE, gatewayOf, keysOf } from "../support/sealed_records.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const KEY = "browser_cookies.key";

/** Does something right after the copy of the records was made, as a gateway at work may. */
function afterCopy(work: () => void): { restore(): void } {
  const { prepare } = DatabaseSync.prototype;
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, text: string) {
    const statement = prepare.call(this, text);
    if (!text.startsWith("VACUUM INTO")) return statement;
    const copying = prepare.call(this, text);
    statement.run = (to) => {
      // The name of the copy, which is all that the statement is given
      const result = copying.run(to as string);
      work();
      return result;
    };
    return statement;
  };
  return { restore: () => void (DatabaseSync.prototype.prepare = prepare) };
}

/** Backs a data directory up, and returns the key files in the backup. @param work is done right after the copy of the records */
async function keysIn(dataDir: string, work: () => void): Promise<ReadonlyMap<string, Uint8Array>> {
  const to = join(dataDir, "kept.db");
  const after = afterCopy(work);
  try {
    await backUp(dataDir, to, { isInUse: true, async *parts() {} });
  } finally {
    after.restore();
  }
  const database = new DatabaseSync(to, { readOnly: true });
  try {
    const rows = database.prepare("SELECT name, content FROM backup_files ORDER BY name").all();
    return new Map(rows.map(({ name, content }) => [String(name), content as Uint8Array]));
  } finally {
    database.close();
    rmSync(to);
  }
}

const write = (path: string, key: number) => writeFileSync(path, new Uint8Array(32).fill(key), { mode: 0o600 });

test("a backup has the keys of its records, wherever a change of the key was during the copy", () =>
  withTemporaryFolder(async (dataDir) => {
    await (await openSqliteStore({ path: join(dataDir, "postern.db"), clock: createFakeClock() })).close();
    const [path, next] = [join(dataDir, KEY), join(dataDir, `${KEY}.next`)];
    const begin = (key = 2) => write(next, key);
    const end = () => renameSync(next, path);
    for (
      const [what, before, meanwhile, kept] of [
        ["no change", () => {}, () => {}, { [KEY]: 1 }],
        ["a key that was made meanwhile", () => rmSync(path), () => write(path, 1), { [KEY]: 1 }],
        ["a begin", () => {}, begin, { [KEY]: 1, [`${KEY}.next`]: 2 }],
        ["an end", begin, end, { [KEY]: 1, [`${KEY}.next`]: 2 }],
        ["begin and end", () => {}, () => (begin(), end()), { [KEY]: 1, [`${KEY}.next`]: 2 }],
        ["a change under way", begin, () => {}, { [KEY]: 1, [`${KEY}.next`]: 2 }],
      ] as const
    ) {
      write(path, 1);
      rmSync(next, { force: true });
      before();
      const found = [...await keysIn(dataDir, meanwhile)].map(([name, content]) => [name, content[0]]);
      assert.deepEqual(Object.fromEntries(found), kept, what);
    }
    write(path, 1);
    begin();
    await assert.rejects(keysIn(dataDir, () => (end(), begin(3))), {
      code: "database_unusable",
      message: /the key "browser_cookies\.key" was changed twice meanwhile; .*again/,
    });
    assert.ok(!existsSync(join(dataDir, "kept.db")), "nothing is left of it");
  }));

test("records that were encrypted before a rekey ended open with the keys of the backup", () =>
  withTemporaryFolder(async (folder) => {
    const [dataDir, restored] = [join(folder, "data"), join(folder, "restored")];
    for (const path of [dataDir, restored]) mkdirSync(path);
    const store = await openSqliteStore({ path: join(dataDir, "postern.db"), clock: createFakeClock() });
    const { jars, keys } = gatewayOf(store, keysOf(store, { dataDir }));
    await jars.set("conv_0", [COOKIE]);
    await keys.beginRekey();
    const path = join(dataDir, KEY);
    for (const [name, content] of await keysIn(dataDir, () => renameSync(`${path}.next`, path))) {
      writeFileSync(join(restored, name), content, { mode: 0o600 });
    }
    const { jars: kept } = gatewayOf(store, keysOf(store, { dataDir: restored }));
    assert.equal((await kept.get("conv_0"))[0]?.value, COOKIE.value);
    await store.close();
  }));
