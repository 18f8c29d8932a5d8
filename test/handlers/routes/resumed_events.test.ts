import assert from "node:assert/strict";
import { test } from "node:test";
import { chatSocketRoute } from "../../../handlers/routes/chat.ts";
import { runEvents } from "../../../handlers/handlers.ts";
import { createSockets } from "../../../handlers/websocket/sockets.ts";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { createFakePeer, driveHooks } from "../../support/fake_peer.ts";
import { readSse } from "../../support/sse.ts";
import { ask, supervised, textIn } from "../../support/supervised.ts";
import { createFakeServices } from "../../support/fake_services.ts";

const MIB = 1024 * 1024;

/** Two turns with a tool call between, and text that is cut in the middle of characters and lines. */
const SCRIPT: Script = [
  {
    reasoning: ["think", "ing"],
    text: ["Grüße, ", "\u{1f33b}\ndata: x\n\n", "é", "\u0301"],
    toolCalls: [{ name: "look", arguments: { at: "b\u{1f33b}d" } }],
    chunkDelayMs: 10,
  },
  { text: ["second ", "turn\r\n", "\u2028", "end"], chunkDelayMs: 10 },
];

function setUp(script: Script = SCRIPT) {
  const services = createFakeServices();
  const { clock } = services;
  const made = supervised(script, { clock, tools: [{ name: "look" }] });
  const { runs } = made;
  const start = async () => (await runs.start(ask("Hi", { durable: true }))).id;
  const identity = { tokenId: "tok_1", scopes: ["chat", "runs"] } as const;
  const parts = { agent: { runs, providers: undefined as never }, kit: services, sockets: createSockets(services) };
  const followRun = runEvents({ ...parts, storedRuns: {}, identify: () => ({ identity }) });

  /** Reads the event stream until `isEnough`, then cuts the connection. */
  async function read(id: string, after: number, isEnough: (events: readonly AgentEvent[]) => boolean) {
    const headers = { "last-event-id": String(after) };
    const reply = await followRun(new Request(`http://gateway.test/v1/runs/${id}/events`, { headers }));
    const reader = reply.body?.getReader();
    const decoder = new TextDecoder();
    let text = "";
    const events = () => readSse(text).data.map((data) => JSON.parse(data) as AgentEvent);
    while (reader !== undefined && !isEnough(events())) {
      const step = reader.read();
      await clock.advance(5);
      const { done, value } = await step;
      if (done) break;
      text += decoder.decode(value, { stream: true });
    }
    await reader?.cancel();
    return events();
  }

  /** A socket that has said hello. */
  function open({ buffers = false } = {}) {
    const peer = createFakePeer({ buffers });
    const head = new Request("http://gateway.test/ws/chat");
    const handshake = { identity, requestId: "req_test", head, address: undefined, query: { ticket: undefined } };
    const socket = driveHooks(chatSocketRoute.accept({ ...parts, approvals: services.approvals }, handshake), peer);
    socket.say({ type: "hello", events: true });
    return { peer, ...socket };
  }
  return { ...made, clock, start, read, open };
}

const isOver = (events: readonly AgentEvent[]) => ["done", "error"].includes(events.at(-1)?.type ?? "");

for (const state of ["at work", "ended"] as const) {
  test(`an event stream cut after every single event gives the very text of the result: ${state}`, async () => {
    const { runs, start, read, clock } = setUp();
    const id = await start();
    if (state === "ended") {
      await clock.advance(1000);
      assert.equal((await runs.get(id))?.status, "completed");
    }
    const taken: AgentEvent[] = [];
    while (!isOver(taken)) {
      const [next] = await read(id, taken.at(-1)?.seq ?? 0, (events) => events.length > 0);
      assert.ok(next, `nothing came after ${taken.length}`);
      taken.push(next);
    }
    const result = (await runs.get(id))?.result ?? "";
    assert.deepEqual(taken.map(({ seq }) => seq), taken.map((_, index) => index + 1));
    assert.deepEqual(Buffer.from(textIn(taken)), Buffer.from(result));
    assert.deepEqual(taken, await read(id, 0, () => false), "as one who was never cut off has them");
  });

  test(`a socket cut after every single event gives the very text of the result: ${state}`, async () => {
    const { runs, start, open, read, clock } = setUp();
    const id = await start();
    if (state === "ended") await clock.advance(1000);
    const taken: AgentEvent[] = [];
    while (!isOver(taken)) {
      const { say, peer, leave } = open();
      say({ type: "resume", run_id: id, after: taken.at(-1)?.seq ?? 0 });
      while (peer.sent.length === 0) await clock.advance(5);
      leave();
      const { run_id: runId, ...event } = peer.frames()[0];
      assert.equal(runId, id);
      taken.push(event);
    }
    assert.deepEqual(Buffer.from(textIn(taken)), Buffer.from((await runs.get(id))?.result ?? ""));
    assert.deepEqual(taken, await read(id, 0, () => false));
  });
}

