import assert from "node:assert/strict";
import { test } from "node:test";
import { vectorOf } from "../../fixtures/upstream/embeddings_upstream.ts";
import { cancelError } from "../../lib/base/cancel.ts";
import { ProviderError } from "../../lib/base/errors.ts";
import { type Logger, SILENT } from "../../lib/base/telemetry/log.ts";
import { MEMORY, Memory, memoryText } from "../../lib/memory/memory.ts";
import { type Embedder, MemoryVectors } from "../../lib/memory/memory_vectors.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";

const failure = (code: "provider_error" | "provider_rejected") =>
  new ProviderError(code, "Cannot embed", { provider: "fake", status: code === "provider_rejected" ? 400 : 500 });

function setUp() {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const warnings: string[] = [];
  const log: Logger = { ...SILENT, warn: (message) => void warnings.push(message) };
  /** The model that is in use, the texts it was asked for, and how it answers */
  const model = {
    name: "fake/one" as string | undefined,
    asked: [] as string[],
    fails: (_text: string): Error | undefined => undefined,
    hangs: false,
  };
  const vectors = new MemoryVectors({
    store,
    clock,
    log,
    collection: MEMORY.name,
    redact: (text) => text.replaceAll("sk-secret", "[redacted]"),
    textOf: ({ body }) => memoryText(MEMORY.parse(body)),
    alone: async (work) => {
      await work();
      return true;
    },
  });
  const embedder = (): Embedder | undefined =>
    model.name === undefined ? undefined : {
      model: model.name,
      async embed(texts, signal) {
        model.asked.push(...texts);
        const error = texts.map((text) => model.fails(text)).find((one) => one !== undefined);
        if (error !== undefined) throw error;
        if (model.hangs) {
          await new Promise((_, reject) => signal.addEventListener("abort", () => reject(cancelError(signal))));
        }
        return texts.map((text) => Float32Array.from([...vectorOf(text), model.name === "fake/one" ? 0 : 0.1]));
      },
    };
  const memory = new Memory({ store, clock, vectors });
  const recall = async (query: string, limit = 10) => (await memory.recall({ query, limit })).map(({ key }) => key);
  const missing = async () =>
    (await store.vectorless(MEMORY.name, { model: model.name ?? "", limit: 100 })).records.length;
  const settled = () => until(async () => await missing() === 0);
  return { clock, store, memory, vectors, embedder, model, recall, missing, settled, warnings };
}

async function storeAll(memory: ReturnType<typeof setUp>["memory"]): Promise<void> {
  await memory.store({ key: "vehicles", value: "An automobile is in the yard" });
  await memory.store({ key: "money", value: "Payment is due in May" });
  await memory.store({ key: "food", value: "The canteen closes at two" });
}

test("a memory is found in other words than its own once its vector is computed", async () => {
  const { memory, vectors, embedder, recall, settled } = setUp();
  vectors.start(embedder);
  await storeAll(memory);
  await settled();
  assert.equal((await recall("the physician has a car"))[0], "vehicles");
  assert.equal((await recall("unpaid bill"))[0], "money");
  assert.equal((await memory.list({ query: "meal", limit: 1 })).records[0]?.key, "food");
  assert.deepEqual(await memory.recall({ query: "car", namespace: "other" }), []);
  await vectors.close();
});

test("memories that were there before are embedded at the start, and others with another model", async () => {
  const { memory, vectors, embedder, recall, settled, model } = setUp();
  await storeAll(memory);
  vectors.start(embedder);
  await settled();
  assert.equal(model.asked.length, 3);
  model.name = "fake/two";
  // The next search notices the other model
  await recall("car");
  await settled();
  assert.equal((await recall("car"))[0], "vehicles");
  await vectors.close();
});

test("known secrets are taken out of what is sent, and a long text is cut", async () => {
  const { memory, vectors, embedder, recall, settled, model } = setUp();
  vectors.start(embedder);
  await memory.store({ key: "k", value: `sk-secret ${"x".repeat(7_975)}sk-secret` });
  await settled();
  await recall("where is sk-secret");
  assert.equal(model.asked.length, 2);
  for (const text of model.asked) assert.match(text, /^[^]{1,8000}$/);
  assert.equal(model.asked.join(" ").includes("sk-"), false);
  await vectors.close();
});

test("without a model nothing is asked, and words find memories as before", async () => {
  const { memory, vectors, embedder, recall, model } = setUp();
  model.name = undefined;
  vectors.start(embedder);
  await storeAll(memory);
  assert.deepEqual(await recall("automobile"), ["vehicles"]);
  assert.deepEqual([await recall("car"), model.asked], [[], []]);
  await vectors.close();
});

