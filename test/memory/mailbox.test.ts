import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError, ToolError } from "../../lib/base/errors.ts";
import { Mailbox, MAILBOX_LIMITS } from "../../lib/memory/mailbox.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createRecordCipher } from "../../lib/storage/record_cipher.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

function setUp(options: { readonly store?: Store; readonly key?: number; readonly seed?: number } = {}) {
  const clock = createFakeClock();
  const store = options.store ?? createMemoryStore();
  const random = createSeededRandom(options.seed ?? 1);
  const cipher = createRecordCipher(new Uint8Array(32).fill(options.key ?? 1), random);
  const mailbox = new Mailbox({ store, clock, random, cipher: () => Promise.resolve(cipher) });
  const send = (from: string, to: string, payload: string) => mailbox.send({ from, to, payload, sender: "cli" });
  return { store, clock, mailbox, send };
}

const isError = (code: string, about = "") => (error: unknown) =>
  error instanceof ToolError && error.code === code && error.message.includes(about);

test("what is sent is received once, in order, with its time and its sender", async () => {
  const { mailbox, clock, send } = setUp();
  const sent = await mailbox.send({ from: "ann", to: "bob", payload: "one", sender: "http:tok_1" });
  assert.deepEqual(sent, {
    from: "ann",
    to: "bob",
    payload: "one",
    timestamp: "2026-01-01T00:00:00.000Z",
    sender: "http:tok_1",
  });
  await clock.advance(1500);
  await send("cid", "bob", "two");
  await send("ann", "dan", "three");
  const received = await mailbox.receive("bob");
  assert.deepEqual(received.map(({ from, payload, timestamp, sender }) => [from, payload, timestamp, sender]), [
    ["ann", "one", "2026-01-01T00:00:00.000Z", "http:tok_1"],
    ["cid", "two", "2026-01-01T00:00:01.500Z", "cli"],
  ]);
  assert.deepEqual(await mailbox.receive("bob"), []);
  assert.equal((await mailbox.receive("dan")).length, 1);
});

test("the key is opened once, however many come first", async () => {
  const random = createSeededRandom(1);
  let opened = 0;
  const cipher = () => {
    opened++;
    return Promise.resolve(createRecordCipher(new Uint8Array(32), random));
  };
  const mailbox = new Mailbox({ store: createMemoryStore(), clock: createFakeClock(), random, cipher });
  await Promise.all([mailbox.receive("bob"), mailbox.list({})]);
  assert.equal(opened, 1);
});

test("list() shows by receiver, sender and number, and removes nothing", async () => {
  const { mailbox, send } = setUp();
  for (const [from, to] of [["ann", "bob"], ["cid", "bob"], ["ann", "dan"]] as const) {
    await send(from, to, `${from}-${to}`);
  }
  const shown = async (filter: Parameters<typeof mailbox.list>[0]) =>
    (await mailbox.list(filter)).map(({ payload }) => payload);
  assert.deepEqual(await shown({}), ["ann-bob", "cid-bob", "ann-dan"]);
  assert.deepEqual(await shown({ to: "bob" }), ["ann-bob", "cid-bob"]);
  assert.deepEqual(await shown({ from: "ann" }), ["ann-bob", "ann-dan"]);
  assert.deepEqual(await shown({ to: "bob", from: "cid" }), ["cid-bob"]);
  assert.deepEqual(await shown({ limit: 2 }), ["ann-bob", "cid-bob"]);
  assert.deepEqual(await shown({ to: "nobody" }), []);
  assert.equal((await mailbox.receive("bob")).length, 2);
});

test("clear() removes by receiver and sender and says how many", async () => {
  const { mailbox, send } = setUp();
  for (const [from, to] of [["ann", "bob"], ["cid", "bob"], ["ann", "dan"]] as const) await send(from, to, "x");
  assert.equal(await mailbox.clear({ to: "bob", from: "nobody" }), 0);
  assert.equal(await mailbox.clear({ to: "bob", from: "ann" }), 1);
  assert.equal((await mailbox.list({ to: "bob" })).length, 1);
  assert.equal(await mailbox.clear({}), 2);
  assert.deepEqual(await mailbox.list({}), []);
});

