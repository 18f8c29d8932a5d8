import assert from "node:assert/strict";
import { test } from "node:test";
import { RUN_CLAIMS } from "../../lib/cluster/cluster_records.ts";
import { createSharedDatabase, joinGateway } from "../support/clustered.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { ask } from "../support/supervised.ts";

/** Lets gateways be cut off from the database and come back at random, while runs with an effect each are accepted at any. @returns the number of runs */
async function chaos(seed: number): Promise<number> {
  const database = createSharedDatabase();
  const random = createSeededRandom(seed);
  const below = (max: number) => (random.bytes(1)[0] ?? 0) % max;
  const effects = new Map<string, number>();
  const gateways = await Promise.all(
    [1, 2, 3].map((n) =>
      joinGateway(
        database,
        ({ messages }) =>
          messages.at(-1)?.role === "tool" ? "done" : { toolCalls: [{ name: "work", arguments: "{}" }] },
        {
          seed: seed * 10 + n,
          limits: { maxConcurrent: 3 },
          tools: [{
            name: "work",
            access: "write",
            async run(_, { runId }) {
              effects.set(runId, (effects.get(runId) ?? 0) + 1);
              await database.clock.sleep(50 + below(400));
              return "worked";
            },
          }],
        },
      )
    ),
  );
  const accepted: string[] = [];
  for (let step = 0; step < 60; step++) {
    const gateway = gateways[below(3)] ?? assert.fail();
    if (below(3) === 0) gateway.link.isCut = !gateway.link.isCut;
    if (below(12) === 0) database.isAway = !database.isAway;
    if (below(2) === 0) {
      await gateway.runs.start(ask("go", { durable: true })).then(({ id }) => accepted.push(id), () => {});
    }
    await database.clock.advance(100 + below(250));
  }
  database.isAway = false;
  for (const { link } of gateways) link.isCut = false;
  await database.clock.advance(20_000);
  for (const id of accepted) {
    const run = await gateways[0]?.runs.get(id);
    assert.ok(
      run?.status === "completed" || run?.status === "needs_review",
      `seed ${seed}: ${id} is ${run?.status} ${run?.error?.message}`,
    );
    assert.ok((effects.get(id) ?? 0) <= 1, `seed ${seed}: ${id} had ${effects.get(id)} effects`);
    const records = await database.store.read(`run/${id}`, { afterSeq: 0, limit: 100 });
    const ends = records.filter(({ body }) => /"(done|error)"/.test(JSON.stringify(body))).length;
    assert.equal(ends, 1, `seed ${seed}: ${id} has ${ends} ends`);
  }
  assert.equal(await database.store.count(RUN_CLAIMS.name), 0);
  await Promise.all(gateways.map((gateway) => gateway.close()));
  return accepted.length;
}

test("gateways come and go at random: every accepted run ends once, and no effect happens twice", async () => {
  let accepted = 0;
  for (let seed = 1; seed <= 10; seed++) accepted += await chaos(seed);
  assert.ok(accepted > 60, `${accepted} runs were accepted`);
});
