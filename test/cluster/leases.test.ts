import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { GATEWAY_FENCES, GATEWAY_LEASES } from "../../lib/cluster/cluster_records.ts";
import { Leases } from "../../lib/cluster/leases.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";

const TERMS = { leaseMs: 1_000, marginMs: 250 };
const ABOUT = { about: { host: "test", pid: 1, version: "0.0.0-test", started_at: "2026-01-01T00:00:00.000Z" } };

/** Two gateways whose leases have run out; the second one has renewed its own. */
async function expired() {
  const store = createMemoryStore();
  let now = 0;
  const leases = (of: Pick<Store, "get" | "scan" | "batch" | "unreadable"> = store) =>
    new Leases({ store: of, now: async () => now }, TERMS);
  const other = { id: "gw_a", fence: await leases().join("gw_a", ABOUT) };
  const own = { id: "gw_b", fence: await leases().join("gw_b", ABOUT) };
  now = 5_000;
  assert.equal(await leases().renew(own, ABOUT), true);
  return { store, leases, other, own };
}

test("a gateway that renews its lease between the look and the fencing stays", async () => {
  const { store, leases, other, own } = await expired();
  const renewing: Pick<Store, "get" | "scan" | "batch" | "unreadable"> = {
    ...store,
    async scan(collection, options) {
      const found = await store.scan(collection, options);
      if (collection === GATEWAY_LEASES.name) assert.equal(await leases().renew(other, ABOUT), true);
      return found;
    },
  };
  assert.deepEqual(await leases(renewing).fenceOff(own), []);
  assert.equal(await leases().renew(other, ABOUT), true);
});

test("a gateway that was fenced off itself fences off nobody", async () => {
  const { store, leases, other, own } = await expired();
  await store.batch([{ op: "put", collection: GATEWAY_FENCES.name, key: own.id, body: { v: 1 } }]);
  assert.deepEqual(await leases().fenceOff(own), []);
  assert.equal(await leases().renew(other, ABOUT), true);
});

test("a gateway that may not use the database leaves none of its rows there, and joins once it may", async () => {
  const store = createMemoryStore();
  let [isOpen, isAway] = [false, true];
  const leases = new Leases({
    store,
    now: async () => 0,
    admit: async () => {
      if (isAway) throw new Error("away");
      if (!isOpen) throw new ConfigError("database_unusable", "Records are copied into it");
    },
  }, TERMS);
  const rows = async () =>
    await Promise.all([GATEWAY_FENCES.name, GATEWAY_LEASES.name].map((collection) => store.count(collection)));
  await assert.rejects(leases.join("gw_a", ABOUT), /away/);
  isAway = false;
  await assert.rejects(leases.join("gw_a", ABOUT), { code: "database_unusable" });
  assert.deepEqual(await rows(), [0, 0]);
  isOpen = true;
  assert.equal(await leases.join("gw_a", ABOUT), 1);
  assert.deepEqual(await rows(), [1, 1]);
});

test("of gateways that fence another one off at the same time one does", async () => {
  const { leases, own } = await expired();
  const third = { id: "gw_c", fence: await leases().join("gw_c", ABOUT) };
  const found = await Promise.all([own, third].map((gateway) => leases().fenceOff(gateway)));
  assert.deepEqual(found.flat(), ["gw_a"]);
});
