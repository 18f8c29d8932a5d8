import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { isAtWork } from "../../../lib/base/records/run.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { describeFound } from "../../../lib/tools/agents/tool_search.ts";
import type { FakeTool } from "../../support/fake_tool_executor.ts";
import { ask, only, readAll, supervised } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

const hang = () => new Promise<string>(() => {});
const search: FakeTool = {
  name: "tool_search",
  alwaysOffered: true,
  run: ({ query }) => describeFound([{ name: String(query), description: "Found" }]),
};
const look: FakeTool = { name: "look", alwaysOffered: true };
const TOOLS: readonly FakeTool[] = [look, search, { name: "paint", access: "state" }, { name: "weigh" }];
const ON = { agent: { toolSearch: "on" } } as const;
const find = (name: string) => ({ toolCalls: [{ name: "tool_search", arguments: { query: name } }] });

function told(requests: readonly ProviderRequest[]): readonly (readonly string[])[] {
  return requests.map(({ tools }) => tools.map(({ name }) => name));
}

test("the model is told of a found tool from the next turn on, and calls it by name", async () => {
  const { runs, provider, executor } = supervised(
    [find("weigh"), { toolCalls: [{ name: "weigh", arguments: { what: "gate" } }] }, "40 kg"],
    { tools: TOOLS, ...ON },
  );
  const events = await readAll(await runs.start(ask("How heavy is the gate?")));
  assert.equal(events.at(-1)?.type, "done");
  assert.deepEqual(told(provider.requests), [
    ["look", "tool_search"],
    ["look", "tool_search", "weigh"],
    ["look", "tool_search", "weigh"],
  ]);
  assert.deepEqual(executor.calls.map(({ name }) => name), ["tool_search", "weigh"]);
  assert.deepEqual(
    executor.calls[0]?.allowed,
    ["look", "tool_search", "paint", "weigh"],
    "its rights are those of all",
  );
});

test("each request with tools says how many of them are stable, and the last turn without tools says nothing", async () => {
  const { runs, provider } = supervised([find("weigh"), { toolCalls: [{ name: "weigh" }] }, "40 kg"], {
    tools: TOOLS,
    agent: { toolSearch: "on", maxIterations: 2 },
  });
  const client = [{ name: "client", description: "The client's", parameters: undefined }];
  await readAll(await runs.start(ask("Weigh", { clientTools: client })));
  assert.deepEqual(provider.requests.map(({ tools, stableTools }) => [tools.length, stableTools]), [
    [3, 3],
    [4, 3],
    [0, undefined],
  ]);
  const plain = supervised(["Hi"]);
  await readAll(await plain.runs.start(ask("Hi", { agentTools: "none", clientTools: client })));
  assert.equal(plain.provider.requests[0]?.stableTools, undefined);
});

test("a deferred tool that was not found yet is called like any other, under the same policy", async () => {
  const denied: FakeTool = { name: "burn", access: "write", decision: "deny" };
  const { runs, provider } = supervised(
    [{ toolCalls: [{ name: "weigh", arguments: { what: "gate" } }] }, { toolCalls: [{ name: "burn" }] }, "Done"],
    { tools: [...TOOLS, denied], ...ON },
  );
  const events = await readAll(await runs.start(ask("Weigh it")));
  const ends = events.flatMap((event) => (event.type === "tool_end" ? [event] : []));
  assert.deepEqual(ends.map(({ tool, is_error }) => [tool, is_error]), [["weigh", false], ["burn", true]]);
  assert.match(ends[1]?.output ?? "", /the policy denies it/);
  assert.deepEqual(told(provider.requests).at(-1), ["look", "tool_search", "weigh", "burn"]);
});

