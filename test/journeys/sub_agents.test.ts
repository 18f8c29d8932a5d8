import assert from "node:assert/strict";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { SubAgentView } from "../../lib/tools/agents/sub_agents.ts";
import { lastOutput, lastWords, scriptedTasks, type TaskTurn, toolTurn } from "../support/scripted_tasks.ts";
import { ask } from "../support/supervised.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

type Tasks = Readonly<Record<string, readonly TaskTurn[]>>;

const AGENTS = { local: { agentic: true, allowed_tools: ["read_file"] } };
const HANG = [{ hang: "before" as const }];

const tool = (gateway: RunningGateway, name: string, input: unknown = {}) =>
  jsonOf(gateway.call(`/v1/tools/${name}/call`, { body: { input } }));
const delegations = async (gateway: RunningGateway): Promise<readonly SubAgentView[]> =>
  (await tool(gateway, "delegate_coordination_status")).data.delegations;
const runsOf = (gateway: RunningGateway) => {
  const runs = gateway.services.agent?.runs;
  assert.ok(runs !== undefined);
  return runs;
};
const isAsked = (gateway: RunningGateway, words: string) =>
  gateway.provider.requests.some((request) => lastWords(request) === words);

const SPAWN: Tasks = {
  "Begin": [toolTurn("subagent_spawn", { task: "Work" }), "Started"],
};

/** The tasks with a sub-agent that waits in the middle of its answer until it is let go. */
function held(): { readonly tasks: Tasks; readonly letGo: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { tasks: { ...SPAWN, "Work": [{ text: ["half ", "done"], holdUntil: promise }] }, letGo: resolve };
}

for (
  const [what, say] of [
    ["a completion", (gateway: RunningGateway) => complete(gateway, false)],
    ["a streamed completion", (gateway: RunningGateway) => complete(gateway, true)],
    ["a chat message", async (gateway: RunningGateway) => {
      assert.equal((await jsonOf(gateway.call("/api/chat", { body: { message: "Begin" } }))).message, "Started");
    }],
    ["a WebSocket message", async (gateway: RunningGateway) => {
      const client = await gateway.chat();
      client.send("Begin");
      await client.readReply();
      await client.leave();
    }],
  ] as const
) {
  test(`a sub-agent goes on when ${what} that started it is answered and its reader gone`, () =>
    withWorld(async (world) => {
      const { tasks, letGo } = held();
      const gateway = await world.gateway({ script: scriptedTasks(tasks) });
      await say(gateway);
      await until(() => runsOf(gateway).active() === 1 && gateway.provider.active === 1);
      letGo();
      const [{ id } = { id: "" }] = await delegations(gateway);
      assert.equal((await tool(gateway, "subagent_manage", { op: "result", id })).output, "half done");
      assert.deepEqual((await delegations(gateway)).map(({ status }) => status), ["completed"]);
    }));
}

async function complete(gateway: RunningGateway, stream: boolean): Promise<void> {
  const body = { messages: [{ role: "user", content: "Begin" }], stream };
  const reply = await gateway.call("/v1/chat/completions", { body });
  assert.match(await reply.text(), /Started/);
}

test("cancelling a run cancels the sub-agents it started, and theirs", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      script: scriptedTasks({
        "Begin": [toolTurn("subagent_spawn", { task: "Middle" }), { hang: "before" }],
        "Middle": [toolTurn("subagent_spawn", { task: "Deep" }), { hang: "before" }],
        "Deep": HANG,
      }),
    });
    const runs = runsOf(gateway);
    const handle = await runs.start(ask("Begin", { durable: true }));
    await until(() => isAsked(gateway, "Deep"));
    await until(() => gateway.provider.active === 3);
    await gateway.call(`/v1/runs/${handle.id}/cancel`, { method: "POST" });
    await until(() => runs.active() === 0);
    assert.equal(gateway.provider.active, 0);
    assert.deepEqual((await delegations(gateway)).map(({ status }) => status), ["cancelled", "cancelled"]);
  }));

