import assert from "node:assert/strict";
import { test } from "node:test";
import { chatSocketRoute } from "../../../handlers/routes/chat.ts";
import { SocketSession } from "../../../handlers/websocket/socket_session.ts";
import { createSockets } from "../../../handlers/websocket/sockets.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { Scope } from "../../../lib/base/records/caller.ts";
import { createFakePeer, driveHooks } from "../../support/fake_peer.ts";
import { answer, createScriptedRuns, type ScriptStep } from "../../support/scripted_runs.ts";
import { createTestRouter } from "../../support/test_router.ts";
import { createFakeServices } from "../../support/fake_services.ts";

const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
const MIB = 1024 * 1024;

interface SocketOptions {
  readonly scopes?: readonly Scope[];
  readonly script?: readonly ScriptStep[];
  readonly buffers?: boolean;
}

function partsOf(options: SocketOptions) {
  const services = createFakeServices();
  const { clock } = services;
  const runs = createScriptedRuns({
    clock,
    script: () => options.script ?? answer("Hello there"),
    conversations: ["c1"],
  });
  const agent = { runs, providers: undefined as never };
  return { clock, runs, services, parts: { ...services, agent, kit: services, sockets: createSockets(services) } };
}

const accept = (parts: Parameters<typeof chatSocketRoute.accept>[0], scopes: readonly Scope[] = ["chat"]) =>
  chatSocketRoute.accept(parts, {
    identity: { tokenId: "tok_1", scopes },
    requestId: "req_test",
    head: new Request("http://gateway.test/ws/chat"),
    address: undefined,
    query: { ticket: undefined },
  });

function open(options: SocketOptions = {}) {
  const { clock, runs, parts } = partsOf(options);
  const peer = createFakePeer({ buffers: options.buffers ?? false });
  return { clock, runs, peer, parts, ...driveHooks(accept(parts, options.scopes), peer) };
}

test("plain text is answered by deltas and done, with exactly these fields", async () => {
  const { say, clock, peer, runs } = open();
  say("hi");
  await clock.advance(0);
  assert.deepEqual(peer.frames(), [{ type: "delta", delta: "Hello " }, { type: "delta", delta: "there" }, {
    type: "done",
  }]);
  const request = runs.started[0]?.request;
  assert.deepEqual(request?.messages, [{ role: "user", content: "hi" }]);
  assert.equal(request?.durable, false);
  assert.deepEqual(request?.by.caller, { via: "websocket", tokenId: "tok_1", scopes: ["chat"] });
});

test("a failure is an error frame with message and code, and the socket stays", async () => {
  const { say, clock, peer } = open({
    script: [[{ type: "text_delta", delta: "x" }], [{ type: "error", code: "provider_error", message: "Broke" }]],
  });
  say("hi");
  say("again");
  await clock.advance(0);
  assert.deepEqual(peer.frames()[1], { type: "error", message: "Broke", code: "provider_error" });
  assert.equal(peer.sent.length, 4);
  assert.equal(peer.code(), undefined);
});

test("an upstream that fails before the first delta, a bug and an end in silence are error frames", async () => {
  const cases: readonly [ScriptStep, string][] = [
    [{ throws: new ProviderError("model_not_found", "No such model", { provider: "p" }) }, "model_not_found"],
    [{ throws: new Error("secret") }, "internal_error"],
    [[{ type: "text_delta", delta: "x" }], "internal_error"],
  ];
  for (const [step, code] of cases) {
    const { say, clock, peer } = open({ script: [step] });
    say("hi");
    await clock.advance(0);
    const last = peer.frames().at(-1);
    assert.equal(last.type, "error");
    assert.equal(last.code, code);
    assert.doesNotMatch(last.message, /secret/);
  }
});

test("after hello {events: true} every event comes with its run, seq and time; hello {events: false} ends it", async () => {
  const { say, clock, peer } = open();
  say({ type: "hello", events: true });
  say("hi");
  await clock.advance(0);
  assert.deepEqual(peer.frames().map(({ type, seq, run_id }) => [type, seq, run_id]), [
    ["turn_start", 1, "run_1"],
    ["text_delta", 2, "run_1"],
    ["text_delta", 3, "run_1"],
    ["done", 4, "run_1"],
  ]);
  assert.deepEqual(peer.frames()[3].usage, USAGE);
  say({ type: "hello", events: false });
  say("hi");
  await clock.advance(0);
  assert.deepEqual(peer.frames().at(-1), { type: "done" });
});