test("an approval is asked for a deferred tool as for any other", async () => {
  const { runs } = supervised([find("paint"), { toolCalls: [{ name: "paint" }] }, "No"], {
    tools: [look, search, { name: "paint", access: "state", decision: "ask" }],
    ...ON,
  });
  const events = await readAll(await runs.start(ask("Paint it")));
  const end = events.findLast((event) => event.type === "tool_end");
  assert.equal(end?.type === "tool_end" && end.is_error, true, "nobody could answer");
});

test("tools of the client are declared in each turn, and one hides a deferred tool of its name", async () => {
  const { runs, provider, executor } = supervised([find("weigh"), { toolCalls: [{ name: "weigh" }] }], {
    tools: TOOLS,
    ...ON,
  });
  const client = [{ name: "weigh", description: "The client's", parameters: undefined }];
  const events = await readAll(await runs.start(ask("Go", { clientTools: client })));
  assert.deepEqual(told(provider.requests), [["look", "tool_search", "weigh"], ["look", "tool_search", "weigh"]]);
  assert.equal(only(events, "done").finish_reason, "tool_calls");
  assert.deepEqual(executor.calls.map(({ name }) => name), ["tool_search"]);
});

test("a sub-agent with part of the tools is told of them all when there are few", async () => {
  const { runs, provider } = supervised(["Done"], { tools: TOOLS });
  await readAll(await runs.start(ask("Go", { kind: "subagent", tools: ["look", "paint", "tool_search"] })));
  assert.deepEqual(told(provider.requests), [["look", "paint"]]);
});

describe("after a restart", () => {
  test("a run is told of the same tools in the same turns, whatever the setting is now", async () => {
    const store = createMemoryStore();
    const before = supervised([find("weigh"), { toolCalls: [{ name: "paint" }] }, { hang: "before" }], {
      store,
      tools: TOOLS,
      ...ON,
    });
    const { id } = await before.runs.start(ask("Go", { durable: true }));
    await until(() => before.provider.requests.length === 3);
    const pinned = (await new RunStore(store).input(id))?.tools ?? [];
    assert.deepEqual(pinned.map(({ name, deferred }) => [name, deferred]), [
      ["look", undefined],
      ["tool_search", undefined],
      ["paint", true],
      ["weigh", true],
    ]);
    const after = supervised(["Done"], { store, seed: 2, tools: TOOLS });
    await after.runs.recover();
    await until(async () => !isAtWork((await after.runs.get(id))?.status ?? "queued"));
    assert.equal((await after.runs.get(id))?.result, "Done");
    assert.deepEqual(after.provider.requests[0]?.tools, before.provider.requests[2]?.tools);
    assert.deepEqual(told(after.provider.requests), [["look", "tool_search", "weigh", "paint"]]);
  });

  test("a search that was interrupted is made again, and what it finds is declared", async () => {
    const store = createMemoryStore();
    const waiting = { ...search, run: hang };
    const before = supervised([find("weigh")], { store, tools: [look, waiting, { name: "weigh" }], ...ON });
    const { id } = await before.runs.start(ask("Go", { durable: true }));
    await until(() => before.executor.calls.length === 1);
    const after = supervised(["Done"], { store, seed: 2, tools: TOOLS });
    await after.runs.recover();
    await until(async () => !isAtWork((await after.runs.get(id))?.status ?? "queued"));
    assert.deepEqual(told(after.provider.requests), [["look", "tool_search", "weigh"]]);
  });

  test("nothing stays deferred when tool_search is gone", async () => {
    const store = createMemoryStore();
    const before = supervised([{ hang: "before" }], { store, tools: TOOLS, ...ON });
    const { id } = await before.runs.start(ask("Go", { durable: true }));
    await until(() => before.provider.requests.length === 1);
    const after = supervised(["Done"], { store, seed: 2, tools: TOOLS.filter(({ name }) => name !== "tool_search") });
    await after.runs.recover();
    await until(async () => !isAtWork((await after.runs.get(id))?.status ?? "queued"));
    assert.deepEqual(told(after.provider.requests), [["look", "paint", "weigh"]]);
  });
});
