import assert from "node:assert/strict";
import { test } from "node:test";
import { DONE_SCHEDULES, FIRINGS } from "../../lib/automation/cron/schedule_record.ts";
import { forgetOldDone } from "../../lib/automation/cron/fire_schedule.ts";
import { createMailbox } from "../../lib/memory/mailbox.ts";
import { pruneRuns } from "../../lib/runs/journal/stored_runs.ts";
import { createRecordCipher } from "../../lib/storage/record_cipher.ts";
import { SCHEDULE_LIMITS } from "../../lib/tools/schedule/schedules.ts";
import { createSharedDatabase, joinGateway } from "../support/clustered.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { ask, readAll } from "../support/supervised.ts";

test("messages that are sent and received at two gateways at once are received once each, in order by sender", async () => {
  const database = createSharedDatabase();
  const boxes = [1, 2].map((seed) => {
    const random = createSeededRandom(seed);
    const cipher = createRecordCipher(new Uint8Array(32).fill(7), random);
    const { store } = database.link();
    return createMailbox({ store, clock: database.clock, random, cipher: () => Promise.resolve(cipher) });
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
      { op: "insert", collection: DONE_SCHEDULES, key, body: {} },
      { op: "insert", collection: FIRINGS, key: `${key}/2026`, body: {} },
    ]);
  }
  await Promise.all([a, b].map((gateway) => forgetOldDone(gateway.store)));
  const left = await store.scan(DONE_SCHEDULES, { limit: 1 });
  assert.equal(await store.count(DONE_SCHEDULES), SCHEDULE_LIMITS.done);
  assert.equal(await store.count(FIRINGS), SCHEDULE_LIMITS.done);
  assert.equal(left[0]?.key, "done0002");
  await Promise.all([a.close(), b.close()]);
});
