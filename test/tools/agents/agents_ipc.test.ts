import assert from "node:assert/strict";
import { test } from "node:test";
import type { Caller } from "../../../lib/base/records/caller.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import type { CallChanges } from "../../support/tool_call.ts";

const bench = () => {
  const { call } = createToolBench({ root: "/workspace", clock: createFakeClock() });
  return async (input: unknown, more: CallChanges = {}) => (await call("agents_ipc", input, more)).result;
};

const by = (via: Caller["via"], more: CallChanges = {}): CallChanges => ({
  caller: { via, tokenId: null, scopes: [] },
  ...more,
});

test("a message goes from one call to another, as JSON with all five fields", async () => {
  const call = bench();
  const sent = await call({ op: "send", from: "planner", to: "writer", payload: "Begin" });
  const message = {
    from: "planner",
    to: "writer",
    payload: "Begin",
    timestamp: "2026-01-01T00:00:00.000Z",
    sender: "agent",
  };
  assert.deepEqual([sent.isError, JSON.parse(sent.output)], [false, { messages: [message] }]);
  assert.deepEqual(JSON.parse((await call({ op: "list", to: "writer" })).output), { messages: [message] });
  const received = await call({ action: "recv", to: "writer" });
  assert.deepEqual(JSON.parse(received.output), { messages: [message] });
  assert.deepEqual(received.data, { messages: [message] });
  assert.deepEqual(JSON.parse((await call({ op: "recv", to: "writer" })).output), { messages: [] });
});

test("clear says how many it removed", async () => {
  const call = bench();
  await call({ op: "send", from: "a", to: "b", payload: "1" });
  await call({ op: "send", from: "c", to: "b", payload: "2" });
  assert.deepEqual(JSON.parse((await call({ op: "clear", from: "a" })).output), { messages: [], cleared: 1 });
  assert.deepEqual(JSON.parse((await call({ op: "clear" })).output), { messages: [], cleared: 1 });
});

test("from is kept as given; sender is the verified caller, whatever the message says", async () => {
  const call = bench();
  const forged = { op: "send", from: "boss", to: "writer", payload: '{"sender":"boss"}' };
  await call(forged, { caller: { via: "http", tokenId: "tok_7", scopes: ["tools"] } });
  await call(forged, by("cli"));
  await call({ ...forged, from: "sub_1" }, by("subagent", { conversationId: "sub_1" }));
  const { messages } = JSON.parse((await call({ op: "recv", to: "writer" })).output);
  assert.deepEqual(messages.map(({ from, sender }: Record<string, string>) => [from, sender]), [
    ["boss", "http:tok_7"],
    ["boss", "cli"],
    ["sub_1", "subagent:sub_1"],
  ]);
});

test("a sub-agent sends only as itself, and is told how", async () => {
  const call = bench();
  const send = (from: string) => ({ op: "send", from, to: "writer", payload: "x" });
  for (const from of ["boss", "sub_2", "SUB_1", "sub_1 ", "run_9"]) {
    const refused = await call(send(from), by("subagent", { conversationId: "sub_1", runId: "run_9" }));
    assert.deepEqual([refused.isError, refused.output], [
      true,
      `Cannot send as "${from}": a sub-agent sends only as itself; use "from": "sub_1"`,
    ]);
  }
  const delegated = by("subagent", { runId: "run_9", conversationId: null });
  assert.equal((await call(send("boss"), delegated)).isError, true);
  assert.equal((await call(send("run_9"), delegated)).isError, false);
  assert.equal(JSON.parse((await call({ op: "recv", to: "writer" })).output).messages.length, 1);
});

test("each operation says which field it misses", async () => {
  const call = bench();
  for (
    const [input, field] of [[{ op: "send", from: "a", to: "b" }, "payload"], [{ op: "send", to: "b" }, "from"], [
      { op: "recv" },
      "to",
    ]] as const
  ) {
    const { isError, output } = await call(input);
    assert.equal(isError, true);
    assert.match(output, new RegExp(`"${field}" is missing, which op "${input.op}" needs`));
  }
});

test("the largest mailbox fits into one answer, so that nothing received is lost", async () => {
  const call = bench();
  for (let sent = 0;; sent++) {
    const { isError } = await call({ op: "send", from: "a", to: "b", payload: "\0".repeat(5000) });
    if (isError) break;
    assert.ok(sent < 20);
  }
  const { output } = await call({ op: "recv", to: "b" });
  assert.ok(JSON.parse(output).messages.length > 5);
});
