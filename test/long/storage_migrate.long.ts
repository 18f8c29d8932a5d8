import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, chownSync, mkdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { readMovedMark } from "../../lib/storage/moving/moved_mark.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { type CliMachine, withCliMachine } from "../support/cli_process.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const KILLS = 30;
const MOVE = ["storage", "migrate", "--from", "sqlite", "--to", "postgres"];
const ODD = 'a\0b\ud800 "quoted" $1 \\ ü🥖';

const pathOf = ({ dataDir }: CliMachine) => join(dataDir, "postern.db");

/** Writes records with odd characters, texts, vectors and journals, and one of 10 MB. */
async function fill(path: string): Promise<void> {
  const store = await openSqliteStore({ path, clock: systemClock });
  await store.insertOnce("large", "body", ODD.repeat(10_000_000 / ODD.length));
  for (let index = 0; index < 3_000; index++) await store.insertOnce("documents", `d${index}/ü`, { index, ODD });
  for (let index = 0; index < 400; index++) {
    const [key, text] = [`default/${index}`, `the sourdough ${index} needs water`];
    const body = {
      ...{ v: 1, namespace: "default", key: String(index), value: text, tags: [] },
      ...{ created_at: "2026-01-01T00:00:00.000Z", updated_at: "2026-01-01T00:00:00.000Z" },
    };
    await store.batch([{ op: "put", collection: "memory", key, body, text }]);
    const values = Float32Array.from({ length: 64 }, (_, at) => Math.sin(index * at + 1));
    await store.batch([{ op: "vector", collection: "memory", key, version: 1, vector: { model: "m", values } }]);
  }
  for (let index = 0; index < 200; index++) await store.append(`run/${index}`, 0, [ODD, { index }, null]);
  await store.insertOnce("processes", "marker", { v: 1, marker: "gateway_of_a_test" });
  await store.close();
}

/** Rows of both sides, as digests in the same order. */
const ROWS = {
  records: "SELECT collection, key, version, body FROM records ORDER BY id",
  entries: "SELECT stream, seq, body FROM stream_records",
} as const;
const digestOf = (rows: readonly Record<string, unknown>[]) =>
  rows.map((row) => createHash("sha256").update(JSON.stringify(Object.values(row).map(String))).digest("hex"));

function rowsOfSource(path: string) {
  const file = new DatabaseSync(path, { readOnly: true });
  try {
    return {
      records: digestOf(file.prepare(ROWS.records).all()),
      entries: digestOf(file.prepare(ROWS.entries).all()).sort(),
    };
  } finally {
    file.close();
  }
}

