import assert from "node:assert/strict";
import { test } from "node:test";
import { vectorOf } from "../../fixtures/upstream/embeddings_upstream.ts";
import { CLUSTER_DUTIES } from "../../lib/cluster/cluster_records.ts";
import { MEMORY, Memory, memoryText, parseMemoryRecord } from "../../lib/memory/memory.ts";
import { MemoryVectors } from "../../lib/memory/memory_vectors.ts";
import { createSharedDatabase, joinLink, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";

/** A gateway whose model takes 100 ms for each request. @param asked texts that any gateway asked for, with the gateway's name */
async function join(database: SharedDatabase, { name, seed, asked }: { name: string; seed: number; asked: string[] }) {
  const { link, cluster, log, close } = await joinLink(database, { seed });
  const { clock } = database;
  const vectors = new MemoryVectors({
    ...{ store: link.store, clock, log },
    collection: MEMORY,
    redact: (text) => text,
    textOf: ({ body }) => memoryText(parseMemoryRecord(body)),
    alone: (work) => cluster.alone("memory_vectors", work),
  });
  const memory = new Memory({ store: link.store, clock, vectors });
  return {
    link,
    cluster,
    memory,
    begin: () =>
      vectors.start(() => ({
        model: "fake/one",
        async embed(texts, signal) {
          asked.push(...texts.map((text) => `${name} ${text.split("\n").at(-1)}`));
          await clock.sleep(100, signal);
          return texts.map((text) => Float32Array.from(vectorOf(text)));
        },
      })),
    async close() {
      await vectors.close();
      await close();
    },
  };
}

const missing = async ({ store }: SharedDatabase) =>
  (await store.vectorless(MEMORY, { model: "fake/one", limit: 100 })).records.length;

test("of two gateways one looks through the memories, and each embeds what it stores itself", async () => {
  const database = createSharedDatabase();
  const asked: string[] = [];
  const a = await join(database, { name: "A", seed: 1, asked });
  const b = await join(database, { name: "B", seed: 2, asked });
  for (let n = 0; n < 40; n++) await a.memory.store({ key: `old${n}`, value: `old ${n}` });
  a.begin();
  b.begin();
  await database.clock.advance(150);
  await b.memory.store({ key: "new", value: "new one" });
  await database.clock.advance(2_000);
  assert.equal(await missing(database), 0);
  assert.equal(asked.length, 41, asked.join());
  assert.deepEqual(asked.filter((one) => one.startsWith("B")).length, 1);
  await database.clock.advance(60_000);
  assert.equal(asked.length, 41, "the other looks later, and finds nothing to do");
  assert.equal(await database.store.count(CLUSTER_DUTIES.name), 0);
  await Promise.all([a.close(), b.close()]);
});

test("a gateway that dies while it looks through the memories holds the others up for half a minute", async () => {
  const database = createSharedDatabase();
  const asked: string[] = [];
  const a = await join(database, { name: "A", seed: 1, asked });
  const b = await join(database, { name: "B", seed: 2, asked });
  await database.clock.advance(2 * LEASE_MS);
  for (let n = 0; n < 40; n++) await a.memory.store({ key: `old${n}`, value: `old ${n}` });
  a.begin();
  b.begin();
  await database.clock.advance(150);
  a.link.isCut = true;
  a.cluster.lease.abandon();
  await database.clock.advance(2 * LEASE_MS);
  assert.ok(await missing(database) > 0);
  await database.clock.advance(30_000);
  assert.equal(await missing(database), 0);
  await Promise.all([a.close(), b.close()]);
});
