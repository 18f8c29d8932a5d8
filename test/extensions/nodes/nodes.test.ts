import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { CLOSE, MAX_IN_FLIGHT } from "../../../lib/extensions/nodes/protocol.ts";
import { createNodeBench, ECHO, HELLO } from "../../support/node_bench.ts";

const TOKEN = "right-token-0123456789";
const sent = (frames: readonly { type: string }[], type: string) => frames.filter((frame) => frame.type === type);

test("admit() wants the token first, then an id that is allowed", () => {
  const { nodes } = createNodeBench();
  const admit = (token: string | undefined, id: string | undefined) => {
    const admission = nodes.admit({ token, id, address: "192.0.2.7" });
    return admission.ok ? admission.id : admission.code;
  };
  assert.equal(admit(TOKEN, "pi"), "pi");
  assert.equal(admit(undefined, "pi"), "auth_required");
  assert.equal(admit("wrong", "pi"), "auth_invalid");
  assert.equal(admit(TOKEN.slice(0, -1), "pi"), "auth_invalid");
  assert.equal(admit("wrong", "unknown"), "auth_invalid", "without the token nothing is said about ids");
  assert.equal(admit(TOKEN, undefined), "invalid_request");
  assert.equal(admit(TOKEN, "../pi"), "invalid_request");
  assert.equal(admit(TOKEN, "unknown"), "insufficient_scope");
});

test("admit() lets nobody in while there is no token, whatever is sent", () => {
  const { nodes } = createNodeBench({ authToken: "" });
  for (const token of ["", "x", undefined]) {
    assert.equal(nodes.admit({ token, id: "pi", address: undefined }).ok, false);
  }
});

test("admit() refuses an address that comes too often, for as long as it says", async () => {
  const { nodes, clock } = createNodeBench();
  const admit = (address: string) => nodes.admit({ token: "guess", id: "pi", address });
  for (let tries = 0; tries < 30; tries++) assert.equal(admit("192.0.2.1").ok, false);
  const refused = admit("192.0.2.1");
  assert.ok(!refused.ok && refused.code === "rate_limited" && (refused.retryAfterSeconds ?? 0) > 0);
  assert.ok(!admit("192.0.2.2").ok);
  await clock.advance((refused.retryAfterSeconds ?? 0) * 1000);
  const later = admit("192.0.2.1");
  assert.ok(!later.ok && later.code === "auth_invalid");
});

test("admit() keeps no node out for the guesses of others at its address, and limits each node by itself", () => {
  const { nodes } = createNodeBench();
  const admit = (token: string, id: string) => {
    const admission = nodes.admit({ token, id, address: "192.0.2.1" });
    return admission.ok ? admission.id : admission.code;
  };
  for (let tries = 0; tries < 40; tries++) admit("guess", "pi");
  assert.equal(admit("guess", "pi"), "rate_limited");
  assert.equal(admit(TOKEN, "unknown"), "rate_limited");
  for (let tries = 0; tries < 30; tries++) assert.equal(admit(TOKEN, "pi"), "pi");
  assert.equal(admit(TOKEN, "pi"), "rate_limited");
});

test("a tool of a node is registered under its node, is network without the operator's word, and off while it is away", async () => {
  const words = new Map<string, "read">();
  const bench = createNodeBench({ accessOf: (tool) => words.get(tool) });
  assert.deepEqual(bench.nodes.tools(), []);
  const node = bench.connect();
  const tool = bench.tool("node__pi__echo");
  assert.deepEqual([tool.source, tool.access, tool.description], [
    "node",
    "network",
    `On the node "pi": Says it again`,
  ]);
  words.set("node__pi__echo", "read");
  assert.deepEqual([tool.access, tool.prepare('{"text":"a"}').access], ["read", "read"]);
  const isOn = () => typeof tool.enabled === "function" && tool.enabled(undefined as never);
  assert.equal(isOn(), true);
  node.link.closed();
  assert.equal(isOn(), false);
  await assert.rejects(bench.call("node__pi__echo", { text: "a" }), { code: "node_lost", message: /nothing was sent/ });
});

test("what the schema says plainly is checked before anybody is asked about the call", () => {
  const bench = createNodeBench();
  bench.connect();
  const { prepare } = bench.tool("node__pi__echo");
  assert.deepEqual(prepare("plain text").input, { text: "plain text" });
  for (const input of ["{}", '{"text":"a","more":1}', '{"__proto__":1}', "x".repeat(1_100_000)]) {
    assert.throws(() => prepare(input), { name: "ToolError" });
  }
});

