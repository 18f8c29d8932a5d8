import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CancelError } from "../../lib/base/cancel.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { RUNS } from "../../lib/runs/journal/run_records.ts";
import { SubAgentService } from "../../lib/runs/sub_agents/sub_agent_service.ts";
import type { CallContext } from "../../lib/tools/runtime/tool_call.ts";
import type { FakeTool } from "../support/fake_tool_executor.ts";
import { type ClusteredGateway, createSharedDatabase, joinGateway, LEASE_MS } from "../support/clustered.ts";
import { ask, type AskOptions } from "../support/supervised.ts";
import { until } from "../support/until.ts";

const DURABLE: AskOptions = { durable: true };

/** A tool that starts a child at a gateway and waits for its result. */
function delegating(to: () => ClusteredGateway, child: AskOptions = {}) {
  const children: string[] = [];
  const tool: FakeTool = {
    name: "delegate",
    access: "read",
    async run(_, { runId, signal }) {
      const { runs } = to();
      const { id } = await runs.start(ask("child", { ...DURABLE, ...child, parentId: runId }));
      children.push(id);
      return `it said ${(await runs.ended(id, signal))?.result}`;
    },
  };
  return { tool, children };
}

/** A parent delegates once, and then says what it was told. A child answers at once, or hangs. */
const script =
  (childHangs = false) => ({ messages }: { readonly messages: readonly { role: string; content?: unknown }[] }) => {
    const last = messages.at(-1);
    if (last?.role === "tool") return String(last.content);
    if (JSON.stringify(last?.content).includes("child")) {
      return childHangs ? { toolCalls: [{ name: "hang", arguments: "{}" }] } : "yes";
    }
    return { toolCalls: [{ name: "delegate", arguments: "{}" }] };
  };

const HANG: FakeTool = {
  name: "hang",
  access: "read",
  run: (_, { signal }) =>
    new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
};

function hasStatus({ runs }: ClusteredGateway, id: string, status: Run["status"]): () => Promise<boolean> {
  return async () => (await runs.get(id))?.status === status;
}

