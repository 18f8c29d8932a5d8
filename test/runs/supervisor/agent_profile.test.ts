import assert from "node:assert/strict";
import { test } from "node:test";
import { createScriptedProvider } from "../../../fixtures/scripted_provider.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { createAgentOf } from "../../../lib/runs/supervisor/agent_profile.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { configOf } from "../../support/running_gateway.ts";
import { ask, readAll, supervised, textIn } from "../../support/supervised.ts";

const AGENTS = {
  plain: { model: "small", system_prompt: "You are plain." },
  worker: {
    system_prompt: "You are a worker.",
    agentic: true,
    allowed_tools: ["look", "change*", "d*"],
    max_iterations: 2,
  },
  mute: { agentic: true, allowed_tools: [] },
  listed: { agentic: false, allowed_tools: ["look"] },
};
const TOOLS = ["look", "change", "change_more", "delegate", "other"].map((name) => ({ name }));

function setUp(script: Parameters<typeof supervised>[0] = () => "done") {
  const own = createScriptedProvider(script, { name: "agents.own" });
  const agentOf = createAgentOf({
    agents: () => configOf({ agents: AGENTS }).agents,
    providers: {
      // As the providers do, by a name with or without the provider
      of: (_name, { model }) =>
        Promise.resolve({ provider: own, model: model.replace(/^agents\.own\//, "") || "own-default" }),
    },
  });
  return { own, ...supervised([], { agentOf, tools: TOOLS, agent: { systemPrompt: "You are the gateway's." } }) };
}

const systemOf = (provider: ReturnType<typeof createScriptedProvider>) => {
  const first = provider.requests[0]?.messages[0];
  return first?.role === "system" ? String(first.content) : "";
};
const toolsOf = (provider: ReturnType<typeof createScriptedProvider>) =>
  provider.requests[0]?.tools.map(({ name }) => name);

test("a run of an agent has its provider, model and system prompt, and no tools unless it is agentic", async () => {
  for (
    const [agent, model, tools] of [
      ["plain", "small", []],
      ["worker", "own-default", ["look", "change", "change_more"]],
      ["mute", "own-default", []],
      ["listed", "own-default", []],
    ] as const
  ) {
    const { own, provider, runs } = setUp();
    const handle = await runs.start(ask("Go", { agent }));
    assert.equal(textIn(await readAll(handle)), "done");
    assert.equal(handle.model, `agents.own/${model}`);
    assert.equal(own.requests[0]?.model, model);
    assert.deepEqual(toolsOf(own), tools, agent);
    assert.ok(!systemOf(own).includes("gateway's"));
    assert.equal(provider.requests.length, 0);
  }
});

test("its system prompt and its iterations count, and what the request says narrows its tools", async () => {
  const { own, runs } = setUp((_request, turn) =>
    turn < 2 ? { toolCalls: [{ name: "look", arguments: { turn } }] } : "end"
  );
  await readAll(await runs.start(ask("Go", { agent: "worker", tools: ["look", "other", "delegate"] })));
  assert.match(systemOf(own), /You are a worker\./);
  assert.deepEqual(toolsOf(own), ["look"]);
  assert.deepEqual(own.requests.map(({ tools }) => tools.length), [1, 1, 0]);
});

test("a model that is named takes the place of the agent's own, in the form a run shows too", async () => {
  for (const model of ["big", "agents.own/big"]) {
    const { own, runs } = setUp();
    const handle = await runs.start(ask("Go", { agent: "plain", model }));
    await readAll(handle);
    assert.deepEqual([handle.model, own.requests[0]?.model], ["agents.own/big", "big"]);
  }
});

test("an unknown agent is refused, naming those there are", async () => {
  const { runs } = setUp();
  for (const agent of ["nobody", "", "__proto__", "constructor"]) {
    await assert.rejects(
      runs.start(ask("Go", { agent })),
      (error) =>
        error instanceof HttpError && error.status === 400 && error.param === "agent" &&
        /the agents are plain, worker/.test(error.message),
    );
  }
  const { runs: without } = supervised([]);
  await assert.rejects(without.start(ask("Go", { agent: "plain" })), /none is configured; add \[agents.<name>\]/);
});

test("a sub-agent has no delegate, whatever it asks for", async () => {
  const { provider, runs } = supervised(() => "done", { tools: TOOLS });
  await readAll(await runs.start(ask("Go", { kind: "subagent", tools: ["*"] })));
  await readAll(await runs.start(ask("Go", { kind: "subagent" })));
  for (const { tools } of provider.requests) {
    assert.ok(tools.length > 0 && tools.every(({ name }) => name !== "delegate"));
  }
});

test("the agent and the depth are pinned", async () => {
  const { runs, store } = setUp();
  const handle = await runs.start(ask("Go", { agent: "worker", depth: 3, durable: true }));
  await readAll(handle);
  const input = await new RunStore(store).input(handle.id);
  assert.deepEqual([input?.agent, input?.depth], ["worker", 3]);
});
