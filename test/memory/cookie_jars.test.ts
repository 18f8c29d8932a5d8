import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import type { KeptCookie } from "../../lib/base/records/cookie_jar.ts";
import { COOKIE_JARS } from "../../lib/memory/browser_records.ts";
import { createCookieJars, MAX_JAR_BYTES } from "../../lib/memory/cookie_jars.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createRecordCipher } from "../../lib/storage/record_cipher.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const cookie = (value: string): KeptCookie => ({
  ...{ name: "session", value, domain: "example.com", path: "/", expires: -1 },
  ...{ httpOnly: true, secure: true, sameSite: "Lax" },
});

function setUp() {
  const store = createMemoryStore();
  const random = createSeededRandom();
  const jarsWith = (key: Uint8Array) =>
    createCookieJars({ store, cipher: () => Promise.resolve(createRecordCipher(key, random)) });
  return { store, jarsWith, jars: jarsWith(new Uint8Array(32).fill(1)) };
}

test("cookies are kept for one conversation, and their text is nowhere in the store", async () => {
  const { store, jars } = setUp();
  assert.deepEqual(await jars.get("one"), []);
  assert.equal(await jars.set("one", [cookie("very-secret")]), true);
  assert.deepEqual(await jars.get("one"), [cookie("very-secret")]);
  assert.deepEqual(await jars.get("two"), []);
  const stored = await store.get(COOKIE_JARS.name, "one");
  assert.doesNotMatch(JSON.stringify(stored?.body), /very-secret|example|session/);
});

test("no cookies leave no record", async () => {
  const { store, jars } = setUp();
  await jars.set("one", [cookie("a")]);
  await jars.set("one", []);
  assert.equal(await store.get(COOKIE_JARS.name, "one"), undefined);
});

test("cookies above the bound are refused, and those before stay", async () => {
  const { jars } = setUp();
  await jars.set("one", [cookie("a")]);
  assert.equal(await jars.set("one", [cookie("x".repeat(MAX_JAR_BYTES))]), false);
  assert.deepEqual(await jars.get("one"), [cookie("a")]);
});

test("a jar of another conversation, another key or other bytes does not open, and says what helps", async () => {
  const { store, jars, jarsWith } = setUp();
  await jars.set("one", [cookie("a")]);
  const stored = await store.get(COOKIE_JARS.name, "one");
  await store.batch([COOKIE_JARS.put("two", stored?.body as never)]);
  await assert.rejects(jars.get("two"), {
    code: "cookies_altered",
    message: /the conversation "two": it was altered, or belongs to another record; delete the conversation$/,
  });
  await assert.rejects(jarsWith(new Uint8Array(32)).get("one"), {
    code: "cookies_altered",
    message: /sealed with another key; put the right browser_cookies\.key into the data directory/,
  });
});

test("a key that cannot be used is an error of the call", async () => {
  const store = createMemoryStore();
  const cipher = () => Promise.reject(new ConfigError("key_file", "The key has a wrong length"));
  await assert.rejects(createCookieJars({ store, cipher }).set("one", [cookie("a")]), {
    code: "cookies_key",
    message: "The key has a wrong length",
  });
});