test("a call goes out with the ids of the gateway's records, and its result comes back", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  const calling = bench.call("node__pi__echo", { text: "hi" });
  const [frame] = sent(node.frames, "invoke");
  assert.deepEqual(frame, {
    type: "invoke",
    id: "1",
    tool: "echo",
    input: { text: "hi" },
    run_id: "run_1",
    call_id: "call_1",
  });
  assert.equal(bench.nodes.get("pi")?.calls_in_flight, 1);
  node.say({ type: "result", id: "1", output: "hi", is_error: false, ran: true, data: { n: 1 } });
  assert.deepEqual(await calling, { output: "hi", isError: false, data: { n: 1 } });
});

test("a link that breaks ends its calls with an unknown outcome, and nothing is sent again to the next link", async () => {
  const bench = createNodeBench();
  const first = bench.connect();
  const calling = bench.call("node__pi__echo", { text: "hi" });
  first.link.closed();
  await assert.rejects(calling, { code: "node_lost", message: /whether it took effect is unknown/ });
  const second = bench.connect();
  assert.deepEqual(sent(second.frames, "invoke"), []);
});

test("a node that falls silent is lost within the time limit, though its connection stays", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  const calling = assert.rejects(bench.call("node__pi__echo", { text: "hi" }), { code: "node_lost" });
  await bench.clock.advance(30_000);
  assert.equal(sent(node.frames, "ping").length, 1);
  await bench.clock.advance(30_000);
  assert.equal(node.terminated, true);
  await calling;
  assert.equal(bench.nodes.get("pi")?.connected, false);
});

test("pongs keep a link", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  for (let beat = 1; beat <= 10; beat++) {
    await bench.clock.advance(30_000);
    node.say({ type: "pong", n: beat });
  }
  assert.equal(bench.nodes.get("pi")?.connected, true);
});

test("a call that is stopped is taken back on the node; its late result is let pass once", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  const cases = [["timeout", "node_timeout"], ["cancelled", undefined]] as const;
  for (const [index, [reason, code]] of cases.entries()) {
    const controller = new AbortController();
    const calling = bench.call("node__pi__echo", { text: "hi" }, controller.signal);
    controller.abort(new CancelError(reason));
    await assert.rejects(calling, code === undefined ? { name: "CancelError", reason } : { code });
    const id = String(index + 1);
    assert.deepEqual(sent(node.frames, "cancel").at(-1), { type: "cancel", id });
    const late = { type: "result", id, output: "late", is_error: false, ran: true };
    node.say(late);
    assert.equal(node.code(), undefined);
    if (index === 1) {
      node.say(late);
      assert.equal(node.code(), CLOSE.protocol);
    }
  }
});

test("a node that leaves too many given-up calls unanswered is cut off, and the call that was one too many ends", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  for (let given = 0; given <= 1024; given++) {
    assert.equal(node.code(), undefined);
    const controller = new AbortController();
    const calling = bench.call("node__pi__echo", { text: "hi" }, controller.signal);
    controller.abort(new CancelError("cancelled"));
    await assert.rejects(calling, { name: "CancelError" });
  }
  assert.equal(node.code(), CLOSE.protocol);
});

test("more calls than a node may have at once are refused without being sent", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  const controller = new AbortController();
  const calls = Array.from(
    { length: MAX_IN_FLIGHT },
    () => bench.call("node__pi__echo", { text: "x" }, controller.signal),
  );
  await assert.rejects(bench.call("node__pi__echo", { text: "x" }), { code: "node_overloaded" });
  assert.equal(sent(node.frames, "invoke").length, MAX_IN_FLIGHT);
  controller.abort(new CancelError("cancelled"));
  await Promise.allSettled(calls);
  assert.equal(bench.nodes.get("pi")?.calls_in_flight, 0);
});

test("the newest connection of an id takes its place; the older one is told why and loses its calls", async () => {
  const bench = createNodeBench();
  const first = bench.connect();
  const calling = bench.call("node__pi__echo", { text: "hi" });
  const silent = bench.connect({ hello: false });
  assert.equal(first.code(), undefined, "a connection that has not said hello replaces nobody");
  const second = bench.connect();
  assert.equal(first.code(), CLOSE.replaced);
  await assert.rejects(calling, { code: "node_lost" });
  first.link.closed();
  first.say({ type: "pong", n: 0 });
  assert.equal(bench.nodes.get("pi")?.connected, true);
  const again = bench.call("node__pi__echo", { text: "hi" });
  second.say({ type: "result", id: "1", output: "from the second", is_error: false, ran: true });
  assert.equal((await again).output, "from the second");
  await bench.clock.advance(10_000);
  assert.equal(silent.code(), CLOSE.protocol, "and one that never says hello is closed");
  const actions = bench.audit.events.flatMap((event) => (event.type === "node" ? [event.action] : []));
  assert.deepEqual(actions, ["connected", "disconnected", "connected"], "and is no end of the link that holds");
});