test("frames of a reply that begins at another gateway say when they do not come as they happen", async () => {
  const { clock, runs, parts } = partsOf({});
  const start: typeof runs.start = async (request) => {
    const handle = await runs.start(request);
    return {
      ...handle,
      async *events(onPace) {
        onPace?.({ live: false, why: "there is no link" });
        for await (const batch of handle.events()) {
          yield batch;
          onPace?.({ live: true });
        }
      },
    };
  };
  const peer = createFakePeer();
  const { say } = driveHooks(accept({ ...parts, agent: { ...parts.agent, runs: { ...runs, start } } }), peer);
  say({ type: "hello", events: true });
  say("hi");
  await clock.advance(0);
  assert.deepEqual(peer.frames().map(({ live }) => live), [false, undefined, undefined, undefined]);
});

test("what is a message: JSON with message, content or text, the message command, and any other text word for word", async () => {
  const said: readonly [unknown, string][] = [
    ["plain", "plain"],
    [' {"message": "a"}', "a"],
    [{ content: "b" }, "b"],
    [{ type: null, text: "c" }, "c"],
    [{ type: "message", text: "d" }, "d"],
    ['{"type":"wave","text":"e"}', '{"type":"wave","text":"e"}'],
    ['{"type":"constructor"}', '{"type":"constructor"}'],
    ['{"a":1}', '{"a":1}'],
    ['{"message":5}', '{"message":5}'],
    ["{broken", "{broken"],
    ['["x"]', '["x"]'],
  ];
  for (const [value, text] of said) {
    const { say, clock, runs } = open();
    say(value);
    await clock.advance(0);
    assert.deepEqual(runs.started[0]?.request.messages, [{ role: "user", content: text }]);
  }
});

test("a known type with bad fields, an empty frame and a binary frame get an error frame, and the socket stays", async () => {
  const bad = [
    "",
    { type: "message" },
    { type: "message", text: 5 },
    { type: "message", text: "x", conversation_id: 5 },
    { type: "resume", run_id: "r" },
    {
      type: "resume",
      run_id: "r",
      after: -1,
    },
    { type: "approve" },
    { type: "hello", events: "yes" },
  ];
  const { say, sendBinary, clock, peer, runs } = open();
  for (const value of bad) say(value);
  for (const data of [new Uint8Array(3), new ArrayBuffer(3), new Blob(["x"])]) sendBinary(data);
  await clock.advance(0);
  assert.deepEqual(
    peer.frames().map(({ type, code }) => [type, code]),
    Array(bad.length + 3).fill(["error", "invalid_request"]),
  );
  assert.deepEqual(Object.keys(peer.frames()[0]).sort(), ["code", "message", "type"]);
  assert.equal(peer.code(), undefined);
  assert.equal(runs.started.length, 0);
});

test("a connection is one conversation unless a message names another", async () => {
  const { say, clock, runs } = open();
  say("one");
  say({ type: "message", text: "two", conversation_id: "c1", model: "test/x" });
  say("three");
  await clock.advance(0);
  assert.deepEqual(runs.started.map((run) => run.request.conversationId), ["new", "c1", "conv_2"]);
  assert.equal(runs.started[1]?.request.model, "test/x");
});

test("messages are answered one at a time, eight wait, the ninth is refused", async () => {
  const { say, clock, peer, runs } = open({ script: [{ waitMs: 1000 }, ...answer("x")] });
  for (let i = 0; i < 10; i++) say(`m${i}`);
  await clock.advance(0);
  assert.equal(runs.active(), 1);
  assert.deepEqual(peer.frames().map(({ type, code }) => [type, code]), [["error", "overloaded"]]);
  await clock.advance(20_000);
  assert.deepEqual(runs.started.map((run) => run.request.messages[0]?.content), [
    "m0",
    "m1",
    "m2",
    "m3",
    "m4",
    "m5",
    "m6",
    "m7",
    "m8",
  ]);
  assert.equal(peer.frames().filter(({ type }) => type === "done").length, 9);
});

test("cancel stops the answer at work, says so, and goes on with the next; without one it does nothing", async () => {
  const { say, clock, peer, runs } = open({ script: [[{ type: "text_delta", delta: "x" }], "hang"] });
  say({ type: "cancel" });
  say("one");
  say("two");
  await clock.advance(0);
  say({ type: "cancel" });
  await clock.advance(0);
  assert.deepEqual(runs.started[0]?.cancelled, ["cancelled"]);
  assert.deepEqual(peer.frames().map(({ type }) => type), ["delta", "error", "delta"]);
  assert.equal(peer.frames()[1].code, "cancelled");
});

