import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger, type LogRecord } from "../../../lib/base/telemetry/log.ts";
import { isDefaultModel } from "../../../lib/providers/models/model_names.ts";
import { loadProviderMemory } from "../../../lib/providers/discovery/provider_memory.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../../lib/storage/documents.ts";
import type { Store } from "../../../lib/storage/store.ts";

function loadFrom(store: Store) {
  const lines: LogRecord[] = [];
  const sink = (line: LogRecord) => void lines.push(line);
  const log = createLogger({ level: "info", now: () => 0, sink, redact: (text) => text });
  return loadProviderMemory({ store, log }).then((memory) => ({ memory, lines }));
}

const server = (port: number, models: readonly string[]) => ({
  software: "llama.cpp",
  kind: "openai_compatible" as const,
  baseUrl: `http://127.0.0.1:${port}/v1`,
  models,
});

test("a fresh store knows nothing; what is remembered outlives the process", async () => {
  const store = createMemoryStore();
  const { memory } = await loadFrom(store);
  assert.deepEqual([memory.known(), memory.servers()], [false, []]);
  await memory.remember(server(1, ["a"]));
  await memory.remember(server(2, ["b"]));
  await memory.remember(server(1, ["a", "c"]));
  const again = (await loadFrom(store)).memory;
  assert.equal(again.known(), true);
  assert.deepEqual(again.servers(), [server(1, ["a", "c"]), server(2, ["b"])]);
});

test("the same server again writes nothing", async () => {
  const store = createMemoryStore();
  const { memory } = await loadFrom(store);
  await memory.remember(server(1, ["a"]));
  await memory.remember(server(1, ["a"]));
  await memory.remember();
  assert.equal((await store.get("providers", "memory"))?.version, 1);
});

test("at most 16 servers, 500 models of each and names of 256 characters are kept", async () => {
  const { memory } = await loadFrom(createMemoryStore());
  const models = ["x".repeat(257), ...Array.from({ length: 501 }, (_, at) => `model-${at}`)];
  for (let port = 1; port <= 17; port++) await memory.remember(server(port, models));
  assert.equal(memory.servers().length, 16);
  assert.deepEqual([memory.servers()[0]?.models.length, memory.servers()[0]?.models[0]], [500, "model-0"]);
});

test("a memory that cannot be read counts as known, with a line in the log", async () => {
  for (const body of [{ v: 2 }, "broken", { v: 1, servers: [{ models: 3 }] }]) {
    const store = createMemoryStore();
    await store.batch([{ op: "put", collection: "providers", key: "memory", body }]);
    const { memory, lines } = await loadFrom(store);
    assert.deepEqual([memory.known(), lines.map(({ level }) => level)], [true, ["error"]]);
  }
});

test("a data directory of an older version is known by the list of a real provider's models", async () => {
  for (const [key, known] of [["models/openai/abc", true], ["models/offline/abc", false]] as const) {
    const store = createMemoryStore();
    await createDocuments({ store }).set(key, []);
    assert.equal((await loadFrom(store)).memory.known(), known, key);
  }
});

for (
  const [name, isDefault] of [
    [undefined, true],
    ["", true],
    ["default", true],
    ["assistant", true],
    ["Default", false],
    [" ", false],
    ["offline/assistant", false],
    ["gpt-4o", false],
  ] as const
) {
  test(`the model ${JSON.stringify(name)} ${isDefault ? "is" : "is not"} a name of the default`, () =>
    assert.equal(isDefaultModel(name), isDefault));
}

test("servers that two gateways of one machine trust are trusted, and a damaged record is replaced", async () => {
  const store = createMemoryStore();
  const [{ memory: one }, { memory: other }] = [await loadFrom(store), await loadFrom(store)];
  const at = (port: number) => ({ origin: `http://127.0.0.1:${port}`, uid: port });
  await one.trust(at(1));
  await other.trust(at(2));
  assert.deepEqual(other.trusted(), [at(2), at(1)]);
  assert.deepEqual((await loadFrom(store)).memory.trusted(), [at(2), at(1)]);
  const commit = async (writes: Parameters<Store["batch"]>[0]) => {
    await other.trust(at(3));
    return await store.batch(writes);
  };
  let isFirst = true;
  await one.trust(at(4), (writes) => {
    const by = isFirst ? commit : store.batch;
    isFirst = false;
    return by(writes);
  });
  assert.deepEqual((await loadFrom(store)).memory.trusted(), [at(4), at(3), at(2), at(1)]);
  await store.batch([{ op: "put", collection: "providers", key: "trusted", body: { v: 9 } }]);
  await one.trust(at(5));
  assert.deepEqual((await loadFrom(store)).memory.trusted(), [at(5)]);
});
