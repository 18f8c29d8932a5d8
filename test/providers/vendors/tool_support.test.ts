import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { startOpenAiUpstream, toDelta, toSse, USAGE_CHUNK } from "../../../fixtures/upstream/openai_upstream.ts";
import type { ToolDeclaration } from "../../../lib/providers/provider.ts";
import { collect, NEVER, noticesOf, setUp, textOf } from "../support/provider_setup.ts";

const TOOLS: readonly ToolDeclaration[] = [{ name: "look", description: "Looks", parameters: undefined }];
const list = (owned_by: string, ...ids: readonly string[]) => ({
  object: "list",
  data: ids.map((id) => ({ id, object: "model", created: 0, owned_by })),
});
const props = (supports_tools: boolean) => ({ chat_template_caps: { supports_tools, supports_system_role: true } });

/** A local server with these answers by path, which says "ok" to every chat, and a provider of it. */
async function start(context: TestContext, kind: string, answers: Readonly<Record<string, unknown>>) {
  const server = await startFakeServer(({ path, json }, response) => {
    if (path === "/v1/chat/completions") {
      response.writeHead(200, { "content-type": "text/event-stream", server: "llama.cpp" });
      const chunks = [toDelta({ content: "ok" }), toDelta({}, "stop"), USAGE_CHUNK];
      return void response.end(`${chunks.map(toSse).join("")}data: [DONE]\n\n`);
    }
    const known = answers[path];
    const body = typeof known === "function" ? known(json) : known;
    response.writeHead(body === undefined ? 404 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify(body ?? { error: "Not found" }));
  });
  context.after(() => server.close());
  const { providers } = await setUp(context, { kind, base_url: `${server.origin}/v1`, model: "m" });
  const paths = () => server.requests.map(({ path }) => path);
  return { provider: providers.resolve("").provider, paths };
}

describe("llama.cpp with a template that knows no tools", () => {
  test("says so in a notice of each reply to a request with tools, until its server comes back with another", async (t) => {
    let knows = false;
    const { provider } = await start(t, "openai_compatible", { "/props": () => props(knows) });
    for (const _ of [1, 2]) {
      const events = await collect(provider, { tools: TOOLS });
      assert.equal(textOf(events), "ok");
      assert.deepEqual(noticesOf(events), ["tools_unsupported"]);
    }
    assert.deepEqual(noticesOf(await collect(provider)), []);
    knows = true;
    assert.deepEqual(noticesOf(await collect(provider, { tools: TOOLS })), []);
  });

  test("shows it in its list of models and when it is asked", async (t) => {
    const { provider, paths } = await start(t, "openai_compatible", {
      "/props": props(false),
      "/v1/models": list("llamacpp", "gemma.gguf"),
    });
    const [entry] = await provider.listModels(NEVER);
    assert.equal(entry?.supports_tools, false);
    // The banner and the log of a start ask once each
    for (const _ of [1, 2]) assert.equal(await provider.takesTools?.("gemma.gguf", NEVER), false);
    assert.deepEqual(paths(), ["/v1/models", "/props"]);
    assert.deepEqual(noticesOf(await collect(provider, { model: "gemma.gguf", tools: TOOLS })), ["tools_unsupported"]);
  });
});

for (const answer of [props(true), { total_slots: 1 }, undefined, []]) {
  test(`a server that answers ${JSON.stringify(answer)} at /props is asked once, and there is no notice`, async (t) => {
    const { provider, paths } = await start(t, "openai_compatible", { "/props": answer });
    for (const _ of [1, 2]) assert.deepEqual(noticesOf(await collect(provider, { tools: TOOLS })), []);
    assert.equal(paths().filter((path) => path === "/props").length, 1);
  });
}

test("another server than llama.cpp is asked nothing beside the chat", async (t) => {
  const upstream = await startOpenAiUpstream();
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.baseUrl });
  for (const _ of [1, 2]) await collect(providers.resolve("").provider, { tools: TOOLS });
  assert.deepEqual(upstream.requests.map(({ path }) => path), ["/v1/chat/completions", "/v1/chat/completions"]);
});

test("Ollama is asked for each model, and for 16 at most", async (t) => {
  const names = Array.from({ length: 40 }, (_, i) => `m${i}`);
  const { provider, paths } = await start(t, "ollama", {
    "/v1/models": list("library", ...names),
    "/api/show": ({ model }: { readonly model: string }) => ({
      capabilities: model === "m1" ? ["completion", "tools"] : ["completion"],
    }),
  });
  const entries = await provider.listModels(NEVER);
  assert.deepEqual(entries.slice(0, 2).map(({ supports_tools }) => supports_tools), [false, true]);
  assert.equal(entries[39]?.supports_tools, undefined);
  assert.equal(paths().filter((path) => path === "/api/show").length, 16);
});

test("a server that says nothing of its models' templates, as vLLM, lists them as they are", async (t) => {
  const { provider, paths } = await start(t, "openai_compatible", { "/v1/models": list("vllm", "llama") });
  assert.equal((await provider.listModels(NEVER))[0]?.supports_tools, undefined);
  assert.equal(await provider.takesTools?.("llama", NEVER), undefined);
  assert.deepEqual(paths(), ["/v1/models", "/props"]);
});
