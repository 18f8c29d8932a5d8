import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createSystemRandom } from "../../../lib/base/random.ts";
import { Leases } from "../../../lib/cluster/leases.ts";
import {
  type MoveOptions,
  type MoveProgress,
  moveRecords,
  planMove,
} from "../../../lib/storage/moving/move_records.ts";
import { readMovedMark, unmarkMoved } from "../../../lib/storage/moving/moved_mark.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { DatabaseAwayError } from "../../../lib/storage/postgres/database_errors.ts";
import type { DedicatedSession } from "../../../lib/storage/postgres/dedicated_session.ts";
import type { PostgresDatabase } from "../../../lib/storage/postgres/postgres_database.ts";
import { quoteName } from "../../../lib/storage/postgres/statement_text.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { NO_POSTGRES } from "../../support/postgres_server.ts";
import { openLink } from "../../support/postgres_gateways.ts";
import { openTestDatabase, openTestStore, withSchema } from "../../support/postgres_stores.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const TEXTS = [
  "the sourdough needs water",
  "a hike in the mountains",
  "water for the mountain garden",
  "ein Brot backen",
];
const VECTOR = { model: 'openai/ü " model', values: Float32Array.of(1, 2, 3) };
const ODD = { text: 'a\0b\ud800 "quoted" $1 $p0$ \\ ?', list: [null, 1.5e300, "ü🥖"] };

/** Writes what a store may hold: other versions than 1, gaps in the ids, odd characters, texts, vectors, indexed fields, streams. */
async function fill(path: string, { largeBytes = 7 }: { readonly largeBytes?: number } = {}): Promise<void> {
  const store = await openSqliteStore({ path, clock: systemClock });
  for (let index = 0; index < 30; index++) await store.insertOnce("documents", `d${index}/ü?$1`, { index, ODD });
  for (let index = 0; index < 30; index += 3) await store.takeOnce("documents", `d${index}/ü?$1`);
  await store.batch([{ op: "put", collection: "documents", key: "d1/ü?$1", body: { again: true } }]);
  await store.insertOnce("large", "body", "x\0".repeat(largeBytes / 7));
  for (const status of ["running", "completed", "a\0long ".repeat(60)]) {
    await store.insertOnce("runs", `run ${status.length}`, { run: { status } });
  }
  for (const [index, text] of TEXTS.entries()) {
    await store.batch([{ op: "put", collection: "memory", key: `default/${index}`, body: text, text }]);
  }
  await store.batch([{ op: "vector", collection: "memory", key: "default/1", version: 1, vector: VECTOR }]);
  for (let stream = 0; stream < 12; stream++) {
    await store.append(`journal/${stream % 2 === 0 ? stream : `ü${stream}`}`, 0, [ODD, { seq: 2 }, null]);
  }
  await store.append("journal/gone", 0, [1]);
  await store.batch([{ op: "drop", stream: "journal/gone" }]);
  await store.insertOnce("processes", "marker", { v: 1, marker: "gateway_of_a_test" });
  await store.close();
  const file = new DatabaseSync(path);
  file.exec("UPDATE records SET body = '{ damaged' WHERE key = 'd2/ü?$1'");
  file.close();
}

/** Returns all that a store answers. */
async function everythingOf(store: Store): Promise<unknown> {
  const collections = ["documents", "large", "runs", "memory", "processes"];
  const where = { field: "run.status", value: "a\0long ".repeat(60) };
  return {
    byKey: await Promise.all(collections.map((name) => store.scan(name, { limit: 1000 }))),
    created: await Promise.all(collections.map((name) => store.scan(name, { order: "created", limit: 1000 }))),
    where: await store.scan("runs", { where, order: "created", limit: 10 }),
    found: await Promise.all(
      ["water", "mountains", "bake bread", "Brot"].map((query) => store.search("memory", { query, limit: 10 })),
    ),
    nearest: await store.nearest("memory", { vector: VECTOR, limit: 10 }),
    vectorless: (await store.vectorless("memory", { model: VECTOR.model, limit: 10 })).records,
    streams: await Promise.all(
      ["journal/0", "journal/ü1", "journal/ü11", "journal/gone"].map((name) =>
        store.read(name, { afterSeq: 0, limit: 10 })
      ),
    ),
  };
}

interface Place {
  readonly path: string;
  readonly url: string;
  readonly schema: string;
  readonly database: PostgresDatabase;
  readonly options: MoveOptions;
  readonly steps: MoveProgress[];
}