test("of many who receive at once each message goes to exactly one, and none is lost while others send", async () => {
  const { mailbox, send } = setUp();
  const sent = Array.from({ length: 20 }, (_, index) => send("ann", "bob", String(index)));
  const taken = Array.from({ length: 10 }, () => mailbox.receive("bob"));
  const received = (await Promise.all([...taken, Promise.all(sent).then(() => mailbox.receive("bob"))])).flat();
  assert.deepEqual(received.map(({ payload }) => Number(payload)).sort((a, b) => a - b), Array.from(Array(20).keys()));
});

test("names keep their own mailboxes, whatever characters they have", async () => {
  const { mailbox, send } = setUp();
  const names = ["a", "a/b", "a%2Fb", "A", " ", "ä", "*", "__proto__"];
  for (const name of names) await send("x", name, name);
  for (const name of names) assert.deepEqual((await mailbox.receive(name)).map(({ payload }) => payload), [name]);
});

test("nothing readable is stored: neither payload nor sender nor time", async () => {
  const { mailbox, store } = setUp();
  await mailbox.send({ from: "ann", to: "bob", payload: "the secret plan", sender: "http:tok_1" });
  const text = JSON.stringify((await store.get("mailboxes", "bob"))?.body);
  for (const word of ["secret", "tok_1", "2026"]) assert.ok(!text.includes(word), word);
});

/** Every place in a JSON value with a way to change it. */
function* places(value: unknown, path: readonly (string | number)[] = []): Generator<readonly (string | number)[]> {
  if (value === null || typeof value !== "object") return yield path;
  for (const [key, item] of Object.entries(value)) {
    yield* places(item, [...path, Array.isArray(value) ? Number(key) : key]);
  }
}

function altered(body: unknown, path: readonly (string | number)[], change: (value: unknown) => unknown): unknown {
  const copy = structuredClone(body) as Record<string | number, unknown>;
  const last = path.at(-1) as string | number; // every place has a path
  const parent = path.slice(0, -1).reduce((at, key) => at[key] as Record<string | number, unknown>, copy);
  parent[last] = change(parent[last]);
  return copy;
}

const flip = (value: unknown): unknown => {
  if (typeof value === "number") return value + 1;
  const text = String(value);
  const at = Math.floor(text.length / 2);
  return text.slice(0, at) + (text[at] === "A" ? "B" : "A") + text.slice(at + 1);
};

test("every field that was altered on the disk is an error; nothing is removed, and clear() gets rid of it", async () => {
  const { mailbox, store, send } = setUp();
  await send("ann", "bob", "one");
  await send("cid", "bob", "two");
  await send("ann", "eve", "whole");
  const whole = (await store.get("mailboxes", "bob"))?.body;
  for (const path of places(whole)) {
    await store.batch([{ op: "put", collection: "mailboxes", key: "bob", body: altered(whole, path, flip) }]);
    await assert.rejects(mailbox.receive("bob"), isError("mailbox_altered", '"clear"'), path.join("."));
    await assert.rejects(mailbox.list({ to: "bob" }), isError("mailbox_altered"), path.join("."));
    assert.deepEqual((await mailbox.list({})).map(({ to }) => to), ["eve"], "others are listed");
    assert.deepEqual(store.unreadable.list().map(({ key }) => key), ["bob"]);
    assert.notEqual(await store.get("mailboxes", "bob"), undefined);
  }
  assert.ok(await mailbox.clear({ to: "bob" }) > 0);
  await send("ann", "bob", "three");
  assert.deepEqual((await mailbox.receive("bob")).map(({ payload }) => payload), ["three"]);
});

