import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { openPostgresStore } from "../../lib/storage/open_postgres_store.ts";
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

  test("a server that hears nothing is given up, and what was read or written then is refused or done", () =>
    withSchema(async (url, schema) => {
      const direct = new URL(url);
      const proxy = await startCuttingProxy(Number(direct.port));
      direct.port = String(proxy.port);
      const store = await openTestStore(
        await openTestDatabase(direct.href, { statementTimeoutMs: 100, replyGraceMs: 100, connectTimeoutMs: 1_000 }),
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

  test("one gateway at a time holds a schema, and writes nothing while it has lost its hold", () =>
    withSchema(async (url, schema) => {
      const open = async () =>
        await openPostgresStore({
          database: await openTestDatabase(url),
          schema,
          isAlone: true,
          clock: systemClock,
          random: createSystemRandom(),
        });
      const store = await open();
      const database = await openTestDatabase(url);
      const holders = () =>
        database.query(
          "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        );
      const [holder] = await holders();
      await database.query("SELECT pg_terminate_backend($1)", [Number(holder?.["pid"])]);
      await until(() => !store.healthy());
      await assert.rejects(store.insertOnce("c", "k", 1), { code: "storage_unavailable" });
      await until(() => store.healthy());
      assert.equal(await store.insertOnce("c", "k", 1), true);
      await store.close();
      const next = await open();
      await next.close();
      await database.close();
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
