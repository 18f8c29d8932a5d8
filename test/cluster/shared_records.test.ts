import assert from "node:assert/strict";
import { test } from "node:test";
import { DONE_SCHEDULES, FIRINGS } from "../../lib/automation/cron/schedule_record.ts";
import { forgetOldDone } from "../../lib/automation/cron/fire_schedule.ts";
import { Mailbox } from "../../lib/memory/mailbox.ts";
import { pruneRuns } from "../../lib/runs/journal/stored_runs.ts";
import { createRecordCipher } from "../../lib/storage/record_cipher.ts";
import { SCHEDULE_LIMITS } from "../../lib/tools/schedule/schedules.ts";
import { createSharedDatabase, joinGateway } from "../support/clustered.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { K1, K2 } from "../support/sealed_records.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { ask, readAll } from "../support/supervised.ts";

test("messages that are sent and received at two gateways at once are received once each, in order by sender", async () => {
  const database = createSharedDatabase();
  const boxes = [1, 2].map((seed) => {
    const random = createSeededRandom(seed);
    const cipher = createRecordCipher(new Uint8Array(32).fill(7), random);
    const { store } = database.link();
    return new Mailbox({ store, clock: database.clock, random, cipher: () => Promise.resolve(cipher) });
  });
  const received: string[] = [];
  const take = async (box = boxes[0]) => {
    for (const { from, payload } of await box?.receive("bob") ?? []) received.push(`${from} ${payload}`);
  };
  await Promise.all(boxes.map(async (box, index) => {
    for (let n = 0; n < 10; n++) {
      await box.send({ from: `agent${index}`, to: "bob", payload: String(n), sender: "cli" });
      if (n % 3 === 0) await take(box);
    }
  }));
  await take();
  assert.equal(received.length, 20);
  for (const index of [0, 1]) {
    const own = received.filter((one) => one.startsWith(`agent${index}`)).map((one) => Number(one.split(" ")[1]));
    assert.deepEqual(own.toSorted((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  }
});

test("two gateways that clean up at once forget what is old, and nothing else", async () => {
  const database = createSharedDatabase();
  const a = await joinGateway(database, () => "done", { seed: 1 });
  const b = await joinGateway(database, () => "done", { seed: 2 });
  for (let n = 0; n < 5; n++) await readAll(await a.runs.start(ask("old", { durable: true })));
  await database.clock.advance(60_000);
  const before = new Date(database.clock.now()).toISOString();
  await database.clock.advance(1_000);
  const young = await b.runs.start(ask("young", { durable: true }));
  await readAll(young);
  await Promise.all([a, b].map(({ store }) => pruneRuns(store, before)));
  assert.deepEqual((await a.runs.list({ limit: 10 })).runs.map(({ id }) => id), [young.id]);

  const { store } = database;
  for (let n = 0; n < SCHEDULE_LIMITS.done + 2; n++) {
    const key = `done${String(n).padStart(4, "0")}`;
    await store.batch([
      { op: "insert", collection: DONE_SCHEDULES.name, key, body: {} },
      { op: "insert", collection: FIRINGS.name, key: `${key}/2026`, body: {} },
    ]);
  }
  await Promise.all([a, b].map((gateway) => forgetOldDone(gateway.store)));
  const left = await store.scan(DONE_SCHEDULES.name, { limit: 1 });
  assert.equal(await store.count(DONE_SCHEDULES.name), SCHEDULE_LIMITS.done);
  assert.equal(await store.count(FIRINGS.name), SCHEDULE_LIMITS.done);
  assert.equal(left[0]?.key, "done0002");
  await Promise.all([a.close(), b.close()]);
});

test("a change of the key is refused at the gateway that has the old key alone, until all have both", async () => {
  const database = createSharedDatabase();
  const keyed = (settings: Readonly<Record<string, string>>, use: (gateway: RunningGateway) => Promise<void>) =>
    withRunningGateway({
      config: { storage: { driver: "memory", ...settings } },
      environment: { K1, K2 },
      ...{ clock: database.clock, database: database.link(), agent: false },
    }, use);
  const rekey = async ({ call }: RunningGateway) => {
    const reply = await call("/v1/storage/rekey", { method: "POST" });
    return { status: reply.status, text: await reply.text() };
  };
  const both = { key_env: "K2", old_key_env: "K1" };
  await keyed({ key_env: "K1" }, (old) =>
    keyed(both, async (first) => {
      const refused = await rekey(old);
      assert.equal(refused.status, 409, refused.text);
      assert.match(refused.text, new RegExp(`newer key than this one: ${first.services.cluster.id};`));
      const early = await rekey(first);
      assert.equal(early.status, 409, early.text);
      assert.match(early.text, new RegExp(`do not have the new key yet: ${old.services.cluster.id};`));
    }));
  await keyed(both, (first) =>
    keyed(both, async () => {
      const { status, text } = await rekey(first);
      assert.deepEqual([status, JSON.parse(text).old_key], [200, "old_key_env"]);
    }));
});