const ofKey = (key: string) => ({ ...ECHO.input_schema, properties: { [key]: 1 } });

test("a hostile node is cut off: wrong ids, replies nobody asked for, wrong types, floods, other versions", async (t) => {
  const attacks: Record<string, readonly unknown[]> = {
    "a result nobody asked for": [{ type: "result", id: "77", output: "x", is_error: false, ran: true }],
    "tools nobody asked for": [{ type: "tools", id: "1", tools: [ECHO] }],
    "a second hello": [HELLO],
    "a pong nobody asked for": [{ type: "pong", n: 99 }],
    "no JSON": ["hello"],
    "JSON of no type": ["[]"],
    "a frame of the gateway": [{ type: "invoke", id: "1", tool: "shell", input: {}, run_id: "r", call_id: "c" }],
    "a result without its fields": [{ type: "result", id: "1" }],
    "a key in letters of three bytes": [{ ...HELLO, tools: [{ ...ECHO, input_schema: ofKey("\u65e5".repeat(64)) }] }],
    "an id without end": [{ type: "result", id: "1".repeat(1000), output: "x", is_error: false, ran: true }],
    "a frame without end": [`"${"x".repeat(2_097_152)}"`],
  };
  for (const [what, frames] of Object.entries(attacks)) {
    await t.test(what, async () => {
      const bench = createNodeBench();
      const node = bench.connect();
      const calling = assert.rejects(bench.call("node__pi__echo", { text: "a secret of the input" }), {
        code: "node_lost",
      });
      if (what.startsWith("tools")) node.say({ type: "tools", id: "1", tools: [ECHO] });
      else for (const frame of frames) node.say(frame);
      assert.ok(node.closedWith !== undefined && node.closedWith.code >= 1003, what);
      assert.ok(Buffer.byteLength(node.closedWith.reason) <= 123);
      await calling;
      assert.equal(bench.nodes.get("pi")?.connected, false);
    });
  }
  await t.test("before its hello", () => {
    const node = createNodeBench().connect({ hello: false });
    node.say({ type: "pong", n: 0 });
    assert.equal(node.code(), CLOSE.protocol);
  });
  await t.test("another version", () => {
    const bench = createNodeBench();
    assert.equal(bench.connect({ hello: { v: 2 } }).code(), CLOSE.version);
    assert.equal(bench.nodes.get("pi")?.connected, false);
  });
  await t.test("a binary frame", () => {
    const node = createNodeBench().connect();
    node.link.binary();
    assert.equal(node.code(), 1003);
  });
  await t.test("it does not read", async () => {
    const bench = createNodeBench();
    const node = bench.connect();
    node.stuck = true;
    await assert.rejects(bench.call("node__pi__echo", { text: "hi" }), { code: "node_lost" });
    assert.equal(node.code(), 1013);
  });
});

test("describe() asks again; what a call was prepared for must still be there when it is made", async () => {
  const bench = createNodeBench();
  const node = bench.connect();
  const prepared = bench.tool("node__pi__echo").prepare('{"text":"a"}');
  const before = bench.nodes.tools();
  const describing = bench.nodes.describe("pi", new AbortController().signal);
  const other = { ...ECHO, description: "Deletes everything" };
  node.say({ type: "tools", id: "1", tools: [other] });
  assert.equal((await describing)[0]?.description, "Deletes everything");
  assert.notEqual(bench.nodes.tools(), before);
  await assert.rejects(prepared.run({ runId: "r", callId: "c", signal: new AbortController().signal } as never), {
    code: "node_changed",
  });
  const late = assert.rejects(bench.nodes.describe("pi", new AbortController().signal), { code: "node_timeout" });
  await bench.clock.advance(10_000);
  await late;
  await assert.rejects(bench.nodes.describe("gpu", new AbortController().signal), { code: "node_lost" });
});

test("a node that comes back with the same tools leaves the registry as it is", () => {
  const bench = createNodeBench();
  const node = bench.connect();
  const before = bench.nodes.tools();
  node.link.closed();
  bench.connect();
  assert.equal(bench.nodes.tools(), before);
});

test("links are in the audit, with their beginning, their end and why", async () => {
  const bench = createNodeBench();
  bench.connect();
  bench.nodes.close();
  await bench.clock.advance(0);
  const events = bench.audit.events.filter(({ type }) => type === "node");
  assert.deepEqual(events, [
    { type: "node", action: "connected", node_id: "pi", address: "192.0.2.7", reason: null },
    {
      type: "node",
      action: "disconnected",
      node_id: "pi",
      address: "192.0.2.7",
      reason: "The gateway is shutting down",
    },
  ]);
});