test("while the model fails memories are stored and found by words, and it is asked again after a pause", async () => {
  const { memory, vectors, embedder, recall, missing, settled, model, clock, warnings } = setUp();
  model.fails = () => failure("provider_error");
  vectors.start(embedder);
  await storeAll(memory);
  await until(() => clock.pending() === 1);
  assert.deepEqual(await recall("automobile"), ["vehicles"]);
  assert.equal(await missing(), 3);
  const asked = model.asked.length;
  await memory.store({ key: "more", value: "A doctor came" });
  assert.equal(model.asked.length, asked);
  assert.ok(warnings.some((message) => message.includes("found by words alone until")));
  await clock.advance(29_999);
  assert.equal(model.asked.length, asked);
  model.fails = () => undefined;
  await clock.advance(1);
  await settled();
  assert.equal((await recall("physician"))[0], "more");
  await vectors.close();
});

test("pauses double while the model goes on failing, up to ten minutes", async () => {
  const { memory, vectors, embedder, model, clock } = setUp();
  model.fails = () => failure("provider_error");
  await memory.store({ key: "k", value: "v" });
  vectors.start(embedder);
  for (const seconds of [30, 60, 120, 240, 480, 600, 600]) {
    await until(() => clock.pending() === 1);
    const asked = model.asked.length;
    await clock.advance(seconds * 1000 - 1);
    assert.equal(model.asked.length, asked, `${seconds}`);
    await clock.advance(1);
    await until(() => model.asked.length === asked + 1);
  }
  await until(() => clock.pending() === 1);
  await vectors.close();
  assert.equal(clock.pending(), 0);
});

test("a memory that the model refuses is left out, and its neighbours are embedded", async () => {
  const { memory, vectors, embedder, recall, missing, model, warnings } = setUp();
  model.fails = (text) => text.includes("canteen") ? failure("provider_rejected") : undefined;
  await storeAll(memory);
  vectors.start(embedder);
  await until(async () => await missing() === 1);
  assert.equal((await recall("car"))[0], "vehicles");
  assert.deepEqual(warnings, ["The embedding model refused a memory: it is found by words alone"]);
  await vectors.close();
});

test("a query that the model does not answer in 5 s is looked for by words", async () => {
  const { memory, vectors, embedder, recall, settled, model, clock } = setUp();
  vectors.start(embedder);
  await storeAll(memory);
  await settled();
  model.hangs = true;
  const found = recall("automobile");
  await until(() => clock.pending() === 1);
  await clock.advance(5_000);
  assert.deepEqual(await found, ["vehicles"]);
  await vectors.close();
});

test("a changed memory is found by its new meaning alone, and a forgotten one not at all", async () => {
  const { memory, vectors, embedder, recall, settled } = setUp();
  vectors.start(embedder);
  await storeAll(memory);
  await settled();
  await memory.store({ key: "vehicles", value: "The doctor is on holiday" });
  await settled();
  assert.equal((await recall("physician"))[0], "vehicles");
  await memory.forget({ key: "vehicles" });
  assert.equal((await recall("physician")).includes("vehicles"), false);
  await vectors.close();
});

test("records that words and meaning both find come first", async () => {
  const { memory, vectors, embedder, recall, settled } = setUp();
  vectors.start(embedder);
  await memory.store({ key: "words", value: "The bill of a duck is broad, and so is that bill of a goose" });
  await memory.store({ key: "both", value: "The bill of the car: an invoice for the vehicle" });
  await memory.store({ key: "meaning", value: "Automobile payment" });
  for (let index = 0; index < 5; index++) await memory.store({ key: `other${index}`, value: "nothing to see" });
  await settled();
  const found = await recall("car bill");
  assert.equal(found[0], "both");
  assert.deepEqual(found.slice(0, 3).sort(), ["both", "meaning", "words"]);
  assert.equal((await recall("car bill", 2)).length, 2);
  await vectors.close();
});

test("closing ends what is at work, and the clock keeps no timer of it", async () => {
  const { memory, vectors, embedder, model, clock, warnings } = setUp();
  model.hangs = true;
  await storeAll(memory);
  vectors.start(embedder);
  await until(() => model.asked.length > 0);
  await vectors.close();
  assert.deepEqual([clock.pending(), warnings], [0, []]);
  await assert.doesNotReject(memory.store({ key: "later", value: "v" }));
});
