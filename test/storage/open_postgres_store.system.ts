import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { openPostgresStore } from "../../lib/storage/open_postgres_store.ts";
import { migrateSchema } from "../../lib/storage/postgres/migrate_schema.ts";
import { SCHEMA_STEPS } from "../../lib/storage/postgres/schema.ts";
import { quoteName } from "../../lib/storage/postgres/statement_text.ts";
import type { Store } from "../../lib/storage/store.ts";
import { startCuttingProxy } from "../support/cutting_proxy.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { loseCommits } from "../support/lost_commits.ts";
import { NO_POSTGRES } from "../support/postgres_server.ts";
import { openTestDatabase, openTestStore, withSchema } from "../support/postgres_stores.ts";
import { until } from "../support/until.ts";

const keysOf = (found: readonly { readonly key: string }[]) => found.map(({ key }) => key);

describe("a store in PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("answers what the database did when connections are cut after a commit was sent", async (context) => {
    const { cuts, batches } = await loseCommits(24);
    context.diagnostic(`${cuts} cuts, ${batches} batches`);
    assert.ok(cuts >= 24);
  });

  test("scans by creation show no record before an earlier one that commits late", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const [one, two] = [
        await openTestStore(database, schema),
        await openTestStore(await openTestDatabase(url), schema),
      ];
      const late = await database.dedicated();
      const insert = (key: string) =>
        late.query(`SELECT ${quoteName(schema)}.write_group($1, $2::jsonb, 0)`, [
          `batch ${key}`,
          JSON.stringify([[{ op: "insert", collection: "c", key, body: "0", fields: [] }]]),
        ]);
      const seen: string[] = [];
      const page = async () => {
        const after = seen.at(-1);
        const records = await two.scan("c", { order: "created", limit: 100, ...after === undefined ? {} : { after } });
        seen.push(...keysOf(records));
      };
      await late.query("BEGIN");
      await insert("early");
      const elsewhere = await one.insertOnce("another collection", "k", 0);
      assert.equal(elsewhere, true, "another collection has an order of its own");
      const others = [one.insertOnce("c", "second", 0), two.insertOnce("c", "third", 0)];
      await until(async () => {
        const [row] = await database.query(
          "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
        );
        return row?.["n"] === 2;
      });
      await page();
      assert.deepEqual(seen, []);
      await late.query("COMMIT");
      await Promise.all(others);
      await page();
      assert.deepEqual([seen[0], ...seen.slice(1).sort()], ["early", "second", "third"]);
      await late.close();
      await one.close();
      await two.close();
    }));

  test("a reader that pages by creation sees every record of four writers", () =>
    withSchema(async (url, schema) => {
      const stores: Store[] = [];
      for (let index = 0; index < 4; index++) stores.push(await openTestStore(await openTestDatabase(url), schema));
      const reader = await openTestStore(await openTestDatabase(url), schema);
      let isDone = false;
      const seen = new Set<string>();
      const read = async () => {
        let after: string | undefined;
        for (;;) {
          const wasDone = isDone;
          const records = await reader.scan("c", {
            order: "created",
            limit: 7,
            ...after === undefined ? {} : { after },
          });
          for (const { key } of records) seen.add(key);
          after = records.at(-1)?.key ?? after;
          if (wasDone && records.length === 0) return;
        }
      };
      const reading = read();
      await Promise.all(
        stores.flatMap((store, writer) =>
          Array.from({ length: 100 }, (_, index) => store.insertOnce("c", `${writer}/${index}`, 0))
        ),
      );
      isDone = true;
      await reading;
      assert.equal(seen.size, 400);
      for (const store of [...stores, reader]) await store.close();
    }));

  test("batches of many stores that cross each other are all written, without a deadlock that anyone sees", () =>
    withSchema(async (url, schema) => {
      const stores = [
        await openTestStore(await openTestDatabase(url), schema),
        await openTestStore(await openTestDatabase(url), schema),
        await openTestStore(await openTestDatabase(url), schema),
      ];
      const keys = ["a", "b", "c", "d", "e"];
      const results = await Promise.all(Array.from({ length: 90 }, (_, index) => {
        const order = index % 2 === 0 ? keys : keys.toReversed();
        return stores[index % 3]?.batch(order.map((key) => (
          { op: "put", collection: index % 4 < 2 ? key : "all", key, body: index } as const
        )));
      }));
      assert.deepEqual(new Set(results), new Set([true]));
      const versions = await Promise.all(keys.map((key) => stores[0]?.get("all", key)));
      assert.equal(new Set(versions.map((record) => record?.version)).size, 1);
      assert.equal(new Set(versions.map((record) => record?.body)).size, 1, "the last batch wrote all of them");
      for (const store of stores) await store.close();
    }));

  test("a batch locks its records in the order of their keys, whatever order its writes have", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const store = await openTestStore(database, schema);
      for (const key of ["a", "b"]) await store.insertOnce("c", key, 0);
      const [first, second] = [await database.dedicated(), await database.dedicated()];
      const lock = (key: string, more = "") =>
        `BEGIN; SELECT 1 FROM ${quoteName(schema)}.records WHERE key = '${key}' FOR UPDATE ${more}`;
      await first.query(lock("a"));
      const written = store.batch(["b", "a"].map((key) => ({ op: "put", collection: "c", key, body: 1 } as const)));
      await until(async () => {
        const [row] = await database.query("SELECT count(*) AS n FROM pg_locks WHERE NOT granted");
        return row?.["n"] === 1;
      });
      // The batch waits for the first key, and does not hold the second one yet
      await second.query(lock("b", "NOWAIT"));
      await Promise.all([first.close(), second.close()]);
      assert.equal(await written, true);
      await store.close();
    }));

  test("one batch is one message to the server and one reply", () =>
    withSchema(async (url, schema) => {
      let messages = 0;
      const direct = new URL(url);
      const proxy = await startCuttingProxy(Number(direct.port), (sent) => {
        if (sent.startsWith("Q")) messages++;
        return undefined;
      });
      direct.port = String(proxy.port);
      const store = await openTestStore(await openTestDatabase(direct.href), schema);
      await store.insertOnce("c", "first", 0);
      messages = 0;
      for (let index = 0; index < 10; index++) {
        await store.batch([
          { op: "append", stream: "s", expectedSeq: index, records: [1, 2, 3].slice(0, 1) },
          { op: "put", collection: "c", key: "k", body: index, text: "some words" },
          { op: "insert", collection: "d", key: `${index}`, body: index },
        ]);
      }
      assert.equal(messages, 10);
      messages = 0;
      await Promise.all(Array.from({ length: 100 }, (_, index) => store.insertOnce("e", `${index}`, 0)));
      assert.ok(messages <= 3, `${messages} messages for 100 batches of one tick`);
      await store.close();
      await proxy.close();
    }));

  test("whoever asks whether the store is healthy again and again causes one statement a second", () =>
    withSchema(async (url, schema) => {
      let messages = 0;
      const direct = new URL(url);
      const proxy = await startCuttingProxy(Number(direct.port), (sent) => {
        if (sent.startsWith("Q")) messages++;
        return undefined;
      });
      direct.port = String(proxy.port);
      const clock = createFakeClock();
      const database = await openTestDatabase(direct.href);
      const store = await openPostgresStore({ database, schema, clock, random: createSystemRandom() });
      messages = 0;
      const ask = async () => {
        for (let i = 0; i < 20; i++) assert.equal(store.healthy(), true);
        await store.get("c", "k");
      };
      await ask();
      await ask();
      // The question has a connection of its own, which may be made after those reads
      await until(() => database.pool().inUse === 0);
      assert.equal(messages, 3, "one question, and two reads");
      await clock.advance(1_000);
      await ask();
      await until(() => database.pool().inUse === 0);
      assert.equal(messages, 5);
      await store.close();
      await proxy.close();
    }));

  test("a server that hears nothing is given up, and what was read or written then is refused or done", () =>
    withSchema(async (url, schema) => {
      const direct = new URL(url);
      const proxy = await startCuttingProxy(Number(direct.port));
      direct.port = String(proxy.port);
      const store = await openTestStore(
        await openTestDatabase(direct.href, { statementTimeoutMs: 1_000, replyGraceMs: 500, connectTimeoutMs: 2_000 }),
        schema,
      );
      await store.insertOnce("c", "k", 1);
      proxy.freeze(true);
      await assert.rejects(store.get("c", "k"), { code: "storage_unavailable", status: 503 });
      assert.equal(store.healthy(), false);
      await assert.rejects(store.insertOnce("c", "other", 1), { code: "storage_unavailable" });
      proxy.freeze(false);
      await until(() => store.get("c", "k").then((record) => record?.body === 1, () => false));
      assert.equal(store.healthy(), true);
      await until(() => store.putIfVersion("c", "k", 1, 2).then((isWritten) => isWritten, () => false));
      await store.close();
      await proxy.close();
    }));

  test("calls of a start wait for a server that goes away in the middle of it, until it is back or 30 seconds are over", () =>
    withSchema(async (url, schema) => {
      const direct = new URL(url);
      const proxy = await startCuttingProxy(Number(direct.port));
      direct.port = String(proxy.port);
      const clock = createFakeClock();
      const started = new AbortController();
      const open = async () =>
        await openPostgresStore({
          ...{ database: await openTestDatabase(direct.href), schema, clock, random: createSystemRandom() },
          started: started.signal,
        });
      const [store, other] = [await open(), await open()];
      const refusal = { code: "storage_unavailable", status: 503 };
      await store.insertOnce("c", "k", 1);
      proxy.refuse(true);
      // The first calls find that the server is down, the others know it
      const asked = [store.get("c", "k"), store.insertOnce("c", "new", 2)];
      await until(() => !store.healthy());
      asked.push(store.get("c", "k"), store.insertOnce("c", "newer", 3));
      proxy.refuse(false);
      const answers = Promise.all(asked);
      await until(async () => (await clock.advance(100), store.healthy()));
      const [found, isNew, again, isNewer] = await answers;
      assert.deepEqual([found, isNew, again, isNewer], [{ key: "k", version: 1, body: 1 }, true, found, true]);

      proxy.refuse(true);
      const late = assert.rejects(other.insertOnce("c", "late", 4), refusal);
      await until(() => !other.healthy());
      await clock.advance(30_000);
      await late;

      const begun = assert.rejects(store.get("c", "k"), refusal);
      started.abort();
      await begun;
      await assert.rejects(store.insertOnce("c", "refused", 5), refusal);
      await Promise.all([store.close(), other.close()]);
      await proxy.close();
    }));

  test("no call of a start that is given up waits for a server, not even one whose outcome is unknown", () =>
    withSchema(async (url, schema) => {
      const direct = new URL(url);
      const proxy = await startCuttingProxy(Number(direct.port));
      direct.port = String(proxy.port);
      const signal = new AbortController();
      const store = await openPostgresStore({
        database: await openTestDatabase(direct.href, {
          ...{ statementTimeoutMs: 1_000, replyGraceMs: 500, connectTimeoutMs: 2_000 },
        }),
        ...{ schema, clock: systemClock, random: createSystemRandom() },
        ...{ started: new AbortController().signal, signal: signal.signal },
      });
      await store.insertOnce("c", "k", 1);
      proxy.freeze(true);
      // Sent, and never answered
      const lost = store.insertOnce("c", "lost", 2);
      const isLost = assert.rejects(
        lost,
        (error: Error) => /storage_unavailable|Cannot use the database/.test(String(error)),
      );
      const asked = assert.rejects(store.get("c", "k"), { code: "storage_unavailable" });
      await until(() => !store.healthy());
      const began = performance.now();
      signal.abort();
      await Promise.all([isLost, asked]);
      assert.ok(performance.now() - began < 15_000);
      await store.close();
      await proxy.close();
    }));

  test("vectors of the schema's first version are found after its next", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const session = await database.dedicated();
      await migrateSchema(session, { schema, name: "test", steps: SCHEMA_STEPS.slice(0, 1) });
      const write = (writes: readonly object[]) =>
        session.query(`SELECT ${quoteName(schema)}.write_batch($1::jsonb, 0)`, [JSON.stringify(writes)]);
      const place = { collection: "m", key: "k" };
      await write([{ op: "insert", ...place, body: "0", fields: [], terms: ["wx"], repeats: {}, total: 1 }]);
      const values = Float32Array.of(0.6, -0.8, -0);
      const vector = Buffer.from(values.buffer).toString("base64");
      await write([{ op: "vector", ...place, version: 1, model: '"a"', dimensions: 3, vector }]);
      await session.close();
      const store = await openTestStore(database, schema);
      assert.deepEqual(keysOf(await store.nearest("m", { vector: { model: "a", values }, limit: 1 })), ["k"]);
      const [row] = await database.query(`SELECT signs::text AS signs FROM ${quoteName(schema)}.record_vectors`);
      assert.equal(row?.["signs"], "011");
      await store.close();
    }));

  test("ids of batches are kept for ten minutes", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const clock = createFakeClock();
      const store = await openPostgresStore({ database, schema, clock, random: createSystemRandom() });
      const batches = `${quoteName(schema)}.batches`;
      const count = async () => Number((await database.query(`SELECT count(*) AS n FROM ${batches}`))[0]?.["n"]);
      await store.insertOnce("c", "old", 1);
      await database.query(`UPDATE ${batches} SET written_at = now() - interval '11 minutes'`);
      await store.insertOnce("c", "new", 1);
      assert.equal(await count(), 2);
      clock.advance(60_000);
      await until(async () => await count() === 1);
      await store.close();
    }));
});
