import assert from "node:assert/strict";
import { test } from "node:test";
import { createScriptedProvider } from "../../fixtures/scripted_provider.ts";
import { sampleModel } from "../../lib/agent/sample_model.ts";
import { createRunBudget, type TokenBudget } from "../../lib/agent/token_budget.ts";
import { RunTaint } from "../../lib/base/taint.ts";
import type { Provider } from "../../lib/providers/provider.ts";
import { toToolCall } from "../support/tool_call.ts";

const NEVER = new AbortController().signal;
const LIMITS = { maxIterations: 1, maxToolCalls: 1, parallelTools: false, contextWindowTokens: 0, tokensPerRun: 0 };
const REQUEST = { messages: [{ role: "user", content: "Hi" }], system: "Be kind", maxTokens: 1_000_000 } as const;

function toRun(provider: Provider, budget: TokenBudget): Parameters<typeof sampleModel>[0] {
  const model = { provider, id: "m", name: "p/m", wishes: { clientTools: [], parameters: {} } };
  return { model, budget, limits: LIMITS, scope: { ...toToolCall("t", "{}").scope, taint: new RunTaint() } };
}

test("the model gets the server's messages alone, without tools, with a bounded reply, on the run's budget", async () => {
  const provider = createScriptedProvider(["Hello"]);
  const budget = createRunBudget({ tokensPerRun: 100_000, used: 0, within: undefined });
  const run = toRun(provider, budget);
  assert.deepEqual(await sampleModel(run, REQUEST, NEVER), { text: "Hello", model: "p/m" });
  const [request] = provider.requests;
  assert.deepEqual([request?.tools, request?.parameters["max_tokens"]], [[], 4096]);
  assert.deepEqual(request?.messages.map(({ role }) => role), ["system", "user"]);
});

test("a budget that is used up lets no server ask", async () => {
  const provider = createScriptedProvider(["Hello"]);
  const budget = createRunBudget({ tokensPerRun: 100, used: 99, within: undefined });
  const run = toRun(provider, budget);
  await assert.rejects(sampleModel(run, REQUEST, NEVER), { reason: "budget" });
  assert.equal(provider.requests.length, 0);
});
