import assert from "node:assert/strict";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders } from "../../../fixtures/scripted_provider.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { classifyQuery, withRouting } from "../../../lib/providers/models/routing.ts";
import { ask, readAll, supervised } from "../../support/supervised.ts";
import { configOf } from "../../support/running_gateway.ts";

const rule = (hint: string, more: Record<string, unknown> = {}) => ({ hint, ...more });
const classification = (rules: readonly unknown[], enabled = true) =>
  configOf({
    provider: { kind: "offline" },
    providers: { scripted: { base_url: "http://127.0.0.1:1/v1" } },
    model_routes: ["fast", "code", "long", "any"].map((hint) => ({
      hint,
      provider: "scripted",
      model: `${hint}-model`,
    })),
    query_classification: { enabled, rules },
  });

const hintOf = (query: string, rules: readonly unknown[]) =>
  classifyQuery(classification(rules).query_classification, query)?.hint;

test("a keyword is found without case, a pattern as it is; one of them is enough", () => {
  const rules = [rule("code", { keywords: ["refactor", "Übung"], patterns: ["fn main", "SELECT "] })];
  for (
    const query of ["Please REFACTOR this", "eine übung", "fn main() {}", "SELECT * FROM t", "prefactory refactoring"]
  ) {
    assert.equal(hintOf(query, rules), "code", query);
  }
  for (const query of ["FN MAIN", "select * from t", "", "fac tor"]) {
    assert.equal(hintOf(query, rules), undefined, query);
  }
});

test("lengths bound a rule, and a rule without words matches by its length alone", () => {
  const rules = [rule("long", { min_length: 10 }), rule("fast", { max_length: 3, priority: 1 })];
  assert.deepEqual(["", "abc", "abcd", "0123456789"].map((query) => hintOf(query, rules)), [
    "fast",
    "fast",
    undefined,
    "long",
  ]);
  assert.equal(hintOf("code", [rule("code", { keywords: ["code"], min_length: 5 })]), undefined);
});

test("the highest priority wins, of equals the first one", () => {
  const rules = [
    rule("any", { priority: -5 }),
    rule("fast", { keywords: ["x"] }),
    rule("code", { keywords: ["x"], priority: 7 }),
    rule("long", { keywords: ["x"], priority: 7 }),
  ];
  assert.equal(hintOf("x", rules), "code");
  assert.equal(hintOf("y", rules), "any");
});

test("classification that is off gives no hint", () => {
  assert.equal(classifyQuery(classification([rule("any")], false).query_classification, "x"), undefined);
});

const setUp = (rules: readonly unknown[], enabled = true) => {
  const provider = createScriptedProvider((request) => request.model);
  return withRouting(createScriptedProviders(provider, "default-model"), classification(rules, enabled));
};

const isUnknown = (about: RegExp) => (error: unknown) =>
  error instanceof ProviderError && error.code === "model_not_found" && about.test(error.message);

test("hint:<name> is the route's model; other names stay what they are", () => {
  const { resolve } = setUp([]);
  assert.equal(resolve("hint:fast").model, "fast-model");
  assert.equal(resolve("fast").model, "fast");
  assert.equal(resolve("").model, "default-model");
  assert.equal(resolve(undefined).model, "default-model");
  assert.throws(() => resolve("hint:slow"), isUnknown(/"slow": there is no such route; the hints are fast, code/));
  assert.throws(() => resolve("hint:"), isUnknown(/there is no such route/));
});

test("a route whose provider is not in use is refused, never asked of another provider", () => {
  const config = configOf({
    provider: { kind: "offline" },
    model_routes: [{ hint: "fast", provider: "openai", model: "gpt" }],
  });
  const { resolve } = withRouting(createScriptedProviders(createScriptedProvider([])), config);
  assert.throws(
    () => resolve("hint:fast"),
    isUnknown(/provider "openai" is not in use; configure \[providers.openai\]/),
  );
});

test("of what a route's provider says, that the model is not there is told of the hint, and all else as it is", () => {
  const resolveWith = (error: Error) => {
    const providers = createScriptedProviders(createScriptedProvider([]));
    const failing = {
      ...providers,
      resolve: () => {
        throw error;
      },
    };
    return withRouting(failing, classification([])).resolve("hint:fast");
  };
  const absent = new ProviderError("model_not_found", "No such model", { provider: "scripted", status: 404 });
  assert.throws(() => resolveWith(absent), isUnknown(/hint "fast": its provider "scripted" is not in use/));
  for (
    const error of [new ProviderError("provider_error", "Broke", { provider: "scripted" }), new TypeError("A bug")]
  ) {
    assert.throws(() => resolveWith(error), error);
  }
});

test("without a route nothing is added, and without classification no query is looked at", () => {
  const plain = createScriptedProviders(createScriptedProvider([]));
  assert.equal(withRouting(plain, configOf({})), plain);
  assert.equal(setUp([rule("fast")], false).route, undefined);
});

test("a run without a model goes where its last question belongs, and its record says where", async () => {
  const { provider, runs } = supervised((request) => request.model, {
    wrap: (providers) => withRouting(providers, classification([rule("code", { keywords: ["refactor"] })])),
  });
  const modelOf = async (request: Parameters<typeof ask>[1], text: string) => {
    const handle = await runs.start(ask(text, request));
    await readAll(handle);
    return [handle.model, provider.requests.at(-1)?.model];
  };
  assert.deepEqual(await modelOf({}, "Refactor this"), ["scripted/code-model", "code-model"]);
  assert.deepEqual(await modelOf({}, "Hello"), ["scripted/scripted-model", "scripted-model"]);
  assert.deepEqual(await modelOf({ model: "own" }, "Refactor this"), ["own", "own"]);
  assert.deepEqual(await modelOf({ model: "hint:long" }, "Refactor this"), ["scripted/long-model", "long-model"]);
  const history = [
    { role: "user" as const, content: "Refactor this" },
    { role: "assistant" as const, content: "Done" },
    { role: "user" as const, content: [{ type: "text" as const, text: "Thanks" }] },
  ];
  assert.deepEqual(await modelOf({ messages: history }, ""), ["scripted/scripted-model", "scripted-model"]);
});
