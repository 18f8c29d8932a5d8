import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Finding } from "../../../cli/doctor/finding.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import type { PostgresDatabase } from "../../../lib/storage/postgres/postgres_database.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { freePort } from "../../support/free_port.ts";
import { NO_POOLER, withPooler } from "../../support/pgbouncer.ts";
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
        for (const name of ["sop_executions", "audit_head", "open_approvals", "processes", "runs", "tokens", "plans"]) {
          await store.batch([{ op: "put", collection: name, key: "one", body: { v: 9 } }]);
        }
        const { stdout } = await machine.run(["doctor", "--json"], { env: environmentOf(url) });
        assert.match(
          stdout,
          /7 damaged records that cannot be read: (\w+ one \([^)]+\), ){5}and 2 more of \w+, \w+/,
        );
        await database.query("UPDATE postern.schema_version SET version = 99");
        const newer = await databaseFinding(machine, url);
        assert.equal(newer?.state, "failure");
        assert.match(newer.message, /its version is 99, and this Postern knows versions up to \d+$/);
        assert.match(newer.fix ?? "", /^run the Postern that needs version 99, or name another by storage\.schema$/);
        await store.close();
      })
    ),
);

/** Findings of one name that are no `ok`, such as `state: message -> fix`. */
async function problems(
  { run }: Machine,
  name: string,
  env: Readonly<Record<string, string>>,
): Promise<readonly string[]> {
  const { stdout } = await run(["doctor", "--json"], { env });
  return (JSON.parse(stdout) as { checks: readonly Finding[] }).checks
    .filter((found) => found.name === name && found.state !== "ok" && !found.message.includes("fsync is off"))
    .map(({ state, message, fix }) => `${state}: ${message} -> ${fix}`);
}

