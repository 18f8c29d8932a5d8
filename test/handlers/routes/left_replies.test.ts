import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import { chat, conversation, runEvents } from "../../../handlers/handlers.ts";
import { chatSocketRoute } from "../../../handlers/routes/chat.ts";
import { createSockets } from "../../../handlers/websocket/sockets.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import type { Scope } from "../../../lib/base/records/caller.ts";
import { createStoredConversations } from "../../../lib/runs/conversations/stored_conversations.ts";
import { appliedText } from "../../support/applied_text.ts";
import { createFakePeer, driveHooks } from "../../support/fake_peer.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { readSse } from "../../support/sse.ts";
import { ask, supervised, type SupervisedOptions } from "../../support/supervised.ts";

/** A turn with an effect, then the answer. */
const SCRIPT: Script = ({ messages }) =>
  messages.at(-1)?.role === "tool"
    ? { text: ["All ", "is ", "done"], chunkDelayMs: 10 }
    : { toolCalls: [{ name: "count" }], chunkDelayMs: 10 };
const WATCHER = { tokenId: "tok_2", scopes: ["chat"] } as const;

function setUp(script: Script = SCRIPT, options: SupervisedOptions = {}) {
  const services = createFakeServices();
  const { clock } = services;
  const effects: string[] = [];
  const count = { name: "count", access: "write", run: () => (effects.push("counted"), "1") } as const;
  const made = supervised(script, { clock, tools: [count], whenReaderLeaves: "go_on", ...options });
  const { runs, store } = made;
  const identity = { tokenId: "tok_1", scopes: ["chat", "runs"] as readonly Scope[] };
  const parts = { agent: { runs, providers: undefined as never }, kit: services, sockets: createSockets(services) };
  const conversations = createStoredConversations({ store, runIn: runs.runIn.bind(runs) });
  const shows = conversation({ conversations, identify: () => ({ identity }) });

  /** A socket that has said hello, and what it was sent. */
  function open(by: typeof identity | typeof WATCHER = identity) {
    const peer = createFakePeer();
    const head = new Request("http://gateway.test/ws/chat");
    const handshake = { identity: by, requestId: "req_test", head, address: undefined, query: { ticket: undefined } };
    const socket = driveHooks(chatSocketRoute.accept({ ...parts, approvals: services.approvals }, handshake), peer);
    socket.say({ type: "hello", events: true });
    return { peer, ...socket };
  }

  /** Says something in a conversation, and leaves after a number of events. */
  async function leaveAfter(count: number, id = "talk") {
    const { say, peer, leave } = open();
    say({ type: "message", text: "Count", conversation_id: id });
    while (peer.sent.length < count) await clock.advance(1);
    leave();
    return peer.frames().slice(0, count);
  }

  /** Reads on to the end, over a socket or by the event stream. */
  async function readOn(runId: string, after: number, door: "socket" | "stream"): Promise<readonly AgentEvent[]> {
    if (door === "stream") {
      const follow = runEvents({ ...parts, storedRuns: {}, identify: () => ({ identity }) });
      const headers = { "last-event-id": String(after) };
      const reply = await follow(new Request(`http://gateway.test/v1/runs/${runId}/events`, { headers }));
      const text = reply.text();
      await clock.advance(1_000);
      return readSse(await text).data.map((data) => JSON.parse(data));
    }
    const { say, peer } = open();
    say({ type: "resume", run_id: runId, after });
    await clock.advance(1_000);
    return peer.frames();
  }

  const stored = () => conversations.messages("talk", { afterSeq: 0, limit: 100 });
  // deno-lint-ignore no-explicit-any
  const show = async (id = "talk"): Promise<any> =>
    await (await shows(new Request(`http://gateway.test/v1/conversations/${id}`))).json();
  return { ...made, clock, effects, parts, identity, open, leaveAfter, readOn, stored, show };
}

test("a reply whose reader is cut after any event is said to its end, and read on without a gap", async () => {
  for (const door of ["socket", "stream"] as const) {
    for (let cut = 1, isOver = false; !isOver; cut++) {
      const { leaveAfter, readOn, stored, effects, clock, runs } = setUp();
      const before = await leaveAfter(cut);
      isOver = before.at(-1)?.type === "done";
      const { run_id: runId, seq } = before.at(-1) ?? {};
      await clock.advance(cut % 2 === 0 ? 1_000 : 0);
      const events = isOver ? before : [...before, ...await readOn(runId, seq, door)];
      const name = `${door}, cut after ${cut}`;
      assert.deepEqual(events.map((event) => event.seq), events.map((_, index) => index + 1), name);
      assert.equal(events.at(-1)?.type, "done", name);
      const said = (await stored()).at(-1)?.message;
      assert.equal(appliedText(events), said?.content, name);
      assert.equal(said?.content, (await runs.get(runId))?.result, name);
      assert.deepEqual(effects, ["counted"], name);
    }
  }
});