test("messages that changed places, senders or mailboxes are errors", async () => {
  const { mailbox, store, send } = setUp();
  await send("ann", "bob", "one");
  await send("cid", "bob", "two");
  await send("ann", "dan", "three");
  type Body = { v: 1; entries: { from: string; sealed: unknown; [key: string]: unknown }[] };
  const [bob, dan] = await Promise.all(
    ["bob", "dan"].map(async (to) => (await store.get("mailboxes", to))?.body as Body),
  );
  assert.ok(bob !== undefined && dan !== undefined);
  const [one, two] = bob.entries;
  assert.ok(one !== undefined && two !== undefined);
  const attacks: Body["entries"][] = [
    [two, one],
    [one, one],
    [{ ...one, sealed: two.sealed }, two],
    [{ ...one, from: "cid" }, two],
    dan.entries,
    [one, { ...dan.entries[0], from: "ann", sealed: dan.entries[0]?.sealed, seq: 2 }],
  ];
  for (const entries of attacks) {
    await store.batch([{ op: "put", collection: "mailboxes", key: "bob", body: { v: 1, entries } }]);
    await assert.rejects(mailbox.receive("bob"), isError("mailbox_altered"), JSON.stringify(entries));
  }
});

test("messages sealed with another key are an error that says so", async () => {
  const store = createMemoryStore();
  await setUp({ store, key: 1 }).send("ann", "bob", "one");
  await assert.rejects(setUp({ store, key: 2 }).mailbox.receive("bob"), isError("mailbox_altered", "another key"));
  assert.equal((await setUp({ store, key: 1 }).mailbox.receive("bob")).length, 1);
});

test("a key that cannot be used is an error, and is asked for again", async () => {
  const store = createMemoryStore();
  const random = createSeededRandom();
  let broken = true;
  const cipher = () =>
    broken
      ? Promise.reject(new ConfigError("key_file", "Cannot use the key file: it has 3 bytes"))
      : Promise.resolve(createRecordCipher(new Uint8Array(32), random));
  const mailbox = new Mailbox({ store, clock: createFakeClock(), random, cipher });
  const message = { from: "a", to: "b", payload: "c", sender: "cli" };
  await assert.rejects(mailbox.send(message), isError("mailbox_key", "3 bytes"));
  broken = false;
  await mailbox.send(message);
  assert.equal((await mailbox.receive("b")).length, 1);
});

test("bounds are refused, naming the field", async () => {
  const { mailbox, send } = setUp();
  const bad = (field: string) => isError("invalid_input", `"${field}"`);
  for (const name of ["", "x".repeat(129), "a\0", "\ud800"]) {
    await assert.rejects(send(name, "bob", "x"), bad("from"));
    await assert.rejects(send("ann", name, "x"), bad("to"));
    await assert.rejects(mailbox.receive(name), bad("to"));
    await assert.rejects(mailbox.list({ from: name }), bad("from"));
    await assert.rejects(mailbox.clear({ to: name }), bad("to"));
  }
  await assert.rejects(send("ann", "bob", "x".repeat(65_537)), bad("payload"));
  await assert.rejects(send("ann", "bob", "\ud800"), bad("payload"));
  await send("ann", "bob", "x".repeat(65_536));
});

test("a full mailbox refuses more until it is received, by number and by size, also under parallel sends", async () => {
  const { mailbox, send } = setUp();
  const results = await Promise.allSettled(Array.from({ length: 6 }, () => send("ann", "bob", "\0".repeat(9000))));
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 4);
  const received = await mailbox.receive("bob");
  assert.ok(JSON.stringify({ messages: received }).length <= MAILBOX_LIMITS.bytes + 20);
  for (let index = 0; index < MAILBOX_LIMITS.messages; index++) await send("a", "b", "");
  await assert.rejects(send("a", "b", ""), isError("mailbox_full", "1000 messages"));
});

test("there are only so many mailboxes", async () => {
  const { send } = setUp();
  for (let index = 0; index < MAILBOX_LIMITS.mailboxes; index++) await send("a", `b${index}`, "");
  await assert.rejects(send("a", "one more", ""), isError("mailbox_full", "1000 mailboxes"));
  await send("a", "b7", "");
});
