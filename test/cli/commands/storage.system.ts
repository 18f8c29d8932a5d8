import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { toldProgress } from "../../../cli/commands/storage.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { withCliMachine } from "../../support/cli_process.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { NO_POSTGRES, withDatabase } from "../../support/postgres_server.ts";
import { openTestDatabase, openTestStore } from "../../support/postgres_stores.ts";
import { until } from "../../support/until.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const MOVE = ["storage", "migrate", "--from", "sqlite", "--to", "postgres"];
const environmentOf = (url: string, driver = "sqlite") => ({
  POSTERN__GATEWAY__PORT: "0",
  POSTERN__STORAGE__DRIVER: driver,
  POSTERN__STORAGE__URL_ENV: "RECORDS",
  RECORDS: url,
});

async function fill({ run, dataDir }: Machine): Promise<void> {
  await run(["token", "list"]);
  const store = await openSqliteStore({ path: join(dataDir, "postern.db"), clock: systemClock });
  await store.insertOnce("documents", "one", { v: 1, text: "kept" });
  await store.close();
  writeFileSync(join(dataDir, "agents_ipc.key"), new Uint8Array(32), { mode: 0o600 });
}

test("a long move tells how far it is every 2 seconds, and that the copy is complete", async () => {
  const clock = createFakeClock();
  const said: string[] = [];
  const tell = toldProgress((line) => void said.push(line), clock);
  for (const copied of [0, 500, 1_000, 1_500, 2_000, 2_500, 2_766]) {
    tell({ step: "copy", copied, of: 2_766 });
    await clock.advance(700);
  }
  tell({ step: "verify" });
  assert.deepEqual(said, [
    "Copied 1500 of 2766 records and entries",
    "Copied 2766 of 2766 records and entries",
    "Reading both sides again, to compare counts and digests",
  ]);
  // A move that is done at once has no progress to tell
  said.length = 0;
  const tellShort = toldProgress((line) => void said.push(line), clock);
  for (const copied of [0, 7]) tellShort({ step: "copy", copied, of: 7 });
  assert.deepEqual(said, []);
});

