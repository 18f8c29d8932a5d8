import assert from "node:assert/strict";
import { test } from "node:test";
import { marginOf, renewalPause } from "../../lib/cluster/ownership.ts";
import { createSharedDatabase, joinLink, LEASE_MS } from "../support/clustered.ts";

const PAUSE_MS = renewalPause({ leaseMs: LEASE_MS, marginMs: marginOf(LEASE_MS) });

test("an error of one heartbeat takes the right to act away, long before the deadline, until a renewal succeeds", async () => {
  const database = createSharedDatabase();
  const { link, cluster: { lease }, close } = await joinLink(database, { seed: 1 });
  await database.clock.advance(2 * LEASE_MS);
  assert.deepEqual([lease.mayAct(), lease.mayTakeOver()], [true, true]);
  link.isCut = true;
  await database.clock.advance(PAUSE_MS + 1);
  assert.ok(lease.deadline() > database.clock.monotonic(), "the deadline is not over yet");
  assert.deepEqual([lease.mayAct(), lease.mayTakeOver(), lease.heartbeats().leftMs], [false, false, 0]);
  link.isCut = false;
  await database.clock.advance(PAUSE_MS);
  assert.equal(lease.mayAct(), true);
  // The unbroken renewals of the gateway start over
  assert.equal(lease.mayTakeOver(), false);
  await database.clock.advance(LEASE_MS);
  assert.equal(lease.mayTakeOver(), true);
  await close();
});

test("whoever watches the heartbeats hears of the last one at once, then of each one, and of the loss of the lease", async () => {
  const database = createSharedDatabase();
  const { cluster, close } = await joinLink(database, { seed: 1 });
  await database.clock.advance(PAUSE_MS / 2);
  const heard: number[] = [];
  const actsMs = LEASE_MS - marginOf(LEASE_MS);
  cluster.onBeat((leftMs) => heard.push(leftMs));
  assert.deepEqual(heard, [actsMs - PAUSE_MS / 2], "programs may start before the next heartbeat");
  await database.clock.advance(PAUSE_MS);
  assert.deepEqual(heard, [actsMs - PAUSE_MS / 2, actsMs]);
  database.history = "another";
  await database.clock.advance(PAUSE_MS);
  assert.deepEqual(heard.slice(2), [0, actsMs]);
  await close();
});