describe("runs and their sub-agents in a cluster", () => {
  for (const [what, child] of [["", {}], [" of their own conversations", { conversationId: "new" }]] as const) {
    test(`parents in all slots wait for children${what}, which take no slot: nothing stands still`, async () => {
      const database = createSharedDatabase();
      const limits = { maxConcurrent: 1, maxQueued: 2 };
      const [ofA, ofB] = [delegating(() => a, child), delegating(() => b, child)];
      const a: ClusteredGateway = await joinGateway(database, script(), { seed: 1, limits, tools: [ofA.tool] });
      const b: ClusteredGateway = await joinGateway(database, script(), { seed: 2, limits, tools: [ofB.tool] });
      await database.clock.advance(2 * LEASE_MS);
      // More than there are slots, so that some wait while the parents start their children
      const parents = await Promise.all([a, b, a, b].map(({ runs }) => runs.start(ask("parent", DURABLE))));
      for (let passed = 0; passed < 10_000; passed += 100) await database.clock.advance(100);
      for (const { id } of parents) {
        const run = await a.runs.get(id);
        assert.deepEqual([run?.status, run?.result], ["completed", "it said yes"]);
      }
      assert.equal(ofA.children.length + ofB.children.length, 4);
      await Promise.all([a.close(), b.close()]);
    });
  }

  test("however many wait for the end of a run elsewhere, one look a second is made for all", async () => {
    const database = createSharedDatabase();
    const held = Promise.withResolvers<void>();
    const a = await joinGateway(database, [{ text: ["do", "ne"], holdUntil: held.promise }], { seed: 1 });
    const b = await joinGateway(database, [], { seed: 2 });
    database.isMute = true;
    const { id } = await a.runs.start(ask("go", DURABLE));
    let reads = 0;
    const { onResult } = database;
    database.onResult = async (operation, first) => {
      if (operation === "get" && first === RUNS.name) reads++;
      await onResult(operation, first);
    };
    const leaving = new AbortController();
    const left = b.runs.ended(id, leaving.signal);
    const waiting = Array.from({ length: 200 }, () => b.runs.ended(id, new AbortController().signal));
    await database.clock.advance(5_000);
    leaving.abort(new CancelError("client_gone"));
    await assert.rejects(left, CancelError);
    assert.ok(reads >= 4 && reads <= 10, `${reads} reads`);
    held.resolve();
    await until(hasStatus(a, id, "completed"));
    await database.clock.advance(2_000);
    const ended = await Promise.all(waiting);
    assert.deepEqual(new Set(ended.map((run) => run?.result)), new Set(["done"]));
    assert.ok(reads <= 14, `${reads} reads`);
    await Promise.all([a, b].map(({ runs }) => runs.drain(0)));
    await Promise.all([a.close(), b.close()]);
    assert.equal(database.clock.pending(), 0, "no timer is left");
  });

  test("children of runs with a budget work at their parents' gateway, within that budget", async () => {
    const database = createSharedDatabase();
    const calls = new Map<string, number>();
    const counting = (name: string) => (request: Parameters<ReturnType<typeof script>>[0]) => {
      const reply = script()(request);
      calls.set(name, (calls.get(name) ?? 0) + 1);
      return reply;
    };
    const { tool } = delegating(() => b, { conversationId: "new" });
    const agent = { tokensPerRun: 1_000_000 };
    const a: ClusteredGateway = await joinGateway(database, counting("a"), { seed: 1, agent, tools: [tool] });
    const b: ClusteredGateway = await joinGateway(database, counting("b"), { seed: 2, agent });
    await database.clock.advance(2 * LEASE_MS);
    for (let count = 0; count < 3; count++) {
      const parent = await a.runs.start(ask("parent", DURABLE));
      for (let passed = 0; passed < 5_000; passed += 100) await database.clock.advance(100);
      assert.equal((await b.runs.get(parent.id))?.result, "it said yes");
    }
    assert.deepEqual([calls.get("a"), calls.get("b")], [9, undefined]);
    await Promise.all([a.close(), b.close()]);
  });

  test("the result of a child at another gateway reaches its parent by a note, and within a second without one", async () => {
    for (const isMute of [false, true]) {
      const database = createSharedDatabase();
      const { tool } = delegating(() => b);
      const a: ClusteredGateway = await joinGateway(database, script(), { seed: 1, tools: [tool] });
      const b: ClusteredGateway = await joinGateway(database, script(), { seed: 2 });
      await database.clock.advance(2 * LEASE_MS);
      database.isMute = isMute;
      const { id } = await a.runs.start(ask("parent", DURABLE));
      if (isMute) await database.clock.advance(1_000);
      await until(hasStatus(b, id, "completed"));
      assert.equal((await b.runs.get(id))?.result, "it said yes");
      await Promise.all([a.close(), b.close()]);
    }
  });

  test("a parent that is cancelled at any gateway takes its children at others with it", async () => {
    const database = createSharedDatabase();
    const { tool, children } = delegating(() => b);
    const a: ClusteredGateway = await joinGateway(database, script(true), { seed: 1, tools: [tool] });
    const b: ClusteredGateway = await joinGateway(database, script(true), { seed: 2, tools: [HANG] });
    const c = await joinGateway(database, [], { seed: 3 });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("parent", DURABLE));
    await until(() => b.executor.calls.length === 1);
    assert.equal(await c.runs.cancel(id, "cancelled"), true);
    await until(hasStatus(c, children[0] ?? "", "cancelled"));
    await until(hasStatus(c, id, "cancelled"));
    await Promise.all([a.close(), b.close(), c.close()]);
  });

  test("a parent whose gateway has died is cancelled where its child works: the child stops too", async () => {
    const database = createSharedDatabase();
    const { tool, children } = delegating(() => b);
    const a: ClusteredGateway = await joinGateway(database, script(true), { seed: 1, tools: [tool] });
    const b: ClusteredGateway = await joinGateway(database, script(true), {
      seed: 2,
      tools: [HANG],
      limits: { maxConcurrent: 1 },
    });
    await database.clock.advance(2 * LEASE_MS);
    const { id } = await a.runs.start(ask("parent", DURABLE));
    await until(() => b.executor.calls.length === 1);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    assert.equal(await b.runs.cancel(id, "cancelled"), true);
    await until(hasStatus(b, children[0] ?? "", "cancelled"));
    await database.clock.advance(2 * LEASE_MS + 1_000);
    await until(hasStatus(b, id, "cancelled"));
    await b.close();
  });

  test("a delegation without a record reads as running at every gateway, until the gateway of its caller is gone", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [{ hang: "before" }], { seed: 1 });
    const b = await joinGateway(database, [], { seed: 2 });
    await database.clock.advance(2 * LEASE_MS);
    const agentsAt = ({ store, clock, executor, runs, cluster }: ClusteredGateway) =>
      new SubAgentService({
        ...{ store, clock, cluster: cluster.ownership },
        agents: () => ({}),
        tools: () => executor,
        runs: () => runs,
      });
    const by = (callId: string): CallContext => ({
      runId: "run_parent",
      callId,
      conversationId: null,
      caller: { via: "http", tokenId: null, scopes: ["admin"] },
      depth: 0,
      taint: [],
      direct: false,
      sees: false,
      inherited: undefined,
      signal: new AbortController().signal,
      progress: () => {},
    });
    void agentsAt(a).delegate({ agent: undefined as never, /* no configured agent */ prompt: "Hang" }, by("call_1"))
      .catch(() => {});
    const statuses = async (gateway: ClusteredGateway) =>
      (await agentsAt(gateway).delegations(by("call_2"))).views.map(({ status }) => status);
    await until(async () => (await statuses(b)).length === 1);
    assert.deepEqual(await statuses(b), ["running"]);
    a.link.isCut = true;
    a.cluster.lease.abandon();
    await database.clock.advance(2 * LEASE_MS + 1_000);
    assert.deepEqual(await statuses(b), ["failed"]);
    await b.close();
  });

  test("a plain completion that its client leaves asks the database for nothing", async () => {
    const database = createSharedDatabase();
    const a = await joinGateway(database, [{ text: "late", delayMs: 10_000 }], { seed: 1 });
    await database.clock.advance(LEASE_MS);
    let asked = 0;
    database.onResult = async () => void asked++;
    const handle = await a.runs.start(ask("go", { agentTools: "none" }));
    const reading = Array.fromAsync(handle.events()).catch(() => {});
    handle.cancel("cancelled");
    await reading;
    assert.equal(asked, 0);
    database.onResult = async () => {};
    await a.close();
  });
});
