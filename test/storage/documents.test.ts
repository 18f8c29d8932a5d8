import fc from "fast-check";
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDocuments, type DocumentKey, DOCUMENTS } from "../../lib/storage/documents.ts";

test("a list comes back unchanged under any key", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((text) => !text.includes("\0"));
  const list = fc.array(fc.record({ id: fc.string(), context_length: fc.integer(), note: fc.constant(null) }));
  await fc.assert(
    fc.asyncProperty(key, list, async (name, value) => {
      await documents.set(`models/${name}`, value);
      assert.equal(JSON.stringify(await documents.get(`models/${name}`)), JSON.stringify(value));
    }),
    { numRuns: 100 },
  );
});

test("keys that unstorage would join stay apart", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  const keys = ["a", "a/b", "a:b", "a?b", "a?", "a$", "$", ":a", "a:", "a\\b", "..", "."]
    .map((name): DocumentKey => `models/${name}`);
  for (const key of keys) await documents.set(key, [key]);
  for (const key of keys) assert.deepEqual(await documents.get(key), [key]);
});

test("documents outlive the storage that wrote them: each mount keeps them in the store", async () => {
  const store = createMemoryStore();
  await createDocuments({ store }).set("models/a", ["kept"]);
  assert.deepEqual(await createDocuments({ store }).get("models/a"), ["kept"]);
  const [record] = await store.scan(DOCUMENTS.name, { limit: 10 });
  assert.equal(Buffer.from(record?.key ?? "", "base64url").toString(), "models/a");
});

test("a document that is missing or damaged is none, and the damaged one is set aside", async () => {
  const store = createMemoryStore();
  const documents = createDocuments({ store });
  assert.equal(await documents.get("models/a"), undefined);
  await store.batch([
    { op: "put", collection: DOCUMENTS.name, key: Buffer.from("models/b").toString("base64url"), body: { v: 2 } },
  ]);
  assert.equal(await documents.get("models/b"), undefined);
  assert.equal(store.unreadable.count(), 1);
});
