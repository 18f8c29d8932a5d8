import fc from "fast-check";
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../lib/storage/documents.ts";

test("any JSON value comes back unchanged under any key", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((text) => !text.includes("\0"));
  await fc.assert(
    fc.asyncProperty(key, fc.jsonValue(), async (name, value) => {
      await documents.set(name, value);
      assert.equal(JSON.stringify(await documents.get(name)), JSON.stringify(value));
    }),
    { numRuns: 100 },
  );
});

test("texts that look like other types stay texts", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  for (const value of ["true", "123", "null", "undefined", '{"a":1}', "", null, false, 0]) {
    await documents.set("k", value);
    assert.equal(await documents.get("k"), value);
  }
});

test("keys that unstorage would join stay apart, and are listed as they were", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  const keys = ["a", "a/b", "a:b", "a?b", "a?", "a$", "$", ":a", "a:", "a\\b", "..", "."].sort();
  for (const key of keys) await documents.set(key, key);
  for (const key of keys) assert.equal(await documents.get(key), key);
  assert.deepEqual(await documents.keys(), keys);
  for (const key of keys) {
    await documents.remove(key);
    assert.equal(await documents.get(key), undefined);
  }
  assert.deepEqual(await documents.keys(), []);
});

test("set() refuses what JSON cannot carry", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  await assert.rejects(documents.set("k", undefined), TypeError);
  await assert.rejects(documents.set("", 1), TypeError);
});

test("more documents than one page are all listed", async () => {
  const documents = createDocuments({ store: createMemoryStore() });
  for (let index = 0; index < 1001; index++) await documents.set(`k${index}`, index);
  assert.equal((await documents.keys()).length, 1001);
});