/** Gateways one after the other on one data directory and one workspace. */
const withRestarts = (
  use: (
    start: (tasks: Tasks, work: (gateway: RunningGateway) => Promise<void>, dataDir?: string) => Promise<void>,
    folder: string,
  ) => Promise<void>,
) =>
  withWorld(async (world) => {
    const workspace = await world.workspace({ "notes.txt": "a note\n" });
    const folder = await world.folder();
    await use(
      (tasks, work, dataDir = join(folder, "data")) =>
        world.during(
          world.gateway({ dataDir, workspace, script: scriptedTasks(tasks), config: { agents: AGENTS } }),
          work,
        ),
      folder,
    );
  });

test("a sub-agent and what waits for it survive a restart, with parentage and depth", () =>
  withRestarts(async (start) => {
    let before: SubAgentView | undefined;
    let last = "";
    await start({ ...SPAWN, "Work": HANG }, async (gateway) => {
      await complete(gateway, false);
      await until(() => isAsked(gateway, "Work"));
      [before] = await delegations(gateway);
      const sent = await tool(gateway, "subagent_manage", { op: "message", id: before?.id, text: "And then?" });
      last = sent.data.run_id;
    });
    await start({
      "Work": [toolTurn("read_file", { path: "notes.txt" }), (request) => `It says ${lastOutput(request)}`],
      "And then?": [(request) => request.messages.map(({ role }) => role).join(" ")],
    }, async (gateway) => {
      const { output } = await tool(gateway, "subagent_manage", { op: "result", id: before?.id });
      assert.equal(output, "system user assistant tool assistant user");
      const [after] = await delegations(gateway);
      assert.deepEqual(
        [after?.id, after?.parent_id, after?.depth, after?.chain, after?.run_id, after?.status],
        [before?.id, before?.parent_id, before?.depth, before?.chain, last, "completed"],
      );
      const asked = gateway.provider.requests.find((request) => lastWords(request) === "Work");
      assert.ok(asked?.tools.every(({ name }) => name !== "delegate"));
      assert.ok(asked?.tools.some(({ name }) => name === "read_file"));
      assert.equal((await runsOf(gateway).get(before?.run_id ?? ""))?.result, "It says a note\n");
    });
  }));

const DELEGATE: Tasks = {
  "Begin": [toolTurn("delegate", { agent: "local", prompt: "Help" }), (request) => `It said: ${lastOutput(request)}`],
  "Help": [toolTurn("read_file", { path: "notes.txt" }), { hang: "before" }],
};

for (const how of ["a restart", "a crash"] as const) {
  test(`a durable run and the agent it waits for go on after ${how}, and the agent is started once`, () =>
    withRestarts(async (start, folder) => {
      let id = "";
      const copy = join(folder, "copy");
      await start(DELEGATE, async (gateway) => {
        id = (await runsOf(gateway).start(ask("Begin", { durable: true }))).id;
        await until(() => gateway.provider.requests.filter((request) => lastWords(request) === "Help").length === 2);
        // Copy of the files that a crash at this moment would leave
        cpSync(gateway.dataDir, copy, { recursive: true });
      });
      const answering: Tasks = { "Help": ["here you are"], "Begin": [(request) => `It said: ${lastOutput(request)}`] };
      await start(answering, async (gateway) => {
        const run = await runsOf(gateway).ended(id, new AbortController().signal);
        assert.deepEqual([run?.status, run?.result], ["completed", "It said: here you are"]);
        const views = await delegations(gateway);
        assert.deepEqual(views.map(({ agent, status, parent_id }) => [agent, status, parent_id]), [[
          "local",
          "completed",
          id,
        ]]);
        assert.equal((await runsOf(gateway).list({ limit: 10 })).runs.length, 2);
      }, how === "a crash" ? copy : undefined);
    }));
}

