import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { startLocalServer } from "../../fixtures/upstream/local_servers.ts";
import { startOpenAiUpstream } from "../../fixtures/upstream/openai_upstream.ts";
import { ConfigError, ProviderError } from "../../lib/base/errors.ts";
import { createProviderMemory } from "../../lib/providers/discovery/provider_memory.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../lib/storage/documents.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { collect, KEY, NEVER, noticesOf, settings, setUp, textOf } from "./support/provider_setup.ts";

async function upstreamOf(t: TestContext) {
  const upstream = await startOpenAiUpstream();
  t.after(() => upstream.close());
  return upstream;
}

for (
  const [env, name, model] of [
    [{ OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY }, "openai", "gpt-5-mini"],
    [{ OPENAI_API_KEY: " ", ANTHROPIC_API_KEY: KEY, OPENROUTER_API_KEY: KEY }, "anthropic", "claude-sonnet-4-5"],
    [{ OPENROUTER_API_KEY: KEY }, "openrouter", "openrouter/auto"],
  ] as const
) {
  test(`auto takes ${name} by its key, with a default model`, async (t) => {
    const { providers } = await setUp(t, { kind: "auto", model: "" }, { env });
    const { inUse } = providers;
    assert.deepEqual([inUse.name, inUse.model, inUse.reason], [name, model, `${name.toUpperCase()}_API_KEY is set`]);
  });
}

test("auto with an address never sends a vendor's key there", async (t) => {
  const upstream = await upstreamOf(t);
  const { providers } = await setUp(t, { kind: "auto", base_url: upstream.baseUrl }, { env: { OPENAI_API_KEY: KEY } });
  await collect(providers.resolve("").provider);
  assert.equal(providers.inUse.name, "openai_compatible");
  assert.equal(upstream.requests.at(-1)?.headers["authorization"], undefined);
});

test("auto takes a local server when there is no key", async (t) => {
  const server = await startLocalServer("ollama");
  t.after(() => server.close());
  const { providers } = await setUp(t, { kind: "auto", model: "" }, { localOrigins: [server.origin] });
  assert.equal(providers.inUse.name, "ollama");
  assert.equal(providers.inUse.model, "llama3.2:latest");
  assert.match(providers.inUse.reason, /^Ollama answers at 127\.0\.0\.1:\d+, run by you$/);
});

test("auto without a key and a local server is the offline provider, which says why", async (t) => {
  const { providers } = await setUp(t, { kind: "auto", model: "" });
  assert.deepEqual(providers.inUse, {
    name: "offline",
    model: "assistant",
    reason: "no API key and no local server was found",
  });
  assert.equal(textOf(await collect(providers.resolve("").provider)), "offline says hello");
});

test("the offline provider is a stand-in where auto finds nothing and a real model is known, not where it is configured", async (t) => {
  const memory = createProviderMemory();
  await memory.remember();
  for (
    const [kind, said, notices] of [
      ["auto", "offline/assistant", ["provider_fallback"]],
      ["offline", "assistant", []],
    ] as const
  ) {
    const { providers } = await setUp(t, { kind, model: "" }, { memory });
    const { provider, shown } = providers.resolve("default");
    assert.deepEqual([shown, noticesOf(await collect(provider))], [said, notices]);
  }
});

test("the error of an unknown model names ten that work, and counts the others", async (t) => {
  const memory = createProviderMemory();
  await memory.remember();
  for (
    const [count, end] of [
      [8, '"w7/m"; GET /v1/models lists them'],
      [9, '"w7/m" and 1 other of GET /v1/models'],
      [10, '"w7/m" and 2 others of GET /v1/models'],
    ] as const
  ) {
    const work = settings({ base_url: "http://127.0.0.1:9/v1", model: "m" });
    const { providers } = await setUp(t, { kind: "auto", model: "" }, {
      memory,
      providers: Object.fromEntries(Array.from({ length: count }, (_, at) => [`w${at}`, work])),
    });
    assert.throws(() => providers.resolve("gpt"), (error) => {
      assert.ok(error instanceof ProviderError && error.code === "model_not_found", String(error));
      assert.match(error.message, /the models are "default", "assistant", "w0\/m", /);
      assert.equal(error.message.slice(error.message.indexOf('"w7/m"')), end);
      return true;
    });
  }
});

test("none resolves nothing", async (t) => {
  const { providers } = await setUp(t, { kind: "none" });
  assert.throws(() => providers.resolve("x"), ProviderError);
  assert.deepEqual(await providers.listModels(NEVER), []);
});

test("resolve() takes a configured provider before the slash, else a model of the default", async (t) => {
  const upstream = await upstreamOf(t);
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, model: "main" }, {
    providers: { work: settings({ base_url: upstream.baseUrl, model: "work-model" }) },
  });
  const resolved = (name?: string) => {
    const { provider, model } = providers.resolve(name);
    return `${provider.name}: ${model}`;
  };
  assert.equal(resolved(), "openai_compatible: main");
  assert.equal(resolved(""), "openai_compatible: main");
  assert.equal(resolved("other"), "openai_compatible: other");
  assert.equal(resolved("meta-llama/Llama-3"), "openai_compatible: meta-llama/Llama-3");
  assert.equal(resolved("work/a/b"), "work: a/b");
  assert.equal(resolved("work/"), "work: work-model");
  assert.equal(resolved("openai_compatible/x"), "openai_compatible: x");
});