test("a socket resumes a run from a place in it, and goes on with its own messages afterwards", async () => {
  const { start, open, clock } = setUp(["first", "second"]);
  const id = await start();
  await clock.advance(1);
  const { say, peer } = open();
  say({ type: "resume", run_id: id, after: 2 });
  say("and now");
  await clock.advance(1);
  const frames = peer.frames();
  assert.deepEqual(frames.slice(0, 3).map(({ type, seq, run_id }) => [type, seq, run_id]), [
    ["text_delta", 3, id],
    ["turn_end", 4, id],
    ["done", 5, id],
  ]);
  assert.equal(textIn(frames.slice(3)), "second");
});

test("in the plain mode a resumed run comes as deltas", async () => {
  const { start, open, clock } = setUp(["first"]);
  const id = await start();
  await clock.advance(1);
  const { say, peer } = open();
  say({ type: "hello", events: false });
  say({ type: "resume", run_id: id, after: 0 });
  await clock.advance(1);
  assert.deepEqual(peer.frames(), [{ type: "delta", delta: "first" }, { type: "done" }]);
});

test("a run that is unknown and a place that it has not reached are error frames, and the socket stays", async () => {
  const { start, open, clock } = setUp(["first"]);
  const id = await start();
  await clock.advance(1);
  const { say, peer } = open();
  say({ type: "resume", run_id: "run_none", after: 0 });
  say({ type: "resume", run_id: id, after: 999 });
  say({ type: "resume", run_id: id, after: 5 });
  say({ type: "ping" });
  await clock.advance(1);
  assert.deepEqual(peer.frames().map(({ type, code }) => [type, code]), [
    ["pong", undefined],
    ["error", "not_found"],
    ["error", "invalid_request"],
  ]);
  assert.equal(peer.code(), undefined);
});

test("leaving a resumed run leaves it at work, cancel stops it", async () => {
  const { start, open, clock, provider, runs } = setUp([{ text: ["one "], hang: "after" }]);
  const id = await start();
  await clock.advance(1);
  const first = open();
  first.say({ type: "resume", run_id: id, after: 0 });
  await clock.advance(1);
  first.leave();
  await clock.advance(1000);
  assert.equal(provider.active, 1);
  const second = open();
  second.say({ type: "resume", run_id: id, after: 0 });
  await clock.advance(1);
  second.say({ type: "cancel" });
  await clock.advance(1);
  assert.equal(provider.active, 0);
  assert.equal((await runs.get(id))?.status, "cancelled");
  assert.deepEqual(second.peer.frames().at(-1).code, "cancelled");
});

test("a reader too slow is closed with its place, from which another socket goes on", async () => {
  const text = Array.from({ length: 60 }, (_, index) => `${index}${"x".repeat(100_000)}`);
  const { start, open, clock, runs } = setUp([{ text }]);
  const id = await start();
  await clock.advance(1);
  const slow = open({ buffers: true });
  slow.say({ type: "resume", run_id: id, after: 0 });
  await clock.advance(0);
  assert.ok(slow.peer.bufferedAmount <= 4 * MIB + 200_000, `${slow.peer.bufferedAmount} bytes wait`);
  await clock.advance(300_000);
  const [, runId, after] = /resume run_id=(\S+) after=(\d+)$/.exec(slow.peer.closedWith?.reason ?? "") ?? [];
  assert.deepEqual([slow.peer.code(), runId], [1013, id]);
  const next = open();
  next.say({ type: "resume", run_id: id, after: Number(after) });
  await clock.advance(1);
  const frames = [...slow.peer.frames(), ...next.peer.frames()];
  assert.deepEqual(frames.map(({ seq }) => seq), frames.map((_, index) => index + 1));
  assert.equal(textIn(frames), (await runs.get(id))?.result);
});

test("a message's own run whose reader was too slow is cancelled; what it had said, and its end, are found from the place", async () => {
  const text = Array.from({ length: 60 }, (_, index) => `${index}${"x".repeat(100_000)}`);
  const { open, clock, runs } = setUp([{ text, hang: "after" }]);
  const slow = open({ buffers: true });
  slow.say("Hi");
  await clock.advance(0);
  await clock.advance(300_000);
  const [, id = "", after] = /resume run_id=(\S+) after=(\d+)$/.exec(slow.peer.closedWith?.reason ?? "") ?? [];
  await clock.advance(1);
  assert.equal((await runs.get(id))?.status, "cancelled");
  const next = open();
  next.say({ type: "resume", run_id: id, after: Number(after) });
  await clock.advance(1);
  const frames = [...slow.peer.frames(), ...next.peer.frames()];
  assert.deepEqual(frames.map(({ seq }) => seq), frames.map((_, index) => index + 1));
  assert.deepEqual([frames.at(-1)?.type, frames.at(-1)?.code], ["error", "client_gone"]);
});