test("an agent that is no longer configured ends with the reason after a restart", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace();
    const folder = await world.folder();
    const shared = { dataDir: join(folder, "data"), workspace };
    let id = "";
    await world.during(
      world.gateway({ ...shared, script: scriptedTasks(DELEGATE), config: { agents: AGENTS } }),
      async (gateway) => {
        id = (await runsOf(gateway).start(ask("Begin", { durable: true }))).id;
        await until(() => isAsked(gateway, "Help"));
      },
    );
    const script = scriptedTasks({ "Begin": [(request) => lastOutput(request)] });
    await world.during(world.gateway({ ...shared, script }), async (gateway) => {
      const run = await runsOf(gateway).ended(id, new AbortController().signal);
      assert.equal(run?.status, "completed");
      assert.match(run?.result ?? "", /"delegate"|"local"/);
      assert.deepEqual((await delegations(gateway)).map(({ status }) => status), ["failed"]);
    });
  }));

test("what a sub-agent puts on a schedule sends as nobody else and starts nothing beyond its depth", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      config: { cron: { enabled: true } },
      script: scriptedTasks({
        "Begin": [toolTurn("subagent_spawn", { task: "Plan" }), "Started"],
        "Plan": [
          toolTurn("cron_add", {
            id: "post",
            schedule: "yearly",
            tool: "agents_ipc",
            input: { op: "send", from: "boss", to: "ann", payload: "x" },
          }),
          toolTurn("cron_add", { id: "start", schedule: "yearly", tool: "subagent_spawn", input: { task: "More" } }),
          "Planned",
        ],
      }),
    });
    await complete(gateway, false);
    const [{ id } = { id: "" }] = await delegations(gateway);
    assert.equal((await tool(gateway, "subagent_manage", { op: "result", id })).output, "Planned");
    const fired = async (schedule: string) => {
      const started = await jsonOf(gateway.call(`/v1/schedules/${schedule}/run`, { method: "POST" }));
      return (await runsOf(gateway).ended(started.run_id, new AbortController().signal))?.error?.message;
    };
    assert.match(await fired("post") ?? "", /^Cannot send as "boss": a sub-agent sends only as itself/);
    assert.match(await fired("start") ?? "", /^Cannot use sub-agents here: which sub-agent stands behind this call/);
    assert.equal((await tool(gateway, "agents_ipc", { op: "recv", to: "ann" })).data.messages.length, 0);
    assert.equal((await delegations(gateway)).length, 1);
  }));

test("a sub-agent's question, its answer and what follows survive kills in between, and the effect happens once", () =>
  withWorld(async (world) => {
    const folder = await world.folder();
    writeFileSync(join(folder, "notes.txt"), "old\n");
    const config =
      '[provider]\nkind = "offline"\n[gateway]\nrate_limit_max = 0\n[security.write_file]\nenabled = true\n';
    const token = "token-of-the-killed-gateways-0123456789";
    /** Runs `use` with a gateway that is killed at its end. */
    const killed = (use: (request: (path: string, body?: unknown) => ReturnType<typeof jsonOf>) => Promise<void>) =>
      world.during(
        world.gatewayProcess({ folder, config, token }),
        (gateway) => use((path, body) => jsonOf(gateway.call(path, { body }))),
      );
    const manage = (op: string) => ({ input: { op, id } });
    let id = "";
    let asked = "";
    await killed(async (request) => {
      const input = { task: '/write_file {"path": "notes.txt", "content": "new\\n", "overwrite": true}' };
      ({ data: { id } } = await request("/v1/tools/subagent_spawn/call", { input }));
      await until(async () => (asked = (await request("/v1/approvals?status=pending")).data[0]?.id ?? "") !== "");
    });
    assert.equal(readFileSync(join(folder, "notes.txt"), "utf8"), "old\n");
    await killed(async (request) => {
      const status = async () => (await request("/v1/tools/subagent_manage/call", manage("status"))).data.status;
      await until(async () => await status() === "waiting_for_approval");
      assert.equal((await request(`/v1/approvals/${asked}`, { decision: "approve" })).status, "approved");
      await until(async () => await status() === "completed");
    });
    assert.equal(readFileSync(join(folder, "notes.txt"), "utf8"), "new\n");
    await killed(async (request) => {
      const { output } = await request("/v1/tools/subagent_manage/call", manage("result"));
      assert.match(output, /path=notes.txt/);
      const [view] = (await request("/v1/tools/delegate_coordination_status/call", {})).data.delegations;
      assert.deepEqual([view.id, view.status, view.depth], [id, "completed", 1]);
    });
  }));
