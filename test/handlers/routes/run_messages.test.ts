import assert from "node:assert/strict";
import { test } from "node:test";
import type { Script } from "../../../fixtures/scripted_provider.ts";
import { runEvents, runMessage } from "../../../handlers/handlers.ts";
import { chatSocketRoute } from "../../../handlers/routes/chat.ts";
import { createSockets } from "../../../handlers/websocket/sockets.ts";
import { cancelError } from "../../../lib/base/cancel.ts";
import type { Scope } from "../../../lib/base/records/caller.ts";
import { textOf } from "../../../lib/base/records/message.ts";
import type { FakeTool } from "../../support/fake_tool_executor.ts";
import { createFakePeer, driveHooks } from "../../support/fake_peer.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { readSse } from "../../support/sse.ts";
import { ask, supervised } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

/** Two calls that change something, then an answer to whatever was said last. */
const SCRIPT: Script = ({ messages }) => {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const said = textOf(messages[at]?.content ?? "");
  if (said !== "Work" || messages.length - at > 1) return { text: `To ${said}` };
  return { toolCalls: [1, 2].map((by) => ({ name: "hold", arguments: { by } })) };
};
const OWN = { tokenId: "tok_1", scopes: ["chat"] as readonly Scope[] };

function setUp() {
  const services = createFakeServices();
  const held: (() => void)[] = [];
  const hold: FakeTool = {
    name: "hold",
    access: "write",
    run: (_input, { signal }) =>
      new Promise((resolve, reject) => {
        held.push(() => resolve("done"));
        signal.addEventListener("abort", () => reject(cancelError(signal)), { once: true });
      }),
  };
  const { runs } = supervised(SCRIPT, { clock: services.clock, tools: [hold], whenReaderLeaves: "go_on" });
  const parts = { agent: { runs, providers: undefined as never }, kit: services, sockets: createSockets(services) };
  const open = () => {
    const peer = createFakePeer();
    const head = new Request("http://gateway.test/ws/chat");
    const handshake = { identity: OWN, requestId: "req_test", head, address: undefined, query: { ticket: undefined } };
    const socket = driveHooks(chatSocketRoute.accept({ ...parts, approvals: services.approvals }, handshake), peer);
    socket.say({ type: "hello", events: true });
    return { peer, ...socket };
  };
  // deno-lint-ignore no-explicit-any
  const post = async (
    id: string,
    body: unknown,
    identity = OWN,
  ): Promise<{ status: number; head: Headers; body: any }> => {
    const send = runMessage({ ...parts, identify: () => ({ identity }) });
    const reply = await send(
      new Request(`http://gateway.test/v1/runs/${id}/messages`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      }),
    );
    return { status: reply.status, head: reply.headers, body: await reply.json() };
  };
  const eventsOf = async (id: string) => {
    const identity = { ...OWN, scopes: ["runs"] as const };
    const follow = runEvents({ ...parts, storedRuns: {}, identify: () => ({ identity }) });
    const reply = await follow(new Request(`http://gateway.test/v1/runs/${id}/events`));
    return readSse(await reply.text()).data.map((data) => JSON.parse(data));
  };
  return { runs, held, open, post, eventsOf };
}

test("POST /v1/runs/:id/messages: the run of the message says where it goes, and every door shows what was taken in", async () => {
  const { runs, held, post, eventsOf } = setUp();
  const first = await runs.start(ask("Work", { conversationId: "talk" }));
  await until(() => held.length === 1);
  const { status, head, body } = await post(first.id, { message: "Use b", mode: "steer" });
  assert.deepEqual([status, body.status, body.steers], [202, "queued", { run_id: first.id, mode: "steer" }]);
  assert.equal(head.get("location"), `/v1/runs/${body.id}`);
  held[0]?.();
  const events = await eventsOf(first.id);
  const taken = events.find(({ type }) => type === "message_taken");
  assert.deepEqual([taken.message_id, taken.text], [body.id, "Use b"]);
  assert.deepEqual(events.flatMap(({ type, skipped }) => type === "tool_end" ? [skipped ?? false] : []), [false, true]);
  const late = await post(first.id, { message: "Late", mode: "steer" });
  assert.deepEqual([late.status, late.body.steers], [202, undefined]);
  assert.equal((await eventsOf(late.body.id)).at(-1)?.type, "done");
  const queued = await post(first.id, { message: "Then" });
  assert.deepEqual([queued.status, queued.body.steers], [202, undefined]);
});

test("POST /v1/runs/:id/messages refuses an unknown run, another token's, one without a conversation, and what says nothing", async () => {
  const { runs, held, post } = setUp();
  const first = await runs.start(ask("Work", { conversationId: "talk" }));
  const alone = await runs.start(ask("Work", { durable: true }));
  await until(() => held.length === 2);
  const refused = async (id: string, body: unknown, identity = OWN) =>
    (await post(id, body, identity)).body.error?.code;
  assert.equal(await refused("run_none", { message: "Hi" }), "not_found");
  assert.equal(await refused(first.id, { message: "Hi" }, { ...OWN, tokenId: "tok_2" }), "insufficient_scope");
  assert.equal(await refused(alone.id, { message: "Hi", mode: "steer" }), "conflict");
  assert.equal(await refused(first.id, { message: "  " }), "invalid_request");
  assert.equal(await refused(first.id, { message: "Hi", mode: "now" }), "invalid_request");
  for (const end of held) end();
});

test("a socket's message with a mode goes to the reply at work, and is answered on the same socket", async () => {
  const { held, open } = setUp();
  const { say, peer } = open();
  say({ type: "message", text: "Work", conversation_id: "talk" });
  await until(() => held.length === 1);
  say({ type: "message", text: "Use b", conversation_id: "talk", mode: "steer" });
  await until(() => peer.frames().some(({ type }) => type === "accepted"));
  const accepted = peer.frames().find(({ type }) => type === "accepted");
  const run = peer.frames().find(({ type }) => type === "run_start")?.["run_id"];
  assert.deepEqual({ ...accepted, run_id: "" }, { type: "accepted", run_id: "", mode: "steer", steers: run });
  held[0]?.();
  await until(() => peer.frames().some(({ type }) => type === "done"));
  say({ type: "message", text: "Late", conversation_id: "talk", mode: "steer" });
  await until(() => peer.frames().filter(({ type }) => type === "done").length === 2);
  const frames = peer.frames();
  assert.deepEqual(frames.filter(({ type }) => type === "accepted").map(({ mode }) => mode), ["steer", "queue"]);
  assert.deepEqual(frames.filter(({ type }) => type === "error"), [], "the end of the message's own run is not told");
  assert.equal(frames.filter(({ type }) => type === "message_taken").length, 1);
});

test("a socket's interrupting message ends the reply, and its own follows", async () => {
  const { held, open } = setUp();
  const { say, peer } = open();
  say({ type: "message", text: "Work", conversation_id: "talk" });
  await until(() => held.length === 1);
  say({ type: "message", text: "Use b", mode: "interrupt" });
  await until(() => peer.frames().some(({ type }) => type === "done"));
  const ends = peer.frames().filter(({ type }) => type === "error" || type === "done");
  assert.deepEqual(ends.map(({ type, code }) => code ?? type), ["cancelled", "done"]);
  assert.equal(peer.frames().findLast(({ type }) => type === "text_delta")?.["delta"], "To Use b");
});