test("a cancel that comes while the run is being started stops it too", async () => {
  const { say, clock, runs } = open({ script: ["hang"] });
  say("one");
  say({ type: "cancel" });
  await clock.advance(0);
  assert.deepEqual(runs.started[0]?.cancelled, ["cancelled"]);
});

test("ping is answered", () => {
  const { say, peer } = open();
  say({ type: "ping" });
  assert.deepEqual(peer.frames(), [{ type: "pong" }]);
});

test("approvals and runs that are not there are not_found, approving without the scope is refused", async () => {
  const { say, peer, clock } = open({ scopes: ["chat", "approve"] });
  say({ type: "approve", approval_id: "a1" });
  say({ type: "deny", approval_id: "a1", remember: "always" });
  say({ type: "resume", run_id: "run_9", after: 3 });
  await clock.advance(0);
  assert.deepEqual(peer.frames().map(({ code }) => code), ["not_found", "not_found", "not_found"]);
  const chat = open();
  chat.say({ type: "approve", approval_id: "a1" });
  assert.equal(chat.peer.frames()[0].code, "insufficient_scope");
});

test("a run asks its reader who sees events and may approve, and nobody else", async () => {
  const seen = async (scopes: readonly Scope[], hello: unknown) => {
    const { say, clock, runs } = open({ scopes });
    if (hello !== undefined) say(hello);
    say("hi");
    await clock.advance(0);
    return runs.started[0]?.request.reader?.canApprove;
  };
  const events = { type: "hello", events: true };
  assert.equal(await seen(["chat", "approve"], events), true);
  assert.equal(await seen(["admin"], events), true);
  assert.equal(await seen(["chat"], events), false);
  assert.equal(await seen(["chat", "approve"], undefined), false);
  assert.equal(await seen(["chat", "approve"], { type: "hello" }), false);
});

test("a client that leaves cancels its run, drops its queue and leaves no timer behind", async () => {
  const { say, leave, clock, runs, peer, parts } = open({ script: [[{ type: "text_delta", delta: "x" }], "hang"] });
  say("one");
  say("two");
  await clock.advance(0);
  leave();
  leave();
  await clock.advance(0);
  assert.deepEqual(runs.started[0]?.cancelled, ["client_gone"]);
  assert.equal(runs.started.length, 1);
  assert.equal(runs.active(), 0);
  assert.equal(peer.sent.length, 1);
  assert.equal(clock.pending(), 0);
  assert.equal(parts.sockets.count(), 0);
});

test("a frame over the limit closes with 1009, counted in bytes", () => {
  const text = open();
  text.say("ü".repeat(MIB));
  assert.equal(text.peer.code(), undefined);
  text.say("ü".repeat(MIB + 1));
  assert.equal(text.peer.code(), 1009);
  const binary = open();
  binary.sendBinary(new Uint8Array(2 * MIB + 1));
  assert.equal(binary.peer.code(), 1009);
});

test("a socket on which nothing happens is closed after 300 s, one with a run at work is not", async () => {
  const idle = open();
  await idle.clock.advance(299_000);
  assert.equal(idle.peer.code(), undefined);
  idle.say({ type: "ping" });
  await idle.clock.advance(299_000);
  assert.equal(idle.peer.code(), undefined);
  await idle.clock.advance(1_000);
  assert.equal(idle.peer.code(), 1000);
  const busy = open({ script: [{ waitMs: 400_000 }, ...answer("x")] });
  busy.say("hi");
  await busy.clock.advance(399_000);
  assert.equal(busy.peer.code(), undefined);
  await busy.clock.advance(300_000);
  assert.equal(busy.peer.code(), undefined);
  await busy.clock.advance(2_000);
  assert.equal(busy.peer.code(), 1000);
});

test("a ping goes out every 30 s; 60 s without a pong end the connection", async () => {
  const { clock, parts } = partsOf({});
  const peer = createFakePeer();
  const caller = { via: "websocket", tokenId: null, scopes: [] } as const;
  const session = new SocketSession(peer, { parts, caller, requestId: "r", canPing: true });
  for (let i = 0; i < 3; i++) {
    await clock.advance(30_000);
    session.pong();
  }
  assert.equal(peer.pings, 3);
  await clock.advance(89_000);
  assert.equal(peer.terminated, false);
  await clock.advance(1_000);
  assert.equal(peer.terminated, true);
  assert.equal(clock.pending(), 0);
});

test("where the runtime has no ping none is tried", async () => {
  const { clock, parts } = partsOf({});
  const peer = createFakePeer();
  const caller = { via: "websocket", tokenId: null, scopes: [] } as const;
  new SocketSession(peer, { parts, caller, requestId: "r", canPing: false });
  await clock.advance(200_000);
  assert.equal(peer.pings, 0);
  assert.equal(peer.terminated, false);
});