function withPlace(use: (place: Place) => Promise<void>): Promise<void> {
  return withSchema((url, schema) =>
    withTemporaryFolder(async (dataDir) => {
      const database = await openTestDatabase(url);
      const steps: MoveProgress[] = [];
      const options: MoveOptions = {
        ...{ dataDir, database, schema, clock: systemClock, random: createSystemRandom() },
        textOf: (collection, body) => collection === "memory" ? JSON.parse(body) as string : undefined,
        onProgress: (step) => void steps.push(step),
      };
      try {
        await use({ path: join(dataDir, "postern.db"), url, schema, database, options, steps });
      } finally {
        await database.close();
      }
    })
  );
}

/** Database whose session fails at one statement, before it is sent or after it was done. */
function failingAt(database: PostgresDatabase, at: number, when: "before" | "after") {
  let count = 0;
  const guard = async <T>(work: () => Promise<T>): Promise<T> => {
    const isIt = ++count === at;
    const away = () => new DatabaseAwayError("cut in a test", { wasSent: true, cause: undefined });
    if (isIt && when === "before") throw away();
    const result = await work();
    if (isIt) throw away();
    return result;
  };
  return {
    count: () => count,
    database: {
      name: database.name,
      async dedicated(): Promise<DedicatedSession> {
        const session = await database.dedicated();
        const [query, transaction] = [session.query.bind(session), session.transaction.bind(session)];
        session.query = (text, values) => guard(() => query(text, values));
        session.transaction = (work) => guard(() => transaction(work));
        return session;
      },
    },
  };
}

/** Database whose session does something before its first statement with a word. */
function atStatement(database: PostgresDatabase, word: string, work: () => Promise<void>): MoveOptions["database"] {
  let isDone = false;
  return {
    name: database.name,
    async dedicated() {
      const session = await database.dedicated();
      const query = session.query.bind(session);
      session.query = async (text, values) => {
        if (text.includes(word) && !isDone) {
          isDone = true;
          await work();
        }
        return await query(text, values);
      };
      return session;
    },
  };
}

