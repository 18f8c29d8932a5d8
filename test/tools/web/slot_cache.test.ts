import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { createLogger, type LogRecord } from "../../../lib/base/telemetry/log.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createDocuments, DOCUMENTS, type Documents } from "../../../lib/storage/documents.ts";
import { createSlotCache } from "../../../lib/tools/web/slot_cache.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

function setUp({ slots = 4, documents }: { readonly slots?: number; readonly documents?: Documents } = {}) {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const logged: LogRecord[] = [];
  const log = createLogger({
    level: "debug",
    now: () => clock.now(),
    sink: (record) => void logged.push(record),
    redact: (text) => text,
  });
  const cache = createSlotCache({
    documents: documents ?? createDocuments({ store }),
    clock,
    log,
    family: "pages",
    slots,
    maxBytes: 1000,
    schema: v.string(),
  });
  return { cache, clock, store, logged };
}

test("a value is there for its time, under its key alone", async () => {
  const { cache, clock } = setUp({ slots: 1 });
  await cache.set("a", "one", 1000);
  assert.equal(await cache.get("a"), "one");
  assert.equal(await cache.get("b"), undefined);
  await clock.advance(999);
  assert.equal(await cache.get("a"), "one");
  await clock.advance(1);
  assert.equal(await cache.get("a"), undefined);
});

test("the cache has no more values than places, and none over its bound", async () => {
  const { cache, store } = setUp();
  for (let at = 0; at < 100; at++) await cache.set(`key ${at}`, `value ${at}`, 1000);
  assert.equal((await store.scan(DOCUMENTS.name, { limit: 100 })).length, 4);
  assert.equal(await cache.get("key 99"), "value 99");
  await cache.set("key 99", "x".repeat(1000), 1000);
  assert.equal(await cache.get("key 99"), "value 99");
});

test("addresses are not kept as they are, and a value of another form is none", async () => {
  const { cache, store } = setUp();
  await cache.set("https://gates.example/?token=open", "value", 1000);
  assert.ok(!JSON.stringify(await store.scan(DOCUMENTS.name, { limit: 10 })).includes("token=open"));
  const documents: Documents = { get: async () => ({ key: 1, until: "x" }), set: async () => {} };
  assert.equal(await setUp({ documents }).cache.get("a"), undefined);
});

test("a store that cannot write fails nobody", async () => {
  const full: Documents = { get: async () => undefined, set: () => Promise.reject(new Error("The disk is full")) };
  const { cache, logged } = setUp({ documents: full });
  await cache.set("a", "one", 1000);
  assert.deepEqual(logged.map(({ message }) => message), ["A fetched page could not be kept"]);
});
