import assert from "node:assert/strict";
import { test } from "node:test";
import { ToolError } from "../../lib/base/errors.ts";
import { Memory } from "../../lib/memory/memory.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";

function setUp(store: Store = createMemoryStore()) {
  const clock = createFakeClock();
  return { store, clock, memory: new Memory({ store, clock }) };
}

const isError = (code: string, about: string) => (error: unknown) =>
  error instanceof ToolError && error.code === code && error.message.includes(about);
const keysOf = (records: readonly { readonly key: string }[]) => records.map(({ key }) => key);

test("a value is kept under its key and recalled by it, exactly", async () => {
  const { memory } = setUp();
  const value = 'line\n"quoted" \u{1F600} \0 true';
  const { record, replaced } = await memory.store({ key: "a/b:c?", value, tags: ["x", "y", "x"] });
  assert.equal(replaced, false);
  assert.deepEqual(record, {
    namespace: "default",
    key: "a/b:c?",
    value,
    tags: ["x", "y"],
    created_at: "2026-01-01T00:00:00.000Z",
    updated_at: "2026-01-01T00:00:00.000Z",
  });
  assert.deepEqual(await memory.recall({ key: "a/b:c?" }), [record]);
  assert.deepEqual(await memory.recall({ key: "a/b:c" }), []);
});

test("a second value takes the place of the first and keeps when it was created", async () => {
  const { memory, clock } = setUp();
  await memory.store({ key: "k", value: "apple" });
  await clock.advance(1000);
  const { record, replaced } = await memory.store({ key: "k", value: "banana" });
  assert.deepEqual([replaced, record.created_at, record.updated_at], [
    true,
    "2026-01-01T00:00:00.000Z",
    "2026-01-01T00:00:01.000Z",
  ]);
  assert.deepEqual(keysOf(await memory.recall({ query: "apple" })), []);
  assert.deepEqual(keysOf(await memory.recall({ query: "banana" })), ["k"]);
});

test("recall by words finds them in key, value and tags, best first", async () => {
  const { memory } = setUp();
  await memory.store({ key: "deploy", value: "The script is scripts/release.ts; staging first" });
  await memory.store({
    key: "lunch",
    value: "Noon, in the staging area of the canteen, which has been there for many years",
  });
  await memory.store({ key: "fruit", value: "banana", tags: ["food"] });
  for (let index = 0; index < 5; index++) await memory.store({ key: `filler${index}`, value: "nothing to see" });
  assert.deepEqual(keysOf(await memory.recall({ query: "deploy" })), ["deploy"]);
  assert.deepEqual(keysOf(await memory.recall({ query: "food" })), ["fruit"]);
  assert.deepEqual(keysOf(await memory.recall({ query: "release staging" })), ["deploy", "lunch"]);
  assert.deepEqual(keysOf(await memory.recall({ query: "release staging", limit: 1 })), ["deploy"]);
  assert.deepEqual(await memory.recall({ query: '"*" OR' }), []);
});

test("recall without a key or words gives the newest first, ten at most unless told", async () => {
  const { memory } = setUp();
  for (let index = 0; index < 15; index++) await memory.store({ key: `k${index}`, value: "v" });
  assert.deepEqual(keysOf(await memory.recall({ limit: 2 })), ["k14", "k13"]);
  assert.equal((await memory.recall({ query: "  " })).length, 10);
  assert.equal((await memory.recall({ limit: 100 })).length, 15);
});

test("namespaces do not see each other", async () => {
  const { memory } = setUp();
  await memory.store({ key: "k", value: "one", namespace: "a" });
  await memory.store({ key: "k", value: "two", namespace: "a.b" });
  await memory.store({ key: "b/k", value: "three", namespace: "a" });
  assert.deepEqual((await memory.recall({ namespace: "a" })).map(({ value }) => value), ["three", "one"]);
  assert.deepEqual((await memory.recall({ key: "k", namespace: "a.b" }))[0]?.value, "two");
  assert.deepEqual(await memory.recall({ query: "one" }), []);
  assert.equal(await memory.forget({ key: "k" }), false);
  assert.equal(await memory.forget({ key: "k", namespace: "a" }), true);
  assert.equal((await memory.recall({ key: "k", namespace: "a.b" })).length, 1);
});