const big = (bytes: number): ScriptStep => [{ type: "text_delta", delta: "x".repeat(bytes) }];

test("a reader more than 1 MiB behind pauses the run until it has caught up", async () => {
  const { say, drain, clock, peer, runs } = open({
    script: [big(MIB), big(10), big(10), ...answer("end")],
    buffers: true,
  });
  say("hi");
  await clock.advance(1_000);
  assert.equal(runs.started[0]?.arraysRead, 1);
  peer.bufferedAmount = 0;
  drain();
  await clock.advance(0);
  assert.equal(runs.started[0]?.over, true);
  assert.deepEqual(peer.frames().at(-1), { type: "done" });
  assert.equal(peer.code(), undefined);
});

test("without a drain event the pause ends as well", async () => {
  const { say, clock, peer } = open({ script: [big(MIB), ...answer("end")], buffers: true });
  say("hi");
  await clock.advance(1_000);
  peer.bufferedAmount = 0;
  await clock.advance(100);
  assert.deepEqual(peer.frames().at(-1), { type: "done" });
});

test("a reader more than 4 MiB behind is closed with 1013 and its resume position", async () => {
  const { say, clock, peer, runs } = open({
    script: [big(10), [{ type: "text_delta", delta: "x".repeat(5 * MIB) }, { type: "text_delta", delta: "y" }], "hang"],
    buffers: true,
  });
  say("hi");
  await clock.advance(0);
  assert.equal(peer.code(), 1013);
  assert.match(peer.closedWith?.reason ?? "", /run_id=run_1 after=2$/);
  assert.ok(Buffer.byteLength(peer.closedWith?.reason ?? "") <= 123);
  assert.equal(peer.sent.length, 2);
  assert.equal(runs.active(), 0);
});

test("a paused reader that takes nothing for the idle limit is given up", async () => {
  const { say, clock, peer, runs } = open({ script: [big(MIB), ...answer("end")], buffers: true });
  say("hi");
  await clock.advance(299_000);
  assert.equal(peer.code(), undefined);
  await clock.advance(2_000);
  assert.equal(peer.code(), 1013);
  assert.equal(runs.active(), 0);
});

test("a client that floods bad frames without reading is closed, not buffered for", () => {
  const { say, peer } = open({ buffers: true });
  peer.bufferedAmount = 4 * MIB;
  say({ type: "message" });
  assert.equal(peer.code(), 1013);
});

test("a peer that pings and never reads its pongs is given up", () => {
  const { peer, ping } = open();
  peer.bufferedAmount = 4 * MIB;
  ping();
  assert.equal(peer.code(), undefined);
  peer.bufferedAmount = 4 * MIB + 1;
  ping();
  assert.equal(peer.code(), 1013);
});

test("a socket that closes under a write ends the session quietly", async () => {
  const { say, clock, peer, runs } = open();
  peer.closedWith = { code: 1006, reason: "" };
  say("hi");
  await clock.advance(0);
  assert.equal(runs.active(), 0);
});

test("a shutdown closes idle sockets with 1001 at once, busy ones after their answer, the rest at the end of the grace", async () => {
  const { clock, runs, parts } = partsOf({ script: [{ waitMs: 1000 }, ...answer("x")] });
  const peers = [createFakePeer(), createFakePeer(), createFakePeer()] as const;
  const [, busy, slow] = peers.map((peer) => driveHooks(accept(parts), peer));
  const { sockets } = parts;
  busy?.say("hi");
  await clock.advance(500);
  slow?.say("hi");
  await clock.advance(0);
  sockets.closeIdle();
  assert.deepEqual(peers.map((peer) => peer.code()), [1001, undefined, undefined]);
  await clock.advance(500);
  assert.deepEqual(peers[1].frames().map(({ type }) => type), ["delta", "done"]);
  assert.deepEqual(peers.map((peer) => peer.code()), [1001, 1001, undefined]);
  sockets.closeAll();
  await clock.advance(0);
  assert.equal(peers[2].code(), 1001);
  assert.equal(runs.active(), 0);
  assert.equal(sockets.count(), 0);
});

test("the handshake is refused without an agent and during a shutdown; plain HTTP is 426", async () => {
  const { parts, services } = partsOf({});
  assert.throws(() => accept({ ...parts, agent: undefined }), { code: "agent_unavailable" });
  services.enter("draining");
  assert.throws(() => accept(parts), { code: "shutting_down" });
  const plain = await createTestRouter().send("GET", "/ws/chat", { token: "token_chat" });
  assert.equal(plain.status, 426);
});