test("a client of /api/chat that leaves, or waits too long, leaves its run at work; the reply says which it is", async () => {
  const { parts, clock, runs, provider, stored, identity } = setUp([{ text: ["one ", "two"], chunkDelayMs: 10 }]);
  const send = chat({ ...parts, tools: {}, identify: () => ({ identity }) });
  const gone = new AbortController();
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ message: "Hi", conversation_id: "talk" });
  const init = { method: "POST", headers, body };
  const reply = send(new Request("http://gateway.test/api/chat", { ...init, signal: gone.signal }));
  await clock.advance(5);
  gone.abort();
  const { headers: told, status } = await reply;
  assert.equal(status, 408);
  assert.equal(told.get("x-should-retry"), "false");
  const id = told.get("x-postern-run") ?? "";
  assert.equal((await runs.get(id))?.status, "running");
  await clock.advance(100);
  assert.equal((await runs.get(id))?.result, "one two");
  assert.deepEqual((await stored()).map(({ message }) => message.content), ["Hi", "one two"]);
  assert.equal(provider.aborted, 0);
});

test("when_reader_leaves = cancel ends the reply with its reader, and what it had said is marked as cut for good", async () => {
  const { leaveAfter, show, clock, provider, runs } = setUp([{ text: "half", hang: "after" }], {
    whenReaderLeaves: "cancel",
  });
  const [{ run_id: runId }] = await leaveAfter(3);
  await clock.advance(1);
  assert.equal(provider.aborted, 1);
  assert.equal((await runs.get(runId))?.error?.code, "client_gone");
  const { messages: { data }, run_id: next } = await show();
  // deno-lint-ignore no-explicit-any
  assert.deepEqual(data.map(({ content, cut }: any) => [content, cut]), [["Count", undefined], [
    "half",
    "client_gone",
  ]]);
  assert.equal(next, null);
});

test("a reply without a record ends with its reader, whatever is set", async () => {
  const { runs, provider, clock } = setUp([{ text: "half", hang: "after" }]);
  const controller = new AbortController();
  const handle = await runs.start(ask("Hi", { controller }));
  assert.equal(handle.durable, false);
  const reading = (async () => {
    for await (const _ of handle.events());
  })();
  await clock.advance(1);
  handle.leave("client_gone");
  await reading;
  assert.equal(provider.aborted, 1);
});

test("a conversation names the reply that is at work in it, also its first; cancel over another socket stops it", async () => {
  const { leaveAfter, open, show, clock, runs } = setUp([{ text: "half", hang: "after" }]);
  const [{ run_id: runId }] = await leaveAfter(3);
  const { run_id: next, message_count: count, messages } = await show();
  assert.deepEqual([next, count, messages.data], [runId, 0, []]);
  const { say, peer } = open();
  say({ type: "resume", run_id: runId, after: 0 });
  await clock.advance(1);
  say({ type: "cancel" });
  await clock.advance(1);
  assert.equal(peer.frames().at(-1)?.code, "cancelled");
  assert.equal((await runs.get(runId))?.status, "cancelled");
  const ended = await show();
  assert.equal(ended.run_id, null);
  assert.equal(ended.messages.data.at(-1).cut, "cancelled");
});

test("who may not read a conversation may not read on in its reply", async () => {
  const { leaveAfter, open, clock } = setUp([{ text: "half", hang: "after" }]);
  const [{ run_id: runId }] = await leaveAfter(2);
  const { say, peer } = open(WATCHER);
  say({ type: "resume", run_id: runId, after: 0 });
  await clock.advance(1);
  assert.deepEqual(peer.frames().map(({ code }) => code), ["insufficient_scope"]);
});

test("replies that were left count in the bounds of runs: one token leaves no more behind than may work and wait", async () => {
  const { open, clock, provider, runs } = setUp(() => ({ text: "half", hang: "after" }), {
    limits: { maxConcurrent: 2, maxQueued: 8 },
  });
  const codes: (string | undefined)[] = [];
  for (let index = 0; index < 12; index++) {
    const { say, peer, leave } = open();
    say({ type: "message", text: "Hi", conversation_id: `talk-${index}` });
    await clock.advance(1);
    leave();
    codes.push(peer.frames().findLast(({ type }) => type === "error")?.code);
  }
  // Seven eighths of the queue are the most of one token
  assert.deepEqual(codes.filter((code) => code === undefined).length, 2 + 7);
  assert.deepEqual(new Set(codes.slice(9)), new Set(["overloaded"]));
  assert.deepEqual([provider.active, runs.active()], [2, 9]);
});