describe("storage migrate and unmark", { skip: NO_POSTGRES }, () => {
  test("moves the records, says what stays, and leaves a source that everything refuses until unmark", () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        await fill(machine);
        const env = environmentOf(url);
        const planned = await machine.run([...MOVE, "--dry-run"], { env });
        assert.equal(planned.code, 0, planned.stderr);
        assert.match(
          planned.stdout,
          /^Would move \d+ records and \d+ entries .* to the schema "postern" of the database/,
        );
        const moved = await machine.run(MOVE, { env });
        assert.equal(moved.code, 0, moved.stderr);
        assert.match(moved.stdout, /^Moved \d+ records, \d+ entries of \d+ journals/);
        assert.match(moved.stderr, /digests are the same on both sides/);
        assert.match(moved.stderr, /postern config set storage\.driver postgres/);
        assert.match(
          moved.stderr,
          /agents_ipc\.key +opens records that were encrypted here: set storage\.key_env.* postern storage rekey/,
        );
        for (const { stdout, stderr } of [planned, moved]) {
          assert.ok(!`${stdout}${stderr}`.includes(new URL(url).password), "the password is shown");
        }
        for (
          const [command, code, words] of [
            [
              ["token", "list"],
              78,
              /records were moved to .* set storage\.driver = "postgres".* postern storage unmark/,
            ],
            [["gateway", "--port", "0"], 78, /postern storage unmark/],
            [["backup", "kept.db"], 78, /its records were moved to PostgreSQL/],
            [["doctor", "--repair"], 78, /postern storage unmark/],
          ] as const
        ) {
          const refused = await machine.run([...command], { env });
          assert.equal(refused.code, code, `${command.join(" ")}: ${refused.stderr}`);
          assert.match(refused.stderr, words);
        }
        const doctor = await machine.run(["doctor", "--json"], { env });
        const checks = (JSON.parse(doctor.stdout) as { checks: { name: string; state: string; fix: string }[] }).checks;
        const finding = checks.find(({ name }) => name === "database");
        assert.deepEqual([finding?.state, /unmark/.test(finding?.fix ?? "")], ["failure", true]);
        const again = await machine.run([...MOVE, "--json"], { env });
        assert.equal((JSON.parse(again.stdout) as { copied: unknown }).copied, null, "what was done is done");
        const paired = await machine.run(["token", "list"], { env: environmentOf(url, "postgres") });
        assert.equal(paired.code, 0, paired.stderr);

        const unasked = await machine.run(["storage", "unmark"], { env });
        assert.equal(unasked.code, 1);
        assert.match(unasked.stderr, /two truths.* give --yes once no gateway uses the copy/s);
        const refused = await machine.run(["storage", "unmark"], { env, answers: ["n"] });
        assert.equal(refused.code, 1);
        assert.equal((await machine.run(["token", "list"], { env })).code, 78);
        const unmarked = await machine.run(["storage", "unmark", "--yes"], { env });
        assert.equal(unmarked.code, 0, unmarked.stderr);
        assert.equal((await machine.run(["token", "list"], { env })).code, 0);
        const nothing = await machine.run(["storage", "unmark", "--json"], { env });
        assert.deepEqual([nothing.code, JSON.parse(nothing.stdout)], [0, { unmarked: false }]);
        const used = await machine.run(MOVE, { env });
        assert.equal(used.code, 78);
        assert.match(used.stderr, /holds records already/);
      })
    ));

  test("doctor --repair takes a text away that no move can copy, also where the configuration names PostgreSQL already", () =>
    onMachine((machine) =>
      withDatabase(async (url) => {
        await fill(machine);
        const file = new DatabaseSync(join(machine.dataDir, "postern.db"));
        file.exec("UPDATE records SET body = CAST(x'22ff22' AS TEXT) WHERE key = 'one'");
        file.close();
        const env = environmentOf(url, "postgres");
        for (const copies of [0, 1]) {
          const refused = await machine.run(MOVE, { env });
          assert.equal(refused.code, 78, refused.stderr);
          assert.match(refused.stderr, /record "one" of "documents".*postern doctor --repair removes it/);
          if (copies === 0) continue;
          const repaired = await machine.run(["doctor", "--repair", "--json"], { env });
          assert.equal(repaired.code, 0, repaired.stderr);
          const { removed } = JSON.parse(repaired.stdout) as { removed: readonly { key: string; reason: string }[] };
          assert.deepEqual(removed.map(({ key, reason }) => [key, reason]), [["one", "its text is damaged"]]);
        }
        const moved = await machine.run(MOVE, { env });
        assert.equal(moved.code, 0, moved.stderr);
        const nothing = await machine.run(["doctor", "--repair"], { env });
        assert.deepEqual([nothing.code, nothing.stdout], [0, "Every record can be read: nothing was changed\n"]);
      })
    ));

  test("killed with kill -9 wherever it is, it goes on when it is run again", () =>
    withCliMachine((machine) =>
      withDatabase(async (url) => {
        const path = join(machine.dataDir, "postern.db");
        const source = await openSqliteStore({ path, clock: systemClock });
        const body = "x\0\ud800".repeat(20_000);
        for (let index = 0; index < 60; index++) await source.insertOnce("documents", `d${index}`, { index, body });
        for (let index = 0; index < 30; index++) await source.append(`journal/${index}`, 0, [{ index, body }]);
        const wanted = await source.scan("documents", { order: "created", limit: 1000 });
        await source.close();
        const env = environmentOf(url);
        const database = await openTestDatabase(url);
        let kills = 0;
        for (const wait of [1, 20, 45]) {
          const { child, ended } = machine.spawn(MOVE, undefined, env);
          await until(async () => {
            if (child.exitCode !== null) return true;
            const [row] = await database.query(
              "SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'postern' AND tablename = 'unfinished_move'",
            );
            if (row?.["n"] === 0) return false;
            const [copied] = await database.query("SELECT count(*) AS n FROM postern.records").catch(() => []);
            return Number(copied?.["n"] ?? 0) >= wait;
          });
          child.kill("SIGKILL");
          if ((await ended).code === null) kills++;
        }
        assert.ok(kills > 0, "it was never killed");
        const { ended } = machine.spawn([...MOVE, "--json"], undefined, env);
        const { code, stderr, stdout } = await ended;
        assert.equal(code, 0, stderr);
        const { copied } = JSON.parse(stdout) as { copied: { streams: { entries: number } } | null };
        assert.ok(copied === null || copied.streams.entries === 30);
        const store = await openTestStore(database, "postern");
        assert.deepEqual(await store.scan("documents", { order: "created", limit: 1000 }), wanted);
        assert.equal((await store.read("journal/29", { afterSeq: 0, limit: 10 })).length, 1);
        await store.close();
      })
    ));
});

