import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { Collection, scanAll } from "../../lib/storage/read_records.ts";
import type { Store } from "../../lib/storage/store.ts";

const KEYS = Array.from({ length: 250 }, (_, index) => `k${String(index).padStart(3, "0")}`);

async function filled(): Promise<{ readonly store: Store; readonly pages: () => number }> {
  const store = createMemoryStore();
  await store.batch(KEYS.map((key) => ({ op: "put", collection: "things", key, body: { key } })));
  let pages = 0;
  const counted: Store = { ...store, scan: (...asked) => (pages++, store.scan(...asked)) };
  return { store: counted, pages: () => pages };
}

const keysOf = async (store: Store, options?: Parameters<typeof scanAll>[2]) =>
  (await Array.fromAsync(scanAll(store, "things", options))).map(({ key }) => key);

test("every record comes once, over many pages, in the order asked for", async () => {
  const { store } = await filled();
  assert.deepEqual(await keysOf(store), KEYS);
  assert.deepEqual(await keysOf(store, { order: "created", reverse: true }), KEYS.toReversed());
  assert.deepEqual(await keysOf(store, { prefix: "k1", after: "k197" }), ["k198", "k199"]);
  assert.deepEqual(await keysOf(createMemoryStore()), []);
});

test("one who stops early reads no further page", async () => {
  const { store, pages } = await filled();
  for await (const { key } of scanAll(store, "things")) if (key === "k003") break;
  assert.equal(pages(), 1);
});

test("by key, records may be deleted on the way", async () => {
  const { store } = await filled();
  for await (const { key } of scanAll(store, "things")) {
    await store.batch([{ op: "delete", collection: "things", key }]);
  }
  assert.equal(await store.count("things"), 0);
});

test("a record that is to be changed has its version, a damaged one no value, and one that is not there the version 0", async () => {
  const store = createMemoryStore();
  const things = new Collection("things", v.object({ v: v.literal(1), size: v.number() }));
  assert.deepEqual(await things.readForChange(store, "none"), { value: undefined, version: 0 });
  await store.batch([things.put("one", { v: 1, size: 2 }), {
    op: "put",
    collection: "things",
    key: "bad",
    body: { v: 1 },
  }]);
  const one = await things.readForChange(store, "one");
  assert.deepEqual(one, { value: { v: 1, size: 2 }, version: 1 });
  assert.deepEqual(await things.readForChange(store, "bad"), { value: undefined, version: 1 });
  assert.deepEqual(store.unreadable.list().map(({ key }) => key), ["bad"]);
  assert.equal(await store.batch([things.putOver("one", one.version, { v: 1, size: 3 })]), true);
  assert.equal(await store.batch([things.putOver("one", one.version, { v: 1, size: 4 })]), false);
});

test("a damaged record is set aside by each reader of a collection, and holds up no other record", async () => {
  const store = createMemoryStore();
  const things = new Collection("things", v.object({ v: v.literal(1), size: v.number() }));
  await store.batch([
    things.put("b", { v: 1, size: 2 }),
    { op: "put", collection: "things", key: "a", body: { v: 1 } },
    things.put("c", { v: 1, size: 3 }),
  ]);
  assert.deepEqual([await things.tryRead(store, "none"), await things.tryRead(store, "a")], [undefined, undefined]);
  assert.deepEqual((await things.tryRead(store, "b"))?.value.size, 2);
  assert.deepEqual((await things.page(store, { limit: 2 })).map(({ key }) => key), ["b"]);
  assert.deepEqual(store.unreadable.list().map(({ key }) => key), ["a"]);
  assert.deepEqual(await Array.fromAsync(things.keys(store)), ["a", "b", "c"]);
  assert.deepEqual([await things.versionOf(store, "a"), await things.versionOf(store, "none")], [1, 0]);
  assert.deepEqual(await things.removeOldest(store, 2, () => true), [things.remove("b")]);
  assert.deepEqual(await things.removeOldest(store, 3, ({ size }) => size > 2), [things.remove("c")]);
});
