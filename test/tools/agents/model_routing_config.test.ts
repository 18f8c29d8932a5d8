import assert from "node:assert/strict";
import { test } from "node:test";
import { withRunningGateway } from "../../support/running_gateway.ts";
import { jsonOf } from "../../support/json_of.ts";

const ROUTES = {
  providers: { local: { base_url: "http://127.0.0.1:1/v1" }, scripted: { base_url: "http://127.0.0.1:1/v1" } },
  model_routes: [
    { hint: "fast", provider: "local", model: "small" },
    { hint: "code", provider: "scripted", model: "coder" },
  ],
  embedding_routes: [{ hint: "semantic", provider: "local", model: "embedder" }],
  query_classification: {
    enabled: true,
    rules: [{ hint: "code", keywords: ["refactor"], priority: 3 }, { hint: "fast", max_length: 5 }],
  },
};

test("all five operations answer from the configuration, as JSON", () =>
  withRunningGateway({ config: ROUTES }, async ({ call }) => {
    const ask = async (input: unknown) =>
      await jsonOf(call("/v1/tools/model_routing_config/call", { body: { input } }));
    const answer = async (input: unknown) => JSON.parse((await ask(input)).output);
    assert.deepEqual(await answer({ op: "list_routes" }), { routes: ROUTES.model_routes });
    assert.deepEqual(await answer({ op: "list_embedding_routes" }), { routes: ROUTES.embedding_routes });
    const fast = { hint: "fast", provider: "local", model: "small", kind: "model" };
    assert.deepEqual(await answer({ op: "resolve_hint", hint: "fast" }), fast);
    assert.deepEqual(await answer({ operation: "resolve_hint", hint: "hint:fast" }), fast);
    assert.equal((await answer({ op: "resolve_hint", hint: "semantic" })).kind, "embedding");
    const unknown = await ask({ op: "resolve_hint", hint: "slow" });
    assert.deepEqual([unknown.is_error, unknown.output], [
      true,
      'Cannot resolve the hint "slow": no route has it; the hints are fast, code, semantic',
    ]);
    const found = { hint: "code", priority: 3, matched: "refactor" };
    assert.deepEqual(await answer({ op: "classify_query", query: "Refactor this" }), found);
    assert.deepEqual(await answer({ op: "route_query", query: "Refactor this" }), {
      ...found,
      provider: "scripted",
      model: "coder",
    });
    assert.deepEqual(await answer({ op: "classify_query", query: "Hi" }), { hint: "fast", priority: 0, matched: null });
    assert.deepEqual(await answer({ op: "route_query", query: "Tell me a story" }), {
      hint: null,
      reason: "no rule matches: the default model is used",
      provider: null,
      model: null,
    });
  }));

test("without a route it is off, and says what turns it on", () =>
  withRunningGateway({}, async ({ call }) => {
    const tool = await jsonOf(call("/v1/tools/model_routing_config"));
    assert.equal(tool.enabled, false);
    assert.match(tool.reason, /set model_routes = \[\{ hint = "fast"/);
  }));

test("requests are really routed: by hint, and by what they say where they name no model", () =>
  withRunningGateway({
    config: ROUTES,
    script: (request) => `answered by ${request.model}`,
  }, async ({ call, provider }) => {
    const complete = (body: Record<string, unknown>, text = "Hello there") =>
      jsonOf(call("/v1/chat/completions", { body: { messages: [{ role: "user", content: text }], ...body } }));
    const coded = await complete({ model: "hint:code" });
    assert.deepEqual([coded.model, coded.choices[0].message.content], ["scripted/coder", "answered by coder"]);
    assert.equal((await complete({}, "Please refactor")).choices[0].message.content, "answered by coder");
    assert.equal((await complete({})).choices[0].message.content, "answered by scripted-model");
    assert.equal((await complete({ model: "own" }, "Please refactor")).choices[0].message.content, "answered by own");
    const asked = provider.requests.length;
    const unknown = await call("/v1/chat/completions", {
      body: { model: "hint:slow", messages: [{ role: "user", content: "x" }] },
    });
    assert.equal(unknown.status, 404);
    const { error } = await jsonOf(unknown);
    assert.deepEqual([error.code, error.param], ["model_not_found", "model"]);
    assert.match(error.message, /"slow": there is no such route; the hints are fast, code/);
    assert.equal((await call("/v1/chat/completions", { body: { model: "hint:fast", messages: [] } })).ok, false);
    assert.equal(provider.requests.length, asked);
    assert.equal((await jsonOf(call("/api/chat", { body: { message: "refactor" } }))).message, "answered by coder");
  }));