describe("moving the records of SQLite into PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("everything that the store answers is the same afterwards, and the source is refused until its mark is gone", () =>
    withPlace(async ({ path, url, schema, database, options }) => {
      await fill(path, { largeBytes: 10_000_000 });
      const before = await openSqliteStore({ path, clock: systemClock });
      const wanted = await everythingOf(before);
      await before.close();
      assert.deepEqual(await planMove(options), { records: 29, entries: 36 });
      const { copied, movedAt } = await moveRecords(options);
      assert.equal(copied?.texts, TEXTS.length);
      assert.equal(copied.vectors, 1);
      assert.deepEqual([copied.streams.streams, copied.streams.entries], [12, 36]);
      assert.deepEqual(copied.collections.map(({ name, records }) => [name, records]), [
        ["documents", 20],
        ["large", 1],
        ["memory", 4],
        ["processes", 1],
        ["runs", 3],
      ]);
      const store = await openTestStore(await openTestDatabase(url), schema);
      assert.deepEqual(await everythingOf(store), wanted);
      assert.equal(await store.insertOnce("documents", "a new one", 1), true);
      const [newest] = await store.scan("documents", { order: "created", reverse: true, limit: 1 });
      assert.equal(newest?.key, "a new one");
      await store.close();
      assert.deepEqual(readMovedMark(path)?.schema, schema);
      await assert.rejects(openSqliteStore({ path, clock: systemClock }), (error: Error & { code?: string }) => {
        assert.equal(error.code, "database_moved");
        for (const words of [database.name, movedAt, "storage.driver", "postern storage unmark"]) {
          assert.ok(error.message.includes(words), `${words} is missing: ${error.message}`);
        }
        assert.ok(!error.message.includes(new URL(url).password));
        return true;
      });
      assert.equal((await moveRecords(options)).copied, null, "a second call finds it done");
      assert.equal(unmarkMoved(path)?.movedAt, movedAt);
      assert.equal(unmarkMoved(path), undefined);
      const again = await openSqliteStore({ path, clock: systemClock });
      assert.deepEqual(await everythingOf(again), wanted);
      await again.close();
      await assert.rejects(moveRecords(options), { code: "database_unusable", message: /holds records already/ });
    }));

  test("a move that is cut off at any statement is made again, and nothing opens the schema until it is done", () =>
    withPlace(async ({ path, url, schema, database, options, steps }) => {
      await fill(path);
      const source = await openSqliteStore({ path, clock: systemClock });
      const wanted = await everythingOf(source);
      await source.close();
      let [at, cuts] = [1, 0];
      for (let isDone = false; !isDone; at++) {
        for (const when of ["before", "after"] as const) {
          const failing = failingAt(database, at, when);
          try {
            await moveRecords({ ...options, database: failing.database });
            isDone = true;
          } catch (error) {
            assert.ok(error instanceof DatabaseAwayError, String(error));
            cuts++;
          }
          const isMarked = readMovedMark(path) !== undefined;
          if (await isOpen(database, schema)) {
            await assert.rejects(openTestStore(await openTestDatabase(url), schema), {
              code: "database_unusable",
              message: /the copy is not finished; run postern storage migrate/,
            });
          } else if (!isMarked) {
            assert.equal(await recordsIn(database, schema), 0, "gateways may use both");
          }
          if (isMarked || isDone) break;
        }
        if (readMovedMark(path) !== undefined && !await isOpen(database, schema)) break;
      }
      assert.ok(cuts > 10, `${cuts} cuts`);
      assert.ok(steps.some(({ step }) => step === "begun_again"));
      await moveRecords(options);
      const store = await openTestStore(await openTestDatabase(url), schema);
      assert.deepEqual(await everythingOf(store), wanted);
      await store.close();
    }));

  test("a copy that was cut off is made again from the source as it is now", () =>
    withPlace(async ({ path, url, schema, database, options, steps }) => {
      await fill(path);
      for (let at = 1; steps.every(({ step }) => step !== "verify"); at++) {
        await assert.rejects(moveRecords({ ...options, database: failingAt(database, at, "after").database }));
      }
      const source = await openSqliteStore({ path, clock: systemClock });
      await source.batch([
        { op: "put", collection: "documents", key: "d4/ü?$1", body: "changed" },
        { op: "delete", collection: "documents", key: "d5/ü?$1" },
        { op: "drop", stream: "journal/0" },
      ]);
      const wanted = await everythingOf(source);
      await source.close();
      await moveRecords(options);
      assert.ok(steps.some(({ step }) => step === "begun_again"));
      const store = await openTestStore(await openTestDatabase(url), schema);
      assert.deepEqual(await everythingOf(store), wanted);
      await store.close();
    }));

  test("a copy that differs from its source is given to nobody", () =>
    withPlace(async ({ path, schema, database, options }) => {
      await fill(path);
      const intruder = `INSERT INTO ${quoteName(schema)}.stream_records VALUES ('journal/7', 4, '1', 0)`;
      const intrude = async () => void await database.query(intruder);
      const move = moveRecords({ ...options, database: atStatement(database, "ANALYZE", intrude) });
      await assert.rejects(move, {
        code: "database_unusable",
        message: /differs from the source: stream 3 of .* here, /,
      });
      assert.equal(readMovedMark(path), undefined);
      assert.equal(await isOpen(database, schema), true);
    }));

  test("a gateway that opened the empty schema before a move does not join it, and the move is done", () =>
    withPlace(async ({ path, url, schema, database, options }) => {
      await fill(path);
      const link = await openLink(url, schema);
      const leases = new Leases(link.cluster.leases, { leaseMs: 10_000, marginMs: 1_000 });
      const facts = { about: { host: "test", pid: 1, version: "0.0.0-test", started_at: "2026-01-01T00:00:00.000Z" } };
      let tries = 0;
      const join = async () => {
        tries++;
        await assert.rejects(leases.join("gw_x", facts), {
          code: "database_unusable",
          message: /records are copied into it, and the copy is not finished/,
        });
      };
      await moveRecords({ ...options, database: atStatement(database, "ANALYZE", join) });
      assert.equal(tries, 1);
      assert.equal(await leases.join("gw_x", facts), 1, "it may once the move is done");
      await link.close();
    }));

  test("a move empties no schema that a gateway works in", () =>
    withPlace(async ({ path, url, schema, database, options }) => {
      await fill(path);
      const store = await openTestStore(await openTestDatabase(url), schema);
      // A gateway of an older Postern, which has opened the schema and joins without another look
      const join = async () => {
        await store.insertOnce("gateway_leases", "gw_x", { v: 1 });
        await store.insertOnce("runs", "run_accepted", { v: 1 });
      };
      const refused = {
        code: "database_unusable",
        message: /a gateway began to use it before the copy \(gw_x\); stop it/,
      };
      await assert.rejects(moveRecords({ ...options, database: atStatement(database, "ANALYZE", join) }), refused);
      await assert.rejects(moveRecords(options), refused);
      assert.notEqual(await store.get("runs", "run_accepted"), undefined);
      assert.equal(readMovedMark(path), undefined);
      await store.close();
    }));

  test("a copy that meets a record which a gateway left is made again by the next call", () =>
    withPlace(async ({ path, url, schema, database, options, steps }) => {
      await fill(path);
      const store = await openTestStore(await openTestDatabase(url), schema);
      const leave = async () => void await store.insertOnce("large", "body", "another");
      const moving = moveRecords({ ...options, database: atStatement(database, "record_texts", leave) });
      await assert.rejects(moving, { message: /differs from the source: it has records that the copy did not make/ });
      await moveRecords(options);
      assert.ok(steps.some(({ step }) => step === "begun_again"));
      assert.notEqual(readMovedMark(path), undefined);
      await store.close();
    }));

  test("a schema with records, with another's copy, or under another copy is refused", () =>
    withPlace(async ({ path, url, schema, database, options }) => {
      await assert.rejects(moveRecords(options), { code: "database_unusable", message: /there are none/ });
      await fill(path);
      const store = await openTestStore(await openTestDatabase(url), schema);
      await store.insertOnce("gateway_leases", "gw_1", { v: 1 });
      const used = {
        code: "database_unusable",
        message: /holds records already \(1 gateway_leases\), and gateways use it/,
      };
      await assert.rejects(planMove(options), used);
      await assert.rejects(moveRecords(options), used);
      await store.takeOnce("gateway_leases", "gw_1");
      await store.close();
      const other = await database.dedicated();
      await other.query("SELECT pg_advisory_lock(hashtext('postern move'), hashtext($1))", [schema]);
      await assert.rejects(moveRecords({ ...options, lockWaitMs: 20 }), {
        message: /another postern storage migrate copies into it now/,
      });
      // As the session of a killed command does a moment after it
      const waiting = moveRecords({ ...options, database: failingAt(database, 8, "after").database });
      await Promise.all([assert.rejects(waiting, (error) => !/copies into it now/.test(String(error))), other.close()]);
      await assert.rejects(moveRecords({ ...options, database: failingAt(database, 8, "after").database }));
      await withTemporaryFolder(async (dataDir) => {
        const path = join(dataDir, "postern.db");
        const another = await openSqliteStore({ path, clock: systemClock });
        await another.insertOnce("processes", "marker", { v: 1, marker: "another" });
        await another.close();
        for (const move of [moveRecords, planMove]) {
          await assert.rejects(move({ ...options, dataDir }), {
            message: /holds the unfinished copy of ".*:\/.*"; finish/,
          });
        }
        assert.equal(readMovedMark(path), undefined);
      });
    }));

  test("a text that PostgreSQL cannot keep is named before anything is given away", () =>
    withPlace(async ({ path, options }) => {
      await fill(path);
      const file = new DatabaseSync(path);
      file.exec("UPDATE records SET body = CAST(x'22ff22' AS TEXT) WHERE key = 'd4/ü?$1'");
      file.close();
      await assert.rejects(moveRecords(options), {
        code: "database_corrupt",
        message: /record "d4\/ü\?\$1" of "documents".*postern doctor --repair/,
      });
      assert.equal(readMovedMark(path), undefined);
    }));
});

/** Counts the records of a schema that may not be there. */
async function recordsIn(database: PostgresDatabase, schema: string): Promise<number> {
  const records = `${quoteName(schema)}.records`;
  const [there] = await database.query("SELECT to_regclass($1) IS NOT NULL AS is_there", [records]);
  if (there?.["is_there"] !== true) return 0;
  const [row] = await database.query(`SELECT count(*) AS n FROM ${records}`);
  return Number(row?.["n"]);
}

/** Tells whether a schema holds a copy that is not finished. */
async function isOpen(database: PostgresDatabase, schema: string): Promise<boolean> {
  const [row] = await database.query("SELECT to_regclass($1) IS NOT NULL AS open", [
    `${quoteName(schema)}.unfinished_move`,
  ]);
  return row?.["open"] === true;
}
