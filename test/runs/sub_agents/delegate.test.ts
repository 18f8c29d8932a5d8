import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type OpenAiUpstream, startOpenAiUpstream } from "../../../fixtures/upstream/openai_upstream.ts";
import { type AgentEvent, isTerminal } from "../../../lib/base/records/agent_event.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import type { SubAgentView } from "../../../lib/tools/agents/sub_agents.ts";
import { jsonOf } from "../../support/json_of.ts";
import { type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { lastOutput, lastWords, scriptedTasks, type TaskTurn, toolTurn } from "../../support/scripted_tasks.ts";
import { ask, only, readAll, textIn } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

interface Delegating {
  readonly gateway: RunningGateway;
  readonly runs: RunSupervisor;
  readonly upstream: OpenAiUpstream;
  delegations(): Promise<readonly SubAgentView[]>;
}

const KEY = "sk-key-of-the-helper-0123456789";

/** A gateway whose agent `helper` is answered by an upstream of its own, and `local` by the scripted model. */
async function withDelegates(
  tasks: Readonly<Record<string, readonly TaskTurn[]>>,
  use: (delegating: Delegating) => Promise<void>,
  agents: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {},
): Promise<void> {
  const upstream = await startOpenAiUpstream();
  try {
    await withRunningGateway({
      files: { "notes.txt": "a note\n" },
      script: scriptedTasks(tasks),
      environment: { HELPER_KEY: KEY },
      config: {
        security: { write_file: { enabled: true } },
        agents: {
          helper: {
            provider: upstream.baseUrl,
            model: "helper-model",
            api_key_env: "HELPER_KEY",
            system_prompt: "You are the helper.",
          },
          local: { agentic: true, allowed_tools: ["read_file", "write_file", "subagent_spawn"] },
          ...agents,
        },
      },
    }, async (gateway) => {
      const runs = gateway.services.agent?.runs;
      assert.ok(runs !== undefined);
      const delegations = async () =>
        (await jsonOf(gateway.call("/v1/tools/delegate_coordination_status/call", { body: {} }))).data.delegations;
      await use({ gateway, runs, upstream, delegations });
    });
  } finally {
    await upstream.close();
  }
}

const delegate = (agent: string, prompt: string) => toolTurn("delegate", { agent, prompt });
const answer = (text: string) => ({ kind: "text" as const, chunks: [text] });

async function outputsOf(runs: RunSupervisor, text: string, more: Parameters<typeof ask>[1] = {}) {
  const events = await readAll(await runs.start(ask(text, more)));
  return {
    text: textIn(events),
    outputs: events.flatMap((event) => (event.type === "tool_end" ? [event.output] : [])),
  };
}

test("an agent answers from its own provider, with its model, key and prompt, and sees nothing but the prompt", () =>
  withDelegates(
    { "Begin": [delegate("helper", "What is it?"), (request) => `It said: ${lastOutput(request)}`] },
    async (
      { runs, upstream, delegations },
    ) => {
      upstream.script(answer("It is green."));
      assert.equal((await outputsOf(runs, "Begin")).text, "It said: It is green.");
      const [request] = upstream.requests;
      const body = request?.json as { model: string; tools?: unknown; messages: { role: string; content: string }[] };
      assert.equal(request?.headers["authorization"], `Bearer ${KEY}`);
      assert.deepEqual([body.model, body.tools], ["helper-model", undefined]);
      assert.deepEqual(body.messages.map(({ role }) => role), ["system", "user"]);
      assert.match(body.messages[0]?.content ?? "", /You are the helper\.[^]*You are a sub-agent/);
      assert.equal(body.messages[1]?.content, "What is it?");
      const [view] = await delegations();
      assert.deepEqual(
        [view?.kind, view?.agent, view?.status, view?.depth, view?.max_depth, view?.chain.at(-1), view?.task],
        ["delegate", "helper", "completed", 1, 2, "helper", "What is it?"],
      );
      assert.ok(view?.ended_at !== null && (view?.created_at ?? "") <= (view?.ended_at ?? ""));
    },
  ));

test("an agent that is agentic has those of its tools that its caller has too, never delegate", () =>
  withDelegates({
    "Begin": [delegate("local", "Read"), delegate("all", "All"), delegate("none", "None"), "Done"],
    "Read": [toolTurn("read_file", { path: "notes.txt" }), (request) => lastOutput(request)],
  }, async ({ runs, gateway }) => {
    const { outputs } = await outputsOf(runs, "Begin", { tools: ["read_file", "memory_*", "delegate"] });
    assert.deepEqual(outputs, ["a note\n", "told All", "told None"]);
    const toolsOf = (words: string) =>
      gateway.provider.requests.find((request) => lastWords(request) === words)?.tools.map(({ name }) => name);
    assert.deepEqual(toolsOf("Read"), ["read_file"]);
    assert.deepEqual(toolsOf("All"), ["memory_forget", "memory_recall", "memory_store", "read_file"]);
    assert.deepEqual(toolsOf("None"), []);
  }, { all: { agentic: true, allowed_tools: ["*"] }, none: { agentic: true, allowed_tools: [] } }));

test("max_iterations of the agent ends its work", () =>
  withDelegates({
    "Begin": [delegate("short", "Loop"), "Done"],
    "Loop": [1, 2, 3, 4].map((line) => toolTurn("read_file", { path: "notes.txt", start_line: line })),
  }, async ({ runs, gateway }) => {
    await outputsOf(runs, "Begin");
    const asked = gateway.provider.requests.filter((request) => lastWords(request) === "Loop");
    assert.deepEqual(asked.map((request) => request.tools.length), [1, 1, 0]);
  }, { short: { agentic: true, allowed_tools: ["read_file"], max_iterations: 2 } }));

test("an unknown agent, and one whose provider fails, are error results that say so", () =>
  withDelegates(
    { "Begin": [delegate("nobody", "x"), delegate("helper", "x"), delegate("keyless", "x"), "Done"] },
    async (
      { runs, upstream, delegations },
    ) => {
      upstream.script({ kind: "status", status: 400, body: { error: { message: "no such model" } } });
      const { outputs } = await outputsOf(runs, "Begin");
      assert.match(
        outputs[0] ?? "",
        /^Cannot use the agent "nobody": there is no such agent; the agents are helper, local, keyless$/,
      );
      assert.match(outputs[1] ?? "", /^Cannot get the answer of the agent "helper": .*no such model/);
      assert.match(outputs[2] ?? "", /\[agents.keyless\]: the environment variable "NOT_SET" is not set/);
      assert.deepEqual((await delegations()).map(({ agent, status }) => [agent, status]), [["helper", "failed"]]);
    },
    { keyless: { provider: "http://127.0.0.1:1/v1", api_key_env: "NOT_SET" } },
  ));

test("a loop of agents ends at the lowest max_depth in the chain, and the error shows the chain", () =>
  withDelegates({
    "Begin": [delegate("looper", "Loop"), "Done"],
    "Loop": [
      (request) => ({
        toolCalls: [{
          name: "subagent_spawn",
          arguments: { task: "Loop", agent: "looper", tools: ["subagent_spawn"] },
        }],
        text: lastOutput(request),
      }),
      (request) => lastOutput(request),
    ],
  }, async ({ runs, gateway, delegations }) => {
    await outputsOf(runs, "Begin");
    await until(() => runs.active() === 0);
    const views = await delegations();
    assert.deepEqual(views.map(({ depth, max_depth }) => [depth, max_depth]).sort(), [[1, 1]]);
    const refusals = gateway.provider.requests.map(lastOutput).filter((output) => output.includes("max_depth"));
    assert.match(
      refusals[0] ?? "",
      /the chain run_\w+ > looper > looper is 2 deep, and max_depth is 1; do the work yourself/,
    );
  }, { looper: { agentic: true, allowed_tools: ["subagent_spawn"], max_depth: 1 } }));

test("cancelling the caller ends the agent's model stream, and both are cancelled", () =>
  withDelegates({ "Begin": [delegate("local", "Hang"), "Done"], "Hang": [{ hang: "before" }] }, async (
    { runs, gateway, delegations },
  ) => {
    const handle = await runs.start(ask("Begin"));
    const reading = readAll(handle);
    await until(() => gateway.provider.requests.some((request) => lastWords(request) === "Hang"));
    assert.deepEqual((await delegations()).map(({ status }) => status), ["running"]);
    handle.cancel("cancelled");
    assert.equal(only(await reading, "error").code, "cancelled");
    await until(() => gateway.provider.active === 0 && runs.active() === 0);
    await until(async () => (await delegations())[0]?.status === "cancelled");
  }));

test("an agent's own upstream is let go when its caller is cancelled", () =>
  withDelegates({ "Begin": [delegate("helper", "Hang"), "Done"] }, async ({ runs, upstream }) => {
    upstream.script({ kind: "hang" });
    const handle = await runs.start(ask("Begin"));
    const reading = readAll(handle);
    await until(() => upstream.requests.length === 1);
    handle.cancel("cancelled");
    await reading;
    await until(() => runs.active() === 0);
  }));

/** Reads a run, and answers each question with what `decide` says. */
async function readAnswering(
  gateway: RunningGateway,
  runs: RunSupervisor,
  canApprove: boolean,
): Promise<readonly AgentEvent[]> {
  const handle = await runs.start(ask("Begin", { canApprove }));
  const events: AgentEvent[] = [];
  for await (const batch of handle.events()) {
    events.push(...batch);
    for (const event of batch) {
      if (event.type !== "approval_needed") continue;
      await gateway.call(`/v1/approvals/${event.approval_id}`, { body: { decision: "approve" } });
    }
  }
  assert.ok(isTerminal(events.at(-1) ?? { type: "notice" }));
  return events;
}

const WRITE: Readonly<Record<string, readonly TaskTurn[]>> = {
  "Begin": [delegate("local", "Write"), "Done"],
  "Write": [
    toolTurn("write_file", { path: "notes.txt", content: "new\n", overwrite: true }),
    (request) => lastOutput(request),
  ],
};

test("what an agent may not do by itself is asked of its caller's reader, on the caller's own stream", () =>
  withDelegates(WRITE, async ({ gateway, runs }) => {
    const events = await readAnswering(gateway, runs, true);
    const types = events.map(({ type }) => type).filter((type) => /approval|tool_(start|end)|done/.test(type));
    assert.deepEqual(types, ["tool_start", "approval_needed", "approval_answered", "tool_end", "done"]);
    assert.equal(readFileSync(gateway.workspace.path("notes.txt"), "utf8"), "new\n");
  }));

test("where nobody reads along who may approve, it is denied at once", () =>
  withDelegates(WRITE, async ({ gateway, runs }) => {
    const events = await readAnswering(gateway, runs, false);
    const ended = events.find((event) => event.type === "tool_end");
    assert.match(
      ended?.type === "tool_end" ? ended.output : "",
      /^Denied \(nobody_could_answer\): nobody who may approve follows this run/,
    );
    assert.equal(readFileSync(gateway.workspace.path("notes.txt"), "utf8"), "a note\n");
  }));

test("a person who approves the delegation itself has not approved what the agent does", () =>
  withDelegates(WRITE, async ({ gateway }) => {
    const body = { input: { agent: "local", prompt: "Write" }, approved: true };
    const { output } = await jsonOf(gateway.call("/v1/tools/delegate/call", { body }));
    assert.match(output, /^Denied \(nobody_could_answer\): nobody who may approve follows this run/);
    assert.equal(readFileSync(gateway.workspace.path("notes.txt"), "utf8"), "a note\n");
  }));

test("a durable caller's agent is durable too, and waits for a person", () =>
  withDelegates(WRITE, async ({ gateway, runs, delegations }) => {
    // Somebody looks at what waits before the agent asks
    await gateway.call("/v1/approvals");
    const handle = await runs.start(ask("Begin", { durable: true }));
    let asked: { id: string; run_id: string }[] = [];
    await until(async () => (asked = (await jsonOf(gateway.call("/v1/approvals?status=pending"))).data).length === 1);
    const [view] = await delegations();
    assert.deepEqual([view?.status, view?.run_id, view?.parent_id], [
      "waiting_for_approval",
      asked[0]?.run_id,
      handle.id,
    ]);
    await gateway.call(`/v1/approvals/${asked[0]?.id}`, { body: { decision: "approve" } });
    const run = await runs.ended(handle.id, new AbortController().signal);
    assert.deepEqual([run?.status, run?.result], ["completed", "Done"]);
    assert.equal((await delegations())[0]?.status, "completed");
    assert.equal(readFileSync(gateway.workspace.path("notes.txt"), "utf8"), "new\n");
  }));

test("cancelling a durable caller cancels its durable agent", () =>
  withDelegates({ "Begin": [delegate("local", "Hang"), "Done"], "Hang": [{ hang: "before" }] }, async (
    { runs, gateway, delegations },
  ) => {
    const handle = await runs.start(ask("Begin", { durable: true }));
    await until(() => gateway.provider.requests.some((request) => lastWords(request) === "Hang"));
    assert.equal(await runs.cancel(handle.id, "cancelled"), true);
    await until(() => runs.active() === 0);
    const [view] = await delegations();
    assert.deepEqual([view?.status, (await runs.get(handle.id))?.status], ["cancelled", "cancelled"]);
  }));

test("a run over HTTP may be of a configured agent, and an unknown one is refused by name", () =>
  withDelegates({}, async ({ gateway, runs, upstream }) => {
    upstream.script(answer("Done by the helper"));
    const accepted = await gateway.call("/v1/runs", { body: { message: "Go", agent: "helper" } });
    assert.equal(accepted.status, 202);
    const run = await runs.ended((await jsonOf(accepted)).id, new AbortController().signal);
    assert.deepEqual([run?.result, run?.model], ["Done by the helper", "agents.helper/helper-model"]);
    const refused = await gateway.call("/v1/runs", { body: { message: "Go", agent: "nobody" } });
    assert.equal(refused.status, 400);
    const { error } = await jsonOf(refused);
    assert.deepEqual([error.code, error.param], ["invalid_request", "agent"]);
    assert.match(error.message, /the agents are helper, local$/);
  }));

test("delegate is there when an agent is configured, and says what would configure one", () =>
  withRunningGateway({}, async ({ call }) => {
    const { enabled, reason } = await jsonOf(call("/v1/tools/delegate"));
    assert.deepEqual([enabled, reason], [false, 'it is off; set [agents.helper] model = "gpt-5-mini"']);
  }));