describe("storage migrate", { skip: NO_POSTGRES }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres({ durable: true })));
  after(() => server.end());

  const rowsOfTarget = async (database: string) => {
    const rows = async (text: string) => digestOf(await server.run(text.replace("FROM ", "FROM postern."), database));
    return { records: await rows(ROWS.records), entries: (await rows(ROWS.entries)).sort() };
  };
  const environmentOf = (database: string, driver = "sqlite") => ({
    ...{ POSTERN__STORAGE__DRIVER: driver, POSTERN__STORAGE__URL_ENV: "RECORDS", RECORDS: server.url(database) },
    POSTERN__GATEWAY__PORT: "0",
  });

  test(`killed ${KILLS} times at any moment it loses nothing, and no gateway starts on either side meanwhile`, () =>
    withCliMachine(async (machine) => {
      const random = createSeededRandom(30);
      const path = pathOf(machine);
      await fill(path);
      let database = await server.createDatabase();
      let [kills, moves, longest] = [0, 0, 3_000];
      const refusedAt = async (driver: string, words: RegExp) => {
        const { ended } = machine.spawn(["gateway"], undefined, environmentOf(database, driver));
        const { code, stderr } = await ended;
        assert.ok(code === 78 || code === 1, `${driver}: ${code} ${stderr}`);
        assert.match(stderr, words);
      };
      for (let changes = 0; kills < KILLS || moves === 0;) {
        const begun = systemClock.monotonic();
        const { child, ended } = machine.spawn(MOVE, undefined, environmentOf(database));
        const isLast = kills >= KILLS;
        const wait = isLast ? Infinity : new DataView(random.bytes(4).buffer).getUint32(0) % longest;
        if (wait < Infinity) {
          await Promise.race([systemClock.sleep(wait), ended]);
          if (kills === 5 && child.exitCode === null) {
            await refusedAt("sqlite", /another gateway uses "|records were moved/);
          }
          child.kill("SIGKILL");
        }
        const { code, stderr } = await ended;
        if (code === null) {
          kills++;
          const [there] = await server.run(
            "SELECT to_regclass('postern.unfinished_move') IS NOT NULL AS open",
            database,
          );
          if (there?.["open"] === true && kills % 5 === 0) await refusedAt("postgres", /copy is not finished/);
          const isMarked = readMovedMark(path) !== undefined;
          if (isMarked) await refusedAt("sqlite", /records were moved/);
          // A gateway may have worked on the source between two tries
          if (!isMarked && kills % 7 === 0) {
            const store = await openSqliteStore({ path, clock: systemClock });
            await store.batch([{ op: "put", collection: "documents", key: "d7/ü", body: { changes: ++changes } }]);
            await store.insertOnce("documents", `new ${changes}`, { changes });
            await store.close();
          }
          continue;
        }
        assert.equal(code, 0, stderr);
        longest = Math.round((systemClock.monotonic() - begun) * 1.2) + 200;
        moves++;
        assert.deepEqual(await rowsOfTarget(database), rowsOfSource(path));
        for (const [name, count] of [["record_texts", 400], ["record_vectors", 400]] as const) {
          const [row] = await server.run(`SELECT count(*) AS n FROM postern.${name}`, database);
          assert.equal(Number(row?.["n"]), count, name);
        }
        const other = await machine.spawn(["storage", "unmark", "--yes"], undefined, environmentOf(database)).ended;
        assert.equal(other.code, 0, other.stderr);
        const full = await machine.spawn(MOVE, undefined, environmentOf(database)).ended;
        assert.equal(full.code, 78);
        assert.match(full.stderr, /holds records already/);
        database = await server.createDatabase();
      }
      console.log(`${kills} kills, ${moves} whole moves`);
    }));

  test("a disk of the server that is full stops it with the reason, and it goes on when there is room", (context) =>
    withCliMachine(async (machine) => {
      const place = join(server.folder, "small");
      mkdirSync(place);
      const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", place]);
      if (mounted.status !== 0) return context.skip("a small file system cannot be mounted here");
      try {
        const { uid, gid } = statSync(server.folder);
        chownSync(place, uid, gid);
        chmodSync(place, 0o700);
        const database = await server.createDatabase();
        await server.run(`CREATE TABLESPACE small LOCATION '${place}'`);
        await server.run(`ALTER DATABASE ${database} SET default_tablespace = small`);
        await fill(pathOf(machine));
        const move = () => machine.spawn(MOVE, undefined, environmentOf(database)).ended;
        const store = await openSqliteStore({ path: pathOf(machine), clock: systemClock });
        for (let index = 0; index < 40; index++) {
          await store.insertOnce(
            "large",
            `random ${index}`,
            Buffer.from(createSeededRandom(index).bytes(500_000)).toString("base64"),
          );
        }
        await store.close();
        const full = await move();
        assert.equal(full.code, 1, full.stderr);
        assert.match(full.stderr, /The move was cut off: .*No space left on device; run the same command again/);
        assert.equal(spawnSync("mount", ["-o", "remount,size=400m", place]).status, 0);
        const again = await move();
        assert.equal(again.code, 0, again.stderr);
        assert.deepEqual(await rowsOfTarget(database), rowsOfSource(pathOf(machine)));
        await server.dropDatabase(database);
        await server.run("DROP TABLESPACE small");
      } finally {
        spawnSync("umount", ["-l", place]);
        rmSync(place, { recursive: true, force: true });
      }
    }));
});
