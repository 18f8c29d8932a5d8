import assert from "node:assert/strict";
import { test } from "node:test";
import type { Clock } from "../../lib/base/clock.ts";
import { createClusterClock } from "../../lib/cluster/cluster_clock.ts";
import type { LeaseDatabase } from "../../lib/cluster/leases.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";

const HOUR_MS = 3_600_000;

/** A machine whose wall clock is an hour ahead of the database's, and whose questions take their time. */
function machine() {
  const database = createFakeClock();
  let answerMs = 0;
  let stoodStill = 0;
  const own: Clock = {
    ...database,
    now: () => database.now() + HOUR_MS,
    monotonic: () => database.monotonic() - stoodStill,
  };
  const leases: LeaseDatabase = {
    store: createMemoryStore(),
    async now() {
      await database.advance(answerMs / 2);
      const now = database.now();
      await database.advance(answerMs / 2);
      return now;
    },
  };
  return {
    database,
    ...createClusterClock(own, leases),
    setAnswerMs: (ms: number) => void (answerMs = ms),
    sleep: (ms: number) => void (stoodStill += ms),
  };
}

test("a cluster's clock tells the database's time, whatever the machine's wall clock says", async () => {
  const { clock, leases, database } = machine();
  assert.equal(clock.now(), database.now() + HOUR_MS, "before the first heartbeat nothing else is known");
  await leases.now();
  assert.equal(clock.now(), database.now());
  await database.advance(90_000);
  assert.equal(clock.now(), database.now(), "it goes on between heartbeats");
});

test("a slow answer makes the clock late at first, never early, and does not disturb a time that is known better", async () => {
  const { clock, leases, database, setAnswerMs } = machine();
  setAnswerMs(400);
  await leases.now();
  assert.equal(clock.now(), database.now() - 200);
  setAnswerMs(0);
  await leases.now();
  assert.equal(clock.now(), database.now());
  setAnswerMs(4_000);
  await leases.now();
  assert.equal(clock.now(), database.now());
});

test("a machine that slept is late until its next heartbeat", async () => {
  const { clock, leases, database, sleep } = machine();
  await leases.now();
  sleep(HOUR_MS);
  await database.advance(HOUR_MS);
  assert.equal(clock.now(), database.now() - HOUR_MS);
  await leases.now();
  assert.equal(clock.now(), database.now());
});