test(
  "doctor refuses the keys that a start refuses, and takes no first key over",
  { skip: NO_POSTGRES },
  () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        const env = environmentOf(url);
        const [first, other] = [1, 2].map((fill) => Buffer.alloc(32, fill).toString("base64"));
        const withKey = (key = "") => ({ ...env, POSTERN__STORAGE__KEY_ENV: "KEY", KEY: key });
        const store = await openTestStore(await openTestDatabase(url), "postern");
        assert.deepEqual(await problems(machine, "database", withKey(first)), []);
        assert.equal(await store.get("storage_keys", "current"), undefined);
        await machine.withGateway([], async () => {
          const [elsewhere = ""] = await problems(machine, "database", env);
          assert.match(
            elsewhere,
            /^warning: The running gateway has its key, and a start from this terminal is refused: /,
          );
        }, { env: withKey(first) });
        assert.deepEqual(await problems(machine, "database", withKey(first)), []);
        for (
          const [given, message] of [
            [
              withKey(other),
              /^failure: .*encrypted with another key -> give that one, or name it by storage\.old_key_env/,
            ],
            [env, /^failure: .*with a key that other gateways have -> set it to the name of a variable with that key/],
            [withKey("short"), /^failure: .*"KEY" does not hold 32 bytes in base64 -> `openssl rand/],
          ] as const
        ) {
          const found = await problems(machine, "database", given);
          assert.equal(found.length, 1, found.join("\n"));
          assert.match(found[0] ?? "", message);
          const start = await machine.run(["gateway"], { env: given });
          assert.equal(start.code, 78, "the start has another opinion");
        }
        await store.close();
      })
    ),
);

test(
  "doctor refuses an unfinished move, and a user without the rights that a start needs",
  { skip: NO_POSTGRES },
  () =>
    onMachine((machine) =>
      withDatabase(async (url, server) => {
        const name = new URL(url).pathname.slice(1);
        const run = (text: string) => server.run(text, name);
        await run(`CREATE ROLE "poor_${name}" LOGIN PASSWORD 'poor'`);
        try {
          const poor = new URL(url);
          poor.username = `poor_${name}`;
          poor.password = "poor";
          const told = async (of = poor.href) => {
            const found = await problems(machine, "database", environmentOf(of));
            const start = found.length === 0 ? undefined : await machine.run(["gateway"], { env: environmentOf(of) });
            assert.equal(start?.code, found.length === 0 ? undefined : 78, start?.stderr);
            assert.deepEqual(
              (await clusterFindings(machine, environmentOf(of))).filter(([state]) => state !== "ok"),
              [],
            );
            return found.join("\n");
          };
          assert.match(
            await told(),
            /^failure: .* the user may not make it -> grant CREATE on the database, or name another/,
          );
          await run("CREATE SCHEMA postern");
          assert.match(await told(), /^failure: .* the user may not use it -> grant USAGE and CREATE on it/);
          await run(`GRANT USAGE ON SCHEMA postern TO "poor_${name}"`);
          assert.match(await told(), /^failure: .* the user may not create tables there -> grant CREATE on it/);
          await run(`DROP SCHEMA postern`);
          await (await openTestStore(await openTestDatabase(url), "postern")).close();
          await run(`GRANT USAGE ON SCHEMA postern TO "poor_${name}"`);
          await run(`GRANT SELECT ON ALL TABLES IN SCHEMA postern TO "poor_${name}"`);
          assert.match(await told(), /^failure: .* the user may not change its tables -> make the user their owner/);
          await run("CREATE TABLE postern.unfinished_move (id text)");
          assert.match(
            await told(url),
            /^failure: .*records are copied into it, and the copy is not finished -> run postern storage migrate/,
          );
          assert.deepEqual(await clusterFindings(machine, environmentOf(url)), []);
        } finally {
          await run(`DROP OWNED BY "poor_${name}"; DROP ROLE "poor_${name}"`);
        }
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

test("the address of a database before a move to it is said to be for that, there and at a start", () =>
  onMachine(async (machine) => {
    const env = { ...environmentOf("postgres://me:of-nobody@127.0.0.1:1/x"), POSTERN__STORAGE__DRIVER: "sqlite" };
    const { stdout } = await machine.run(["doctor", "--json"], { env });
    const found = (JSON.parse(stdout) as { checks: readonly Finding[] }).checks.find(({ state, name }) =>
      state === "warning" && name === "configuration"
    );
    const message = '"storage.url_env" does nothing for the gateway, since storage.driver is "sqlite": it is for ' +
      'postern storage migrate and storage.driver = "postgres"';
    assert.equal(found?.message, message);
    assert.equal(
      found.fix,
      "postern storage migrate --from sqlite --to postgres, then postern config set storage.driver postgres; else " +
        "take storage.url_env out of the configuration",
    );
    const { stderr } = await machine.withGateway([], () => Promise.resolve(), { env });
    assert.ok(stderr.includes(message), stderr);
  }));

test("backup and restore leave PostgreSQL to its own tools, and name them", () =>
  onMachine(async ({ run }) => {
    const env = environmentOf("postgres://me:of-nobody@127.0.0.1:1/x");
    for (
      const [command, words] of [
        [["backup", "kept.db"], /pg_dump .*--schema=postern/],
        [
          ["restore", "kept.db"],
          /'DROP SCHEMA IF EXISTS postern CASCADE', pg_restore .*postern storage hold \(docs\/deployment\.md, "Backup of a cluster"\)/,
        ],
      ] as const
    ) {
      const { code, stderr } = await run([...command], { env });
      assert.equal(code, 1, stderr);
      assert.match(stderr, /storage\.driver/);
      assert.match(stderr, words);
      assert.doesNotMatch(stderr, /of-nobody/);
    }
  }));

/** Writes records of which some are damaged. @returns those that a repair leaves, by collection */
async function damage(store: Store, database: PostgresDatabase): Promise<Readonly<Record<string, readonly string[]>>> {
  const bodies = { good: { v: 1 }, bad: { v: 9 } };
  for (const [key, body] of Object.entries(bodies)) {
    await store.batch([
      { op: "put", collection: "runs", key: "run_bad", body },
      { op: "put", collection: "open_approvals", key: `approval_${key}`, body },
      { op: "put", collection: "memory", key: `default/${key}`, body: {}, text: "a word" },
      { op: "put", collection: "of_another_program", key, body },
    ]);
  }
  for (const collection of ["run_inputs", "open_runs", "run_claims", "run_signals"]) {
    await store.batch([{ op: "put", collection, key: "run_bad", body: { v: 1 } }]);
  }
  await store.append("run/run_bad", 0, [{ v: 9, text: "of the journal" }, { v: 9 }]);
  await store.append("notes/kept", 0, [1, 2]);
  await database.query("UPDATE postern.records SET body = '{ no JSON' WHERE key = 'bad'");
  return {
    ...{ runs: [], run_inputs: [], open_runs: [], run_claims: [], run_signals: [], memory: [] },
    ...{ open_approvals: ["approval_bad", "approval_good"], of_another_program: ["good"] },
  };
}

test(
  "doctor --repair removes damaged records of PostgreSQL with what belongs to them, keeps them in a file, and waits for gateways",
  { skip: NO_POSTGRES },
  () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        const env = environmentOf(url);
        const repair = () => machine.run(["doctor", "--repair", "--json"], { env });
        const database = await openTestDatabase(url);
        const store = await openTestStore(database, "postern");
        await store.insertOnce("storage_keys", "current", { v: 1, check: "c" });
        const nothing = await repair();
        assert.equal(nothing.code, 0, nothing.stderr);
        assert.deepEqual(JSON.parse(nothing.stdout), { backup: null, removed: [], finished: true });
        const left = await damage(store, database);
        // A file that was moved long ago is none of it
        writeFileSync(join(machine.dataDir, "postern.db"), "garbage");

        const about = { host: "web-1", pid: 7, version: "1.0.0", started_at: "2026-01-01T00:00:00.000Z" };
        for (
          const [body, words] of [
            [
              { v: 1, fence: 1, until: systemClock.now() + 9_000, about },
              /gateway gw_1 on web-1 \(process 7\) uses the database/,
            ],
            [{ v: 9 }, /gateway gw_1 uses the database; stop it, or wait \d+ s/],
          ] as const
        ) {
          await store.batch([{ op: "put", collection: "gateway_leases", key: "gw_1", body }]);
          const refused = await repair();
          assert.equal(refused.code, 1);
          assert.match(refused.stderr, words);
        }
        await database.query("UPDATE postern.records SET updated_at = 0 WHERE collection = 'gateway_leases'");
        const repaired = await repair();
        assert.equal(repaired.code, 0, repaired.stderr);
        const { backup, removed } = JSON.parse(repaired.stdout) as {
          backup: string;
          removed: { collection: string }[];
        };
        assert.deepEqual(
          new Set(removed.map(({ collection }) => collection)),
          new Set([
            ...["gateway_leases", "memory", "of_another_program", "open_approvals"],
            ...["run/run_bad", "run_claims", "run_inputs", "runs"],
          ]),
        );
        for (const [collection, keys] of Object.entries(left)) {
          const found = await store.scan(collection, { limit: 10 });
          assert.deepEqual(found.map(({ key }) => key), keys, collection);
        }
        assert.deepEqual(await store.read("run/run_bad", { afterSeq: 0, limit: 10 }), []);
        assert.equal((await store.read("notes/kept", { afterSeq: 0, limit: 10 })).length, 2);
        const [index] = await database.query("SELECT count(*) AS n FROM postern.record_texts");
        assert.equal(index?.["n"], 0, "the search still has a text of a record that is gone");
        assert.equal(statSync(backup).mode & 0o777, 0o600);
        const kept = readFileSync(backup, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
        for (const body of ["{ no JSON", '{"v":9,"text":"of the journal"}', '{"v":1}']) {
          assert.ok(kept.some((row) => row.body === body), `${body} is not in the file`);
        }
        assert.deepEqual(JSON.parse((await repair()).stdout), { backup: null, removed: [], finished: true });
        await store.close();
      })
    ),
);

async function clusterFindings(
  { run }: Machine,
  env: Readonly<Record<string, string>>,
): Promise<readonly (readonly [string, string])[]> {
  const { stdout } = await run(["doctor", "--json"], { env });
  return (JSON.parse(stdout) as { checks: readonly Finding[] }).checks
    .filter(({ name }) => name === "cluster").map(({ state, message }) => [state, message]);
}

test(
  "doctor tells what is wrong with a cluster, each thing by name",
  { skip: NO_POSTGRES },
  () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        const env = environmentOf(url);
        assert.deepEqual(await clusterFindings(machine, env), [], "nobody has made tables");
        const database = await openTestDatabase(url);
        const store = await openTestStore(database, "postern");
        assert.deepEqual(await clusterFindings(machine, env), [
          ["ok", "No gateway has a lease; 0 open runs, 0 wait for a gateway"],
        ]);
        const now = Date.now();
        const putLease = (id: string, leftMs: number, more: Readonly<Record<string, unknown>> = {}, about = {}) =>
          store.batch([
            {
              op: "put",
              collection: "gateway_leases",
              key: id,
              body: {
                ...{ v: 1, fence: 1, until: now + leftMs, ...more },
                about: { host: "web-1", pid: 7, version: "1.0.0", started_at: "2026-01-01T00:00:00.000Z", ...about },
              },
            },
            { op: "put", collection: "gateway_fences", key: id, body: { v: 1 } },
          ]);
        await putLease("gw_well", 9_000);
        assert.deepEqual(await clusterFindings(machine, env), [
          ["ok", "1 gateway has a lease; 0 open runs, 0 wait for a gateway"],
        ]);

        const openClaim = { v: 1, gateway: null, fence: 0, conversation_id: null, parent_id: null };
        await store.batch([{ op: "put", collection: "run_claims", key: "run_open", body: openClaim }]);
        assert.deepEqual(await clusterFindings(machine, env), [
          ["ok", "1 gateway has a lease; 1 open run, 1 waits for a gateway"],
        ]);

        await putLease("gw_late", -60_000);
        await putLease("gw_long", 900_000, { drain: "drained" }, {
          version: "1.1.0",
          advertise_url: "https://web-2.example",
        });
        const claim = {
          v: 1,
          gateway: "gw_lost",
          fence: 3,
          conversation_id: null,
          parent_id: null,
          workspace: "office",
        };
        await store.batch([{ op: "put", collection: "run_claims", key: "run_left", body: claim }]);
        const gone = { v: 1, gone: true };
        await store.batch([{ op: "put", collection: "gateway_fences", key: "gw_lost", body: gone }]);
        const found = await clusterFindings(machine, { ...env, POSTERN__STORAGE__POOL_SIZE: "100" });
        const expected = [
          /^The lease of gw_late \(web-1:7\) has run out/,
          /^Runs of gw_lost, which is gone, wait/,
          /^gw_long \(web-1:7\) is drained/,
          /^Gateways run different versions: 1\.0\.0 \(gw_\w+\), 1\.1\.0 \(gw_long\)$/,
          /^gw_late .*, gw_well .* has no cluster\.advertise_url/,
          /^gw_long .* has another cluster\.lease_secs \(\d+ s\) than this configuration \(10 s\)$/,
          /^gw_long .* has cluster\.advertise_url, and this configuration has no cluster\.token_env$/,
          /^3 gateways may open 309 connections \(storage\.pool_size 100\), and the server takes \d+/,
        ];
        assert.deepEqual(found.map(([state]) => state), expected.map(() => "warning"));
        for (const [at, pattern] of expected.entries()) assert.match(found[at]?.[1] ?? "", pattern);
        await store.close();
      })
    ),
);

test(
  "doctor names the hold of open work first where no gateway lives, as after pg_restore",
  { skip: NO_POSTGRES },
  () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        const store = await openTestStore(await openTestDatabase(url), "postern");
        const about = { host: "web-1", pid: 7, version: "1.0.0", started_at: "2026-01-01T00:00:00.000Z" };
        const lease = { v: 1, fence: 1, until: systemClock.now() - 60_000, about };
        const claim = { v: 1, gateway: "gw_lost", fence: 3, conversation_id: null, parent_id: null };
        await store.batch([
          { op: "put", collection: "gateway_leases", key: "gw_late", body: lease },
          { op: "put", collection: "gateway_fences", key: "gw_late", body: { v: 1 } },
          { op: "put", collection: "gateway_fences", key: "gw_lost", body: { v: 1, gone: true } },
          { op: "put", collection: "run_claims", key: "run_left", body: claim },
        ]);
        const fixes = async () => {
          const { stdout } = await machine.run(["doctor", "--json"], { env: environmentOf(url) });
          const { checks } = JSON.parse(stdout) as { checks: readonly Finding[] };
          return checks.filter(({ name, state }) => name === "cluster" && state === "warning").map(({ fix }) =>
            fix ?? ""
          );
        };
        const alone = await fixes();
        assert.equal(alone.length, 2);
        for (const fix of alone) {
          assert.match(fix, /^after pg_restore: postern storage hold, before a gateway starts; else start a gateway: /);
        }
        const alive = { ...lease, until: systemClock.now() + 9_000 };
        await store.batch([
          { op: "put", collection: "gateway_leases", key: "gw_well", body: alive },
          { op: "put", collection: "gateway_fences", key: "gw_well", body: { v: 1 } },
        ]);
        assert.doesNotMatch((await fixes()).join(), /pg_restore/);
        await store.close();
      })
    ),
);

test(
  "doctor finds a pooler in transaction mode that no address leads past",
  { skip: NO_POOLER },
  () =>
    onMachine((machine) =>
      withDatabase((url) =>
        withPooler(url, async (port) => {
          const pooled = new URL(url);
          pooled.port = String(port);
          const behind = environmentOf(pooled.href);
          const [alone] = await clusterFindings(machine, behind);
          assert.equal(alone?.[0], "failure");
          assert.match(alone[1], /a pooler in transaction mode, and storage\.direct_url_env names no address past it/);
          const past = { ...behind, POSTERN__STORAGE__DIRECT_URL_ENV: "DIRECT", DIRECT: url };
          assert.deepEqual(await clusterFindings(machine, past), []);
          const elsewhere = new URL(url);
          elsewhere.pathname = "/postgres";
          const [other] = await clusterFindings(machine, { ...past, DIRECT: elsewhere.href });
          assert.equal(other?.[1], "The address and storage.direct_url_env lead to different databases");
        })
      )
    ),
);
