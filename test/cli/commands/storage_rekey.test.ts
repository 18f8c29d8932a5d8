import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { checkAll, fill, gatewayOf, K1, K2, keysOf } from "../../support/sealed_records.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

/** Uses the records of a machine on which no gateway runs. */
async function withRecords(
  { dataDir }: Machine,
  keys: Omit<Parameters<typeof keysOf>[1] & object, "dataDir">,
  use: (gateway: ReturnType<typeof gatewayOf>) => Promise<void>,
): Promise<void> {
  const store = await openSqliteStore({ path: join(dataDir, "postern.db"), clock: systemClock });
  try {
    await use(gatewayOf(store, keysOf(store, { ...keys, dataDir })));
  } finally {
    await store.close();
  }
}

test("storage rekey changes the key of all records, without a gateway, and another key ends with exit code 78", () =>
  onMachine(async (machine) => {
    const { run, dataDir } = machine;
    await run(["pair"]);
    await withRecords(machine, {}, fill);
    const before = readFileSync(join(dataDir, "agents_ipc.key"));
    const files = await run(["storage", "rekey"]);
    assert.deepEqual([files.code, files.stderr], [0, ""]);
    assert.match(files.stdout, /^Re-encrypted 6 records\nEvery record has the new key files of the data directory/);
    assert.notDeepEqual(readFileSync(join(dataDir, "agents_ipc.key")), before);
    await withRecords(machine, {}, checkAll);
    // From the files to a key of the environment, and from that to the next
    const first = { POSTERN__STORAGE__KEY_ENV: "RECORDS", RECORDS: K1 };
    const taken = await run(["storage", "rekey"], { env: first });
    assert.equal(taken.code, 0);
    const alone = "Every record has the key of storage.key_env. storage.old_key_env names no other key";
    assert.equal(taken.stdout, `Re-encrypted 6 records\n${alone}\n`);
    await withRecords(machine, { key: K1 }, checkAll);
    const next = { ...first, RECORDS: K2, OLD_RECORDS: K1, POSTERN__STORAGE__OLD_KEY_ENV: "OLD_RECORDS" };
    const changed = await run(["storage", "rekey", "--json"], { env: next });
    const done = { rewritten: 6, left: 0, unreadable: [], complete: true, old_key: "old_key_env" };
    assert.deepEqual(JSON.parse(changed.stdout), done);
    await withRecords(machine, { key: K2 }, checkAll);
    const again = await run(["storage", "rekey"], { env: next });
    assert.match(
      again.stdout,
      /^Re-encrypted 0 records\n.* No record needs the key of storage\.old_key_env any more\n$/,
    );
    const wrong = [
      [{ ...first, RECORDS: K1 }, /another key/],
      [{ ...first, RECORDS: "" }, /"RECORDS" is empty/],
      [{ ...first, RECORDS: "c2hvcnQtYW5kLXNlY3JldA==" }, /32 bytes in base64/],
    ] as const;
    for (const [env, reason] of wrong) {
      const { code, stderr, stdout } = await run(["gateway", "--port", "0"], { env });
      assert.equal(code, 78, stderr);
      assert.match(stderr, reason);
      for (const key of [K1, K2, "c2hvcnQtYW5kLXNlY3JldA=="]) assert.ok(!`${stderr}${stdout}`.includes(key));
    }
    const audit = await run(["audit", "show", "--type", "storage", "--json"], { env: next });
    const { records } = JSON.parse(audit.stdout) as { records: readonly Record<string, unknown>[] };
    assert.deepEqual(
      records.map(({ action, rewritten, left, complete }) => ({ action, rewritten, left, complete })),
      [6, 6, 6, 0].map((rewritten) => ({ action: "rekeyed", rewritten, left: 0, complete: true })),
    );
    // No key is in the audit, or anywhere in the database
    const text = readFileSync(join(dataDir, "postern.db")).toString("latin1");
    for (const key of [K1, K2]) assert.ok(!text.includes(key));
  }));