test("storage migrate says what it cannot do, and how it is asked", () =>
  onMachine(async ({ run, dataDir }) => {
    const env = environmentOf("postgres://me:of-nobody@127.0.0.1:1/x");
    for (
      const [argv, code, words, further] of [
        [["storage", "migrate"], 2, /--from and --to are missing/, {}],
        [
          ["storage", "migrate", "--from", "postgres", "--to", "sqlite"],
          2,
          /there is just .*--to postgres; .*unmark/,
          {},
        ],
        [MOVE, 78, /just one of storage\.url.* none is set/, { POSTERN__STORAGE__URL_ENV: "" }],
        [MOVE, 78, /environment variable "RECORDS" is empty/, { RECORDS: "" }],
        [MOVE, 78, /Cannot reach the database 127\.0\.0\.1:1\/x/, {}],
        [["storage", "unmark", "--yes"], 0, /^$/, {}],
      ] as const
    ) {
      const finished = await run([...argv], { env: { ...env, ...further } });
      assert.equal(finished.code, code, finished.stderr);
      assert.match(finished.stderr, words);
      assert.doesNotMatch(finished.stderr, /of-nobody/);
    }
    assert.ok(!existsSync(join(dataDir, "postern.db")), "nothing is made");
    const lock = takeGatewayLock(dataDir);
    const held = await run(MOVE, { env });
    assert.equal(held.code, 1);
    assert.match(held.stderr, /a gateway, a node or another command uses it; postern daemon stop/);
    lock?.release();
    rmSync(dataDir, { recursive: true, force: true });
  }));

/** Commands that look at the database of the data directory, each before it needs a server. */
const LOOKING = [MOVE, [...MOVE, "--dry-run"], ["storage", "unmark", "--yes"], ["backup", "kept.db"]];

for (const lost of ["missing", "empty"]) {
  test(`a move, an unmark and a backup refuse a database that is ${lost} beside a full log, and keep the log`, () =>
    onMachine(async ({ run, dataDir, home }) => {
      const env = environmentOf("postgres://me:of-nobody@127.0.0.1:1/x");
      const [path, open] = [join(dataDir, "postern.db"), join(home, "open.db")];
      mkdirSync(dataDir, { recursive: true, mode: 0o700 });
      const store = await openSqliteStore({ path: open, clock: systemClock });
      await store.insertOnce("documents", "one", { v: 1, text: "kept" });
      copyFileSync(`${open}-wal`, `${path}-wal`);
      await store.close();
      if (lost === "empty") writeFileSync(path, "");
      const log = readFileSync(`${path}-wal`);
      for (const argv of LOOKING) {
        const refused = await run([...argv], { env });
        assert.equal(refused.code, 78, `${argv.join(" ")}: ${refused.stderr}`);
        assert.match(refused.stderr, /missing or empty, and its log .* put the database back beside its log/);
        assert.deepEqual(readFileSync(`${path}-wal`), log, argv.join(" "));
      }
    }));
}

test("a move and an unmark of a damaged file say the way out", () =>
  onMachine(async ({ run, dataDir }) => {
    const env = environmentOf("postgres://me:of-nobody@127.0.0.1:1/x");
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    writeFileSync(join(dataDir, "postern.db"), "garbage".repeat(1_000));
    for (const argv of [MOVE, [...MOVE, "--dry-run"], ["storage", "unmark", "--yes"]]) {
      const { code, stderr } = await run([...argv], { env });
      assert.equal(code, 78, stderr);
      assert.match(stderr, /damaged or no database .*; restore a backup with postern restore <file>/);
    }
  }));
