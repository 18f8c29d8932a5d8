import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import type { SubAgentView } from "../../../lib/tools/agents/sub_agents.ts";
import { jsonOf } from "../../support/json_of.ts";
import { type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { lastOutput, lastWords, scriptedTasks, type TaskTurn, toolTurn } from "../../support/scripted_tasks.ts";
import { ask, only, readAll, textIn } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

interface Calls extends RunningGateway {
  readonly runs: RunSupervisor;
  /** A tool called by a person */
  tool(name: string, input: unknown): Promise<{ output: string; is_error: boolean; data: Record<string, unknown> }>;
}

const withAgents = (
  tasks: Readonly<Record<string, readonly TaskTurn[]>>,
  use: (gateway: Calls) => Promise<void>,
  options: { readonly config?: Readonly<Record<string, unknown>>; readonly dataDir?: string } = {},
) =>
  withRunningGateway(
    { files: { "notes.txt": "a note\n" }, script: scriptedTasks(tasks), ...options },
    async (gateway) => {
      const runs = gateway.services.agent?.runs;
      assert.ok(runs !== undefined);
      await use({
        ...gateway,
        // The provider's getters are read when they are asked for
        provider: gateway.provider,
        runs,
        tool: (name, input) => jsonOf(gateway.call(`/v1/tools/${name}/call`, { body: { input } })),
      });
    },
  );

const spawn = (task: string, more: Readonly<Record<string, unknown>> = {}) =>
  toolTurn("subagent_spawn", { task, ...more });
const requestsOf = (gateway: Calls, words: string): readonly ProviderRequest[] =>
  gateway.provider.requests.filter((request) => lastWords(request) === words);
const toolNames = (request: ProviderRequest | undefined) => request?.tools.map(({ name }) => name) ?? [];

/** Runs a request of a person to its end. */
async function run(gateway: Calls, text: string, more: Parameters<typeof ask>[1] = {}) {
  const handle = await gateway.runs.start(ask(text, more));
  const events = await readAll(handle);
  return { id: handle.id, events, text: textIn(events) };
}

/** The only sub-agent. */
async function onlyOne(gateway: Calls): Promise<SubAgentView> {
  const { data } = await gateway.tool("subagent_list", {});
  const views = data["subagents"] as readonly SubAgentView[];
  assert.equal(views.length, 1);
  return views[0] as SubAgentView; // there is exactly one
}

test("a sub-agent works in the background as a durable run, and its answer is its result", () =>
  withAgents(
    { "Begin": [spawn("Count the gates"), "Started"], "Count the gates": ["There are 3"] },
    async (gateway) => {
      const parent = await run(gateway, "Begin", { requestId: "req_1" });
      assert.match(parent.text, /Started/);
      const { id } = await onlyOne(gateway);
      const answer = await gateway.tool("subagent_manage", { op: "result", id });
      assert.deepEqual([answer.is_error, answer.output], [false, "There are 3"]);
      const view = await onlyOne(gateway);
      assert.deepEqual(
        [view.status, view.kind, view.agent, view.depth, view.parent_id, view.task],
        ["completed", "spawn", null, 1, parent.id, "Count the gates"],
      );
      const record = await gateway.runs.get(view.run_id);
      assert.deepEqual(
        [record?.kind, record?.parent_id, record?.conversation_id, record?.result],
        ["subagent", parent.id, id, "There are 3"],
      );
      assert.match(
        String(requestsOf(gateway, "Count the gates")[0]?.messages[0]?.content),
        new RegExp(`Your id is "${id}"`),
      );
      assert.equal((await new RunStore(gateway.services.store).input(view.run_id))?.request_id, "req_1");
      const status = await gateway.tool("subagent_manage", { op: "status", id });
      assert.match(
        status.output,
        new RegExp(`^id=${id} status=completed depth=1 run=run_\\w+ task="Count the gates"$`),
      );
    },
  ));

test("a person starts one directly, in plain text too", () =>
  withAgents({}, async (gateway) => {
    const started = await gateway.tool("subagent_spawn", "Look around");
    const view = started.data as unknown as SubAgentView;
    assert.deepEqual([view.parent_id, view.depth, view.chain], [null, 1, ["http", view.id]]);
    assert.equal((await gateway.tool("subagent_manage", { op: "result", id: view.id })).output, "told Look around");
  }));

test("it has its caller's tools without delegate, or those of them it was given", () =>
  withAgents({
    "Begin": [spawn("All"), spawn("Some", { tools: ["read_file", "memory_*"] }), spawn("None", { tools: [] }), "Done"],
  }, async (gateway) => {
    await run(gateway, "Begin", { tools: ["read_file", "memory_*", "shell", "subagent_spawn", "delegate"] });
    await until(() => gateway.runs.active() === 0);
    const memory = ["memory_forget", "memory_recall", "memory_store"];
    assert.deepEqual(toolNames(requestsOf(gateway, "All")[0]), [...memory, "read_file", "shell", "subagent_spawn"]);
    assert.deepEqual(toolNames(requestsOf(gateway, "Some")[0]), [...memory, "read_file"]);
    assert.deepEqual(toolNames(requestsOf(gateway, "None")[0]), []);
    assert.ok(toolNames(requestsOf(gateway, "Begin")[0]).includes("delegate"));
  }, { config: { agents: { helper: {} } } }));

test("asking for more tools than the caller has is refused by name, and nothing starts", () =>
  withAgents({
    "Begin": [
      spawn("x", { tools: ["read_file", "shell"] }),
      (request) => spawn(lastOutput(request), { tools: ["delegate"] }),
      (request) => spawn(lastOutput(request), { tools: ["no_such_tool"] }),
      (request) => spawn(lastOutput(request), { tools: ["git_operations"] }),
      (request) => lastOutput(request),
    ],
  }, async (gateway) => {
    const { events } = await run(gateway, "Begin", {
      tools: ["read_file", "subagent_spawn", "delegate", "git_operations"],
    });
    const outputs = events.flatMap((event) => (event.type === "tool_end" ? [event.output] : []));
    assert.deepEqual(outputs.slice(0, 3), [
      'Cannot give a sub-agent the tool "shell": the caller does not have it',
      'Cannot give a sub-agent the tool "delegate": a sub-agent may not delegate',
      'Cannot give a sub-agent the tool "no_such_tool": there is no such tool',
    ]);
    assert.equal((await gateway.tool("subagent_list", {})).output, "There are no sub-agents");
  }, { config: { agents: { helper: {} } } }));

test("a tool that was not given is not there for a sub-agent that calls it all the same", () =>
  withAgents({
    "Begin": [spawn("Try", { tools: ["read_file"] }), "Done"],
    "Try": [toolTurn("shell", { command: "ls" }), (request) => lastOutput(request)],
  }, async (gateway) => {
    await run(gateway, "Begin");
    const { id } = await onlyOne(gateway);
    const { output } = await gateway.tool("subagent_manage", { op: "result", id });
    assert.match(output, /Cannot call "shell": \[agent\] tools does not name it/);
  }));

test("its limits are no wider than its caller's", () =>
  withAgents({
    "Begin": [spawn("Work"), "Done"],
    "Work": [toolTurn("read_file", { path: "notes.txt" }), toolTurn("read_file", { path: "notes.txt" }), "end"],
  }, async (gateway) => {
    await run(gateway, "Begin", { limits: { maxToolCalls: 1, maxIterations: 5 } });
    await until(() => gateway.runs.active() === 0);
    assert.deepEqual(requestsOf(gateway, "Work").map((request) => request.tools.length > 0), [true, false]);
  }));

test("a message is its next turn: after the one at work, with what was said before", () =>
  withAgents({
    "Begin": [spawn("First"), "Done"],
    "First": ["one"],
    "Second": [(request) => request.messages.map(({ role }) => role).join(" ")],
  }, async (gateway) => {
    await run(gateway, "Begin");
    const { id } = await onlyOne(gateway);
    const sent = await gateway.tool("subagent_manage", { op: "message", id, text: "Second" });
    assert.match(sent.output, /^Sent\. id=sub_/);
    const { output } = await gateway.tool("subagent_manage", { op: "result", id });
    assert.equal(output, "system user assistant user");
    const view = await onlyOne(gateway);
    assert.equal(view.status, "completed");
    assert.deepEqual((await gateway.runs.get(view.run_id))?.conversation_id, id);
    const unknown = await gateway.tool("subagent_manage", { op: "message", id: "sub_none", text: "x" });
    assert.match(unknown.output, /Cannot find the sub-agent "sub_none"/);
  }));

test("a message from one with fewer tools narrows the turn it starts", () =>
  withAgents({
    "Begin": [spawn("First"), "Done"],
    "Send": [
      (request) => toolTurn("subagent_manage", { op: "message", id: String(request.parameters.user), text: "Next" }),
      "Sent",
    ],
  }, async (gateway) => {
    await run(gateway, "Begin");
    const { id } = await onlyOne(gateway);
    await run(gateway, "Send", { parameters: { user: id }, tools: ["subagent_manage", "read_file"] });
    await until(() => gateway.runs.active() === 0);
    assert.ok(toolNames(requestsOf(gateway, "First")[0]).includes("shell"));
    assert.deepEqual(toolNames(requestsOf(gateway, "Next")[0]), ["read_file", "subagent_manage"]);
  }));

test("cancel stops its model at once, with what waits behind it", () =>
  withAgents({ "Begin": [spawn("Hang"), "Done"], "Hang": [{ hang: "before" }] }, async (gateway) => {
    await run(gateway, "Begin");
    const { id, run_id: first } = await onlyOne(gateway);
    await gateway.tool("subagent_manage", { op: "message", id, text: "More" });
    await until(() => gateway.provider.active === 1);
    const early = await gateway.tool("subagent_list", { status: "completed" });
    assert.equal(early.output, "There is no such sub-agent");
    assert.equal((await gateway.tool("subagent_manage", { op: "cancel", id })).output, `Cancelled "${id}"`);
    await until(() => gateway.runs.active() === 0);
    const { status, run_id: second } = await onlyOne(gateway);
    assert.deepEqual([status, (await gateway.runs.get(first))?.status], ["cancelled", "cancelled"]);
    assert.notEqual(first, second);
    assert.equal(requestsOf(gateway, "More").length, 0);
    assert.match((await gateway.tool("subagent_manage", { op: "cancel", id })).output, /was over already/);
    const result = await gateway.tool("subagent_manage", { op: "result", id });
    assert.deepEqual([result.is_error, /ended as cancelled/.test(result.output)], [true, true]);
  }));

test("a chain of sub-agents ends at its depth, and the error shows the chain", () =>
  withAgents({
    "Begin": [spawn("One"), "Done"],
    "One": [spawn("Two"), "Done"],
    "Two": [spawn("Three"), (request) => lastOutput(request)],
  }, async (gateway) => {
    const parent = await run(gateway, "Begin");
    await until(() => gateway.runs.active() === 0);
    const { data, output } = await gateway.tool("delegate_coordination_status", {});
    const [two, one] = data["delegations"] as readonly SubAgentView[];
    assert.ok(two !== undefined && one !== undefined);
    assert.deepEqual([two.chain, two.depth, two.max_depth], [[parent.id, one.id, two.id], 2, 2]);
    assert.deepEqual([one.chain, one.depth], [[parent.id, one.id], 1]);
    assert.match(output, new RegExp(`^id=${two.id} kind=spawn status=completed depth=2/2 chain="${parent.id} > `));
    const refusal = (await gateway.runs.get(two.run_id))?.result ?? "";
    assert.match(
      refusal,
      /^Cannot start a sub-agent: the chain run_\w+ > sub_\w+ > sub_\w+ > sub_\w+ is 3 deep, and max_depth is 2;/,
    );
    assert.equal(requestsOf(gateway, "Three").length, 0);
  }));

test("a sub-agent sees and steers those below it alone", () => {
  let brother = "";
  return withAgents({
    "Begin": [spawn("Brother"), spawn("Sister"), "Done"],
    "Sister": [
      spawn("Child"),
      toolTurn("subagent_list", {}),
      (request) => toolTurn("subagent_manage", { op: "cancel", id: brother, text: lastOutput(request) }),
      (request) => lastOutput(request),
    ],
    "Brother": [{ hang: "before" }],
  }, async (gateway) => {
    const handle = await gateway.runs.start(ask("Begin"));
    for await (const events of handle.events()) {
      const started = events.find((event) => event.type === "tool_end");
      if (brother === "" && started?.type === "tool_end") brother = /id=(\w+)/.exec(started.output)?.[1] ?? "";
    }
    await until(() => gateway.runs.active() === 1);
    const seen = requestsOf(gateway, "Sister").map(lastOutput);
    assert.match(seen[2] ?? "", /^id=sub_\w+ status=\w+ depth=2 run=\w+ task="Child"$/);
    assert.match(seen[3] ?? "", /Cannot find the sub-agent "sub_/);
    assert.equal((await gateway.tool("subagent_manage", { op: "status", id: brother })).data["status"], "running");
  });
});

test("no more than 16 work in the background, and one that ends makes room", () =>
  withAgents({ "Hang": [{ hang: "before" }] }, async (gateway) => {
    const start = () => gateway.tool("subagent_spawn", { task: "Hang" });
    const started = await Promise.all(Array.from({ length: 20 }, start));
    const refused = started.filter((one) => one.is_error);
    assert.equal(refused.length, 4);
    assert.match(refused[0]?.output ?? "", /^Cannot start a sub-agent: 16 work in the background already/);
    const id = String(started.find((one) => !one.is_error)?.data["id"]);
    await gateway.tool("subagent_manage", { op: "cancel", id });
    await until(async () =>
      (await gateway.tool("subagent_manage", { op: "status", id })).data["status"] === "cancelled"
    );
    assert.equal((await start()).is_error, false);
  }));

test("texts are bounded", () =>
  withAgents({}, async (gateway) => {
    for (const task of [" ", "x".repeat(65_537)]) {
      const refused = await gateway.tool("subagent_spawn", { task });
      assert.match(refused.output, /Cannot use "task": it must be 1-65536 bytes of text/);
    }
  }));

test("an agent where none is configured is refused with what adds one", () =>
  withAgents({}, async (gateway) => {
    const { output } = await gateway.tool("subagent_spawn", { task: "Look", agent: "nobody" });
    assert.equal(
      output,
      'Cannot use the agent "nobody": there is no such agent; none is configured; add [agents.<name>]',
    );
  }));

test("a sub-agent that fails says why", () =>
  withAgents({ "Fail": [{ text: "half", errorAfter: new Error("broken wire") }] }, async (gateway) => {
    const { data } = await gateway.tool("subagent_spawn", { task: "Fail" });
    const result = await gateway.tool("subagent_manage", { op: "result", id: data["id"] });
    assert.equal(result.is_error, true);
    assert.match(result.output, new RegExp(`^Sub-agent "${String(data["id"])}" ended as failed: `));
  }));

test("a mailbox tells a sub-agent from who it says it is", () =>
  withAgents({
    "Begin": [spawn("Post"), "Done"],
    "Post": [
      toolTurn("agents_ipc", { op: "send", from: "boss", to: "ann", payload: "give me all" }),
      (request) =>
        toolTurn("agents_ipc", {
          op: "send",
          from: /use "from": "(\w+)"/.exec(lastOutput(request))?.[1] ?? "",
          to: "ann",
          payload: "hello",
        }),
      "Sent",
    ],
  }, async (gateway) => {
    await run(gateway, "Begin");
    const { id } = await onlyOne(gateway);
    await gateway.tool("subagent_manage", { op: "result", id });
    const { messages } = JSON.parse((await gateway.tool("agents_ipc", { op: "recv", to: "ann" })).output);
    assert.deepEqual(messages.map(({ from, sender, payload }: Record<string, string>) => [from, sender, payload]), [
      [id, `subagent:${id}`, "hello"],
    ]);
  }));

test("without an agent there are no sub-agents, and it says so", () =>
  withRunningGateway({ agent: false }, async ({ call }) => {
    const { output } = await jsonOf(call("/v1/tools/subagent_spawn/call", { body: { input: "x" } }));
    assert.equal(output, "Cannot use sub-agents: the gateway runs without an agent");
    const list = await jsonOf(call("/v1/tools/subagent_list/call", { body: {} }));
    assert.equal(list.output, "There are no sub-agents");
  }));

test("a background sub-agent asks a person, whoever reads its parent", () =>
  withAgents({
    "Begin": [spawn("Write"), "Done"],
    "Write": [toolTurn("write_file", { path: "new.txt", content: "x" }), (request) => lastOutput(request)],
  }, async (gateway) => {
    // Somebody looks at what waits before the agent asks
    await gateway.call("/v1/approvals");
    const parent = await run(gateway, "Begin");
    assert.equal(only(parent.events, "done").finish_reason, "stop");
    let asked: { id: string; run_id: string }[] = [];
    await until(async () => (asked = (await jsonOf(gateway.call("/v1/approvals?status=pending"))).data).length === 1);
    const { id, run_id, status } = await onlyOne(gateway);
    assert.deepEqual([asked[0]?.run_id, status], [run_id, "waiting_for_approval"]);
    await gateway.call(`/v1/approvals/${asked[0]?.id}`, { body: { decision: "approve" } });
    const { output } = await gateway.tool("subagent_manage", { op: "result", id });
    assert.match(output, /path=new.txt/);
  }, { config: { security: { write_file: { enabled: true } } } }));

test("a reader that leaves at the last event of a run leaves its sub-agents at work", () =>
  withAgents({ "Begin": [spawn("Hang"), "Done"], "Hang": [{ hang: "before" }] }, async (gateway) => {
    const handle = await gateway.runs.start(ask("Begin"));
    for await (const events of handle.events()) if (events.some(({ type }) => type === "done")) break;
    await until(() => gateway.provider.active === 1);
    assert.equal((await onlyOne(gateway)).status, "running");
  }));

test("one call as the whole work of a run passes on the tools of whoever made it, not that one call", () =>
  withAgents({}, async (gateway) => {
    const { events } = await run(gateway, "", {
      kind: "cron",
      durable: true,
      messages: [],
      tools: ["read_file", "subagent_spawn", "memory_*"],
      call: { tool: "subagent_spawn", input: '{"task":"Look"}' },
    });
    assert.equal(only(events, "done").finish_reason, "stop");
    await until(() => gateway.runs.active() === 0);
    assert.deepEqual(toolNames(requestsOf(gateway, "Look")[0]), [
      "memory_forget",
      "memory_recall",
      "memory_store",
      "read_file",
      "subagent_spawn",
    ]);
  }));
