import assert from "node:assert/strict";
import { test } from "node:test";
import type { Finding } from "../../../cli/doctor/finding.ts";
import { freePort } from "../../support/free_port.ts";
import { NO_POSTGRES, withDatabase } from "../../support/postgres_server.ts";
import { openTestDatabase, openTestStore } from "../../support/postgres_stores.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const environmentOf = (url: string) => ({
  POSTERN__GATEWAY__PORT: "0",
  POSTERN__STORAGE__DRIVER: "postgres",
  POSTERN__STORAGE__URL_ENV: "RECORDS",
  RECORDS: url,
});

async function databaseFinding({ run }: Machine, url: string): Promise<Finding | undefined> {
  const { stdout } = await run(["doctor", "--json"], { env: environmentOf(url) });
  assert.ok(!stdout.includes(new URL(url).password), "the password is shown");
  return (JSON.parse(stdout) as { checks: readonly Finding[] }).checks.find(({ name }) => name === "database");
}

test(
  "doctor tells of the database on a PostgreSQL server, and makes nothing there",
  { skip: NO_POSTGRES },
  () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        const empty = await databaseFinding(machine, url);
        assert.equal(empty?.state, "ok");
        assert.match(empty.message, /^PostgreSQL \d+.* at 127\.0\.0\.1:\d+\/test_\w+: no schema "postern" yet/);
        const database = await openTestDatabase(url);
        const [found] = await database.query("SELECT count(*) AS n FROM pg_namespace WHERE nspname = 'postern'");
        assert.equal(found?.["n"], 0);
        const store = await openTestStore(database, "postern");
        const unsafe = await databaseFinding(machine, url);
        assert.equal(unsafe?.state, "warning");
        assert.match(unsafe.message, /loses what it has answered when its machine stops: fsync is off/);
        await database.query("UPDATE postern.schema_version SET version = 99");
        const newer = await databaseFinding(machine, url);
        assert.equal(newer?.state, "failure");
        assert.match(newer.message, /A newer Postern wrote .* version is 99/);
        await store.close();
      })
    ),
);

test("doctor names the key of an address where nobody answers", () =>
  onMachine(async (machine) => {
    const finding = await databaseFinding(machine, `postgres://me:of-nobody@127.0.0.1:${await freePort()}/x`);
    assert.deepEqual([finding?.state, finding?.fix], ["failure", "see storage.url_env"]);
    assert.match(
      finding?.message ?? "",
      /Cannot reach the database 127\.0\.0\.1:\d+\/x: .*ECONNREFUSED.*; see that the server runs/,
    );
  }));

test("backup, restore and repair leave PostgreSQL to its own tools, and name them", () =>
  onMachine(async ({ run }) => {
    const env = environmentOf("postgres://me:of-nobody@127.0.0.1:1/x");
    for (
      const [command, words] of [
        [["backup", "kept.db"], /pg_dump .*--schema=postern/],
        [["restore", "kept.db"], /pg_restore/],
        [["doctor", "--repair"], /psql/],
      ] as const
    ) {
      const { code, stderr } = await run([...command], { env });
      assert.equal(code, 1, stderr);
      assert.match(stderr, /storage\.driver/);
      assert.match(stderr, words);
      assert.doesNotMatch(stderr, /of-nobody/);
    }
  }));
