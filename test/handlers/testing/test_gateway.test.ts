import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { defineTool } from "../../../handlers/mod.ts";
import {
  connect,
  createFakeClock,
  createTestGateway,
  scriptedProvider,
  type TestGateway,
} from "../../../handlers/testing/mod.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { errorOf } from "../../support/test_router.ts";

const order = defineTool({
  name: "order",
  description: "Orders beans",
  access: "write",
  inputSchema: { type: "object", properties: { count: { type: "integer" } }, required: ["count"] },
  execute: (input) => `${input["count"]} beans are on their way`,
});
const orderBeans = { toolCalls: [{ name: "order", arguments: { count: 3 } }] };

describe("a gateway of the testing kit", () => {
  let gateway: TestGateway;
  const model = scriptedProvider((request) => {
    const message = request.messages.at(-1);
    if (message?.role === "tool") return `The tool says: ${message.content}`;
    return JSON.stringify(message?.content).includes("order") ? orderBeans : { text: ["Hello ", "there"] };
  });
  before(async () => {
    gateway = await createTestGateway({ tools: [order], providers: { model } });
  });
  after(() => gateway.close());

  test("answers JSON with a token, refuses without one, and a token of other scopes", async () => {
    const completion = { model: "assistant", messages: [{ role: "user", content: "Hello" }] };
    const reply = await gateway.request("/v1/chat/completions", { json: completion });
    assert.equal(
      (await reply.json() as { choices: [{ message: { content: string } }] }).choices[0].message.content,
      "Hello there",
    );
    assert.equal(model.requests.length, 1);
    const refused = await gateway.request("/v1/chat/completions", { json: completion, as: null });
    assert.deepEqual([refused.status, (await errorOf(refused)).code], [401, "auth_required"]);
    const narrow = await gateway.request("/v1/chat/completions", { json: completion, as: ["tools"] });
    assert.deepEqual([narrow.status, (await errorOf(narrow)).code], [403, "insufficient_scope"]);
    assert.equal((await gateway.request("/v1/tools", { as: ["tools"] })).status, 200);
  });

  test("streams", async () => {
    const json = { model: "assistant", stream: true, messages: [{ role: "user", content: "Hello" }] };
    const text = await (await gateway.request("/v1/chat/completions", { json })).text();
    assert.match(text, /"content":"Hello ".*[\s\S]*"content":"there".*[\s\S]*data: \[DONE\]/);
  });

  test("has WebSockets without a socket; a handshake that is refused is an HttpError", async () => {
    const socket = await connect(gateway);
    socket.send("Hello");
    await socket.next({ type: "done" });
    assert.deepEqual(socket.frames, [{ type: "delta", delta: "Hello " }, { type: "delta", delta: "there" }, {
      type: "done",
    }]);
    socket.close();
    await assert.rejects(socket.next(), /closed/);
    for (const [as, code] of [[null, "auth_required"], [["tools"], "insufficient_scope"]] as const) {
      await assert.rejects(connect(gateway, { as }), (error) => error instanceof HttpError && error.code === code);
    }
  });

  test("asks over the WebSocket before a tool runs", async () => {
    const socket = await connect(gateway);
    socket.send({ type: "hello", events: true });
    socket.send("Please order");
    const { approval_id } = await socket.next({ type: "approval_needed" });
    socket.send({ type: "approve", approval_id });
    await socket.next({ type: "done" });
    const said = socket.frames.map((frame) => frame["delta"] ?? "").join("");
    assert.match(said, /The tool says: [\s\S]*3 beans are on their way/);
    socket.close();
  });

  test("runs", async () => {
    const run = await gateway.runs.start({ message: "Hello" });
    const events = [];
    for await (const { type } of gateway.runs.follow(run.id)) events.push(type);
    assert.equal(events.at(-1), "done");
    assert.equal((await gateway.runs.get(run.id)).created_at, "2026-01-01T00:00:00.000Z");
  });
});

test("time of a test gateway passes with its clock alone, for a script too, and closing waits for no real time", async () => {
  const clock = createFakeClock();
  const slow = scriptedProvider([{ delayMs: 60_000, text: "Late" }, { hang: "before" }], { clock });
  const gateway = await createTestGateway({ clock, providers: { slow } });
  const { workspace } = gateway;
  const socket = await connect(gateway);
  socket.send("Hello");
  while (slow.active === 0) await clock.advance(0);
  await clock.advance(59_999);
  assert.deepEqual(socket.frames, []);
  await clock.advance(1);
  assert.deepEqual([await socket.next(), await socket.next()], [{ type: "delta", delta: "Late" }, { type: "done" }]);
  await gateway.runs.start({ message: "Hang" });
  while (slow.active === 0) await clock.advance(0);
  await gateway.close();
  assert.equal((await socket.closed).code, 1001);
  assert.equal(existsSync(workspace), false);
});