test("without a model a server's first one is used, asked for when it is needed", async (t) => {
  const upstream = await upstreamOf(t);
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, model: "" }, {
    providers: { late: settings({ base_url: upstream.baseUrl, model: "" }) },
  });
  assert.equal(providers.inUse.model, "upstream-model");
  const { provider, model } = providers.resolve("late/");
  assert.equal(model, "");
  await collect(provider, { model });
  assert.match(upstream.requests.at(-1)?.text ?? "", /"model":"upstream-model"/);
});

test("an address without a path gets /v1", async (t) => {
  const upstream = await upstreamOf(t);
  const { providers } = await setUp(t, { base_url: upstream.origin });
  assert.equal(textOf(await collect(providers.resolve("").provider)), "Hello from upstream");
});

test("models of all providers are listed, those of named ones under their name", async (t) => {
  const upstream = await upstreamOf(t);
  const { providers } = await setUp(t, { base_url: upstream.baseUrl }, {
    providers: { work: settings({ base_url: upstream.baseUrl }), local: settings({ kind: "offline" }) },
  });
  const models = await providers.listModels(NEVER);
  assert.deepEqual(models.map(({ id }) => id), [
    "upstream-model",
    "upstream-small",
    "work/upstream-model",
    "work/upstream-small",
    "local/assistant",
  ]);
});

test("a model named as if it were another provider's is listed with its own provider's name before it", async (t) => {
  const models = ["work/x", "works", "a/b"].map((id) => ({ id }));
  const upstream = await startFakeServer((_seen, response) => void response.end(JSON.stringify({ data: models })));
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: `${upstream.origin}/v1` }, {
    providers: { work: settings({ kind: "offline", model: "" }) },
  });
  const ids = (await providers.listModels(NEVER)).map(({ id }) => id);
  assert.deepEqual(ids, ["openai_compatible/work/x", "works", "a/b", "work/assistant"]);
  assert.deepEqual(ids.map((id) => providers.resolve(id).model), ["work/x", "works", "a/b", "assistant"]);
});

test("the list is kept for 60 s, asked for once at a time, and outlives a failing provider", async (t) => {
  const clock = createFakeClock();
  const upstream = await upstreamOf(t);
  const { providers } = await setUp(t, { base_url: upstream.baseUrl }, { clock });
  const lists = () => upstream.requests.filter(({ method }) => method === "GET").length;
  await Promise.all([providers.listModels(NEVER), providers.listModels(NEVER), providers.listModels(NEVER)]);
  assert.equal(lists(), 1);
  await clock.advance(59_000);
  await providers.listModels(NEVER);
  assert.equal(lists(), 1);
  await clock.advance(2_000);
  await providers.listModels(NEVER);
  assert.equal(lists(), 2);
  await upstream.close();
  await clock.advance(61_000);
  assert.equal((await providers.listModels(NEVER)).length, 2);
});

test("the last list outlives a restart with a failing provider, for the same address only", async (t) => {
  const documents = createDocuments({ store: createMemoryStore() });
  const upstream = await upstreamOf(t);
  const before = await setUp(t, { base_url: upstream.baseUrl }, { documents });
  assert.equal((await before.providers.listModels(NEVER)).length, 2);
  await upstream.close();
  const after = await setUp(t, { base_url: upstream.baseUrl }, { documents });
  assert.equal((await after.providers.listModels(NEVER)).length, 2);
  const elsewhere = await setUp(t, { base_url: `${upstream.baseUrl}/other` }, { documents });
  assert.deepEqual(await elsewhere.providers.listModels(NEVER), []);
});

test("a caller that goes away while models are listed gets what is there", async (t) => {
  const { providers } = await setUp(t, { base_url: "http://127.0.0.1:9/v1" });
  assert.deepEqual(await providers.listModels(AbortSignal.abort()), []);
});

test("a key comes from a file, and is told to the redactor", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "postern-key-"));
  t.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "key");
  await writeFile(file, `${KEY}\n`);
  const upstream = await upstreamOf(t);
  const secrets: string[] = [];
  const { providers } = await setUp(t, { base_url: upstream.baseUrl, api_key_file: file }, {
    onSecret: (key) => secrets.push(key),
  });
  await collect(providers.resolve("").provider);
  assert.deepEqual(secrets, [KEY]);
  assert.equal(upstream.requests[0]?.headers["authorization"], `Bearer ${KEY}`);
});

for (
  const [name, provider, code] of [
    [
      "a named variable that is not set",
      { api_key_env: "NO_SUCH_KEY", base_url: "http://127.0.0.1:9" },
      "provider_key_missing",
    ],
    ["a vendor without its key", { kind: "openai" }, "provider_key_missing"],
    [
      "a key file that is not there",
      { api_key_file: "/nonexistent/key", base_url: "http://127.0.0.1:9" },
      "provider_key_unreadable",
    ],
    ["openai_compatible without an address", {}, "provider_address_missing"],
    ["an address with a password", { base_url: "http://a:secret@127.0.0.1:9" }, "provider_address_invalid"],
    [
      "a fallback that is not configured",
      { base_url: "http://127.0.0.1:9", fallback: ["nope"] },
      "provider_fallback_unknown",
    ],
    [
      "a fallback to itself",
      { base_url: "http://127.0.0.1:9", fallback: ["openai_compatible"] },
      "provider_fallback_unknown",
    ],
  ] as const
) {
  test(`refused at the start: ${name}`, async (t) => {
    await assert.rejects(setUp(t, provider), (error) => {
      assert.ok(error instanceof ConfigError, String(error));
      assert.equal(error.code, code);
      assert.equal(error.message.includes("secret"), false);
      assert.match(error.key ?? "", /^provider\./);
      return true;
    });
  });
}