test("a forgotten value is gone, from the index too", async () => {
  const { memory } = setUp();
  await memory.store({ key: "k", value: "secret plan" });
  assert.equal(await memory.forget({ key: "k" }), true);
  assert.equal(await memory.forget({ key: "k" }), false);
  assert.deepEqual([await memory.recall({ key: "k" }), await memory.recall({ query: "secret" })], [[], []]);
});

test("values out of bounds are refused, naming the field", async () => {
  const { memory } = setUp();
  const bad = (field: string) => isError("invalid_input", `"${field}"`);
  for (const key of ["", "x".repeat(257), "a\0b", "\ud800"]) {
    await assert.rejects(memory.store({ key, value: "v" }), bad("key"));
    await assert.rejects(memory.recall({ key }), bad("key"));
    await assert.rejects(memory.forget({ key }), bad("key"));
  }
  await assert.rejects(memory.store({ key: "k", value: "é".repeat(32_769) }), bad("value"));
  await assert.rejects(memory.store({ key: "k", value: "v", tags: Array(21).fill("t") }), bad("tags"));
  await assert.rejects(memory.store({ key: "k", value: "v", tags: ["x".repeat(65)] }), bad("tags"));
  for (const namespace of ["", "a/b", "x".repeat(65), "é", "a\n"]) {
    await assert.rejects(memory.store({ key: "k", value: "v", namespace }), bad("namespace"));
    await assert.rejects(memory.recall({ namespace }), bad("namespace"));
  }
  for (const limit of [0, 101, 1.5, NaN]) await assert.rejects(memory.recall({ limit }), bad("limit"));
  await memory.store({ key: "\u{10FFFF}".repeat(128), value: "é".repeat(32_768), tags: ["t"] });
});

test("parallel writes of one key are all answered, and one of them stays", async () => {
  const { memory } = setUp();
  const values = Array.from({ length: 10 }, (_, index) => `v${index}`);
  const results = await Promise.all(values.map((value) => memory.store({ key: "k", value })));
  assert.equal(results.filter(({ replaced }) => !replaced).length, 1);
  const [kept] = await memory.recall({ key: "k" });
  assert.ok(values.includes(kept?.value ?? ""));
});

test("a full memory refuses new keys, still takes new values of old ones, and has room again after forgetting", async () => {
  const inner = createMemoryStore();
  let others = 99_997;
  const { memory } = setUp({ ...inner, count: async (...args) => others + await inner.count(...args) });
  for (const key of ["one", "two", "three"]) await memory.store({ key, value: "1" });
  await assert.rejects(
    memory.store({ key: "new", value: "1" }),
    isError("memory_full", "100000 records already; forget"),
  );
  assert.equal((await memory.store({ key: "one", value: "2" })).replaced, true);
  await memory.forget({ key: "two" });
  await memory.store({ key: "new", value: "1" });
  await assert.rejects(memory.store({ key: "newer", value: "1" }), isError("memory_full", "forget"));
  others = 0;
  await memory.store({ key: "newer", value: "1" });
});

test("of many new keys at once no more are kept than fit", async () => {
  const inner = createMemoryStore();
  const { memory } = setUp({ ...inner, count: async (...args) => 99_990 + await inner.count(...args) });
  const stored = await Promise.allSettled(
    Array.from({ length: 30 }, (_, index) => memory.store({ key: `k${index}`, value: "v" })),
  );
  assert.equal(stored.filter(({ status }) => status === "fulfilled").length, 10);
});

test("bodies carry a version, and one that no version wrote is an error, not a record", async () => {
  const { memory, store } = setUp();
  await memory.store({ key: "k", value: "v" });
  assert.equal(((await store.get("memory", "default/k"))?.body as { v: number }).v, 1);
  await store.batch([{ op: "put", collection: "memory", key: "default/odd", body: { v: 99, value: "x" } }]);
  await assert.rejects(memory.recall({ key: "odd" }));
});
