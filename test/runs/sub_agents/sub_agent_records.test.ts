import assert from "node:assert/strict";
import { test } from "node:test";
import type { Scope } from "../../../lib/base/records/caller.ts";
import type { Write } from "../../../lib/storage/store.ts";
import { SubAgentService } from "../../../lib/runs/sub_agents/sub_agent_service.ts";
import { SUB_AGENT_LIMITS } from "../../../lib/tools/agents/sub_agents.ts";
import type { CallContext } from "../../../lib/tools/runtime/tool_call.ts";
import { supervised } from "../../support/supervised.ts";

const by = (callId: string, tokenId = "tok_1", scopes: readonly Scope[] = ["chat"]): CallContext => ({
  runId: "run_parent",
  callId,
  conversationId: null,
  caller: { via: "http", tokenId, scopes },
  depth: 0,
  taint: [],
  direct: false,
  sees: false,
  inherited: {
    limits: { maxIterations: 5, maxToolCalls: 5, tokensPerRun: 0 },
    tools: undefined,
    durable: true,
    approver: () => Promise.resolve({ decision: "deny", rule: "approval", reason: "No" }),
  },
  signal: new AbortController().signal,
  progress: () => {},
});

function setUp() {
  const parts = supervised((request) => `told ${String(request.messages.at(-1)?.content)}`);
  const agents = new SubAgentService({
    store: parts.store,
    clock: parts.clock,
    agents: () => ({}),
    tools: () => parts.executor,
    runs: () => parts.runs,
  });
  return { ...parts, agents };
}

test("a call that is made again starts nothing twice, at once or after a restart", async () => {
  const { agents, runs, store, clock, executor } = setUp();
  const started = await Promise.all([1, 2, 3].map(() => agents.spawn({ task: "Look" }, by("call_1"))));
  assert.equal(new Set(started.map(({ id, run_id }) => `${id} ${run_id}`)).size, 1);
  const again = new SubAgentService({ store, clock, agents: () => ({}), tools: () => executor, runs: () => runs });
  assert.equal((await again.spawn({ task: "Look" }, by("call_1"))).run_id, started[0]?.run_id);
  assert.notEqual((await again.spawn({ task: "Look" }, by("call_2"))).id, started[0]?.id);
  assert.equal((await runs.list({ limit: 10 })).runs.length, 2);
});

test("another token sees, asks, tells and stops a sub-agent only with the scope runs", async () => {
  const { agents, store } = setUp();
  const { id } = await agents.spawn({ task: "Look" }, by("call_1"));
  const others = [by("call_2", "tok_2"), by("call_2", "tok_2", ["tools", "approve"])];
  for (const other of others) {
    assert.deepEqual(await agents.list({}, other), { views: [], hidden: 1 });
    assert.deepEqual(await agents.delegations(other), { views: [], hidden: 1 });
    await assert.rejects(agents.status(id, other), { code: "insufficient_scope" });
    await assert.rejects(agents.result(id, other), { code: "insufficient_scope" });
    await assert.rejects(agents.message(id, "More", other), { code: "insufficient_scope" });
    await assert.rejects(agents.cancel(id, other), { code: "insufficient_scope" });
  }
  assert.equal((await agents.result(id, by("call_3", "tok_3", ["chat", "runs"]))).result, "told Look");
  const { token_id: _, ...older } = (await store.get("sub_agents", id))?.body as Record<string, unknown>;
  await store.batch([{ op: "put", collection: "sub_agents", key: id, body: older }]);
  await assert.rejects(agents.status(id, by("call_4")), {
    code: "insufficient_scope",
    message: /nobody knows who began it/,
  });
  await assert.rejects(agents.status("sub_unknown", by("call_4")), { code: "not_found" });
});

test("a message that is sent again is one turn", async () => {
  const { agents, runs } = setUp();
  const { id, run_id: first } = await agents.spawn({ task: "Look" }, by("call_1"));
  const sent = await Promise.all([1, 2].map(() => agents.message(id, "More", by("call_2"))));
  assert.equal(sent[0]?.run_id, sent[1]?.run_id);
  assert.notEqual(sent[0]?.run_id, first);
  const { result } = await agents.result(id, by("call_3"));
  assert.equal(result, "told More");
  assert.equal((await runs.list({ limit: 10 })).runs.length, 2);
});

test("result waits so long and no longer, and says how long it has been", async () => {
  const { runs, store, clock, executor } = supervised([{ hang: "before" }]);
  const agents = new SubAgentService({ store, clock, agents: () => ({}), tools: () => executor, runs: () => runs });
  const { id } = await agents.spawn({ task: "Hang" }, by("call_1"));
  const waiting = agents.result(id, by("call_2"));
  // Until it has looked up what it waits for
  await new Promise((resolve) => setImmediate(resolve));
  await clock.advance(SUB_AGENT_LIMITS.waitMs);
  const { view, result, error, ageMs } = await waiting;
  assert.deepEqual([view.status, result, error, ageMs], ["running", null, null, 60_000]);
  const stop = new AbortController();
  const stopped = agents.result(id, { ...by("call_3"), signal: stop.signal });
  stop.abort();
  await assert.rejects(stopped, { name: "CancelError" });
});

test("over 1,000 records the oldest that is over makes room, with its turns", async () => {
  const { agents, store } = setUp();
  const old = (index: number): Write => ({
    op: "insert",
    collection: "sub_agents",
    key: `sub_${index}`,
    body: {
      v: 1,
      id: `sub_${index}`,
      kind: "spawn",
      agent: null,
      task: "x",
      run_id: "run_gone",
      parent_id: null,
      ancestors: [],
      chain: [],
      depth: 1,
      max_depth: 2,
      tools: [],
      created_at: "2026-01-01T00:00:00.000Z",
      ended: null,
    },
  });
  await store.batch(Array.from({ length: 1000 }, (_, index) => old(index)));
  await store.batch([{
    op: "insert",
    collection: "sub_agent_turns",
    key: "sub_0/x",
    body: { v: 1, run_id: "run_gone" },
  }]);
  await agents.spawn({ task: "Look" }, by("call_1"));
  assert.equal(await store.count("sub_agents"), 1000);
  assert.equal(await store.get("sub_agents", "sub_0"), undefined);
  assert.equal(await store.count("sub_agent_turns"), 0);
});
