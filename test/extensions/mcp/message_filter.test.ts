import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BROKEN_REPLY, MessageFault, MessageFilter } from "../../../lib/extensions/mcp/message_filter.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** Returns a filter that has sent the request 1. */
function filterOfRequest(): MessageFilter {
  const filter = new MessageFilter(createFakeClock());
  filter.sent({ jsonrpc: "2.0", id: 1, method: "tools/call" });
  return filter;
}

const reply = (result: unknown) => ({ jsonrpc: "2.0", id: 1, result });
const many = <T>(count: number, item: T) => Array.from({ length: count }, () => item);

/** Asserts that the request gets an error of the gateway's own in place of the reply. */
function assertBroken(value: unknown, reason: RegExp): void {
  const message = filterOfRequest().received(value);
  assert.ok(message !== undefined && "error" in message, "an error answers the request");
  assert.equal(message.error.data, BROKEN_REPLY);
  assert.match(message.error.message, reason);
}

describe("a reply that the SDK would choke on ends its request at once, and the session goes on", () => {
  test("more entries than anybody lists: the SDK writes an issue for each", () => {
    for (const field of ["content", "tools", "messages", "contents"]) {
      assertBroken(reply({ [field]: many(1_001, {}) }), /more than 1000 entries/);
      assert.ok("result" in (filterOfRequest().received(reply({ [field]: many(1_000, {}) })) ?? {}));
    }
    const properties = Object.fromEntries(many(1_001, {}).map((schema, index) => [`k${index}`, schema]));
    assertBroken(reply({ tools: [{ inputSchema: { properties } }] }), /more than 1000 entries/);
  });

  test("more values than anybody needs", () => {
    assertBroken(reply({ tools: many(60, { inputSchema: { required: many(1_000, 1) } }) }), /more than 50000 values/);
  });

  test("what the SDK only hands on may be large", () => {
    const rows = many(2_000, { a: many(100, 1) });
    assert.ok("result" in (filterOfRequest().received(reply({ content: [], structuredContent: { rows } })) ?? {}));
  });

  test("neither a result nor an error, or both", () => {
    const broken = [
      { jsonrpc: "2.0", id: 1 },
      reply(null),
      reply("done"),
      { ...reply({}), error: { code: 1, message: "no" } },
      { jsonrpc: "2.0", id: 1, error: "no" },
      { jsonrpc: "2.0", id: 1, error: { code: "high", message: 7 } },
    ];
    for (const value of broken) assertBroken(value, /neither a result nor an error/);
  });

  test("a second one is dropped, as is one for a request that nobody made", () => {
    const filter = filterOfRequest();
    assert.ok(filter.received(reply(null)) !== undefined);
    assert.equal(filter.received(reply({})), undefined);
    assert.equal(filter.received({ ...reply({}), id: "1" }), undefined);
  });
});

test("a notification or a question with too much in it is dropped", () => {
  const filter = new MessageFilter(createFakeClock());
  const params = { level: "info", data: many(1_001, {}) };
  assert.equal(filter.received({ jsonrpc: "2.0", method: "notifications/message", params }), undefined);
  const properties = Object.fromEntries(many(1_001, {}).map((schema, index) => [`k${index}`, schema]));
  const asked = { jsonrpc: "2.0", id: 7, method: "elicitation/create", params: { requestedSchema: { properties } } };
  assert.equal(filter.received(asked), undefined);
});

test("a message that is nested deeper than any real one ends the session", () => {
  let deep: unknown = 1;
  for (let level = 0; level < 70; level++) deep = [deep];
  assert.throws(() => filterOfRequest().received(reply({ structuredContent: { deep } })), MessageFault);
});

test("more than 10,000 notifications in any 5 seconds end the session, and as many in longer do not", async () => {
  const clock = createFakeClock();
  const filter = new MessageFilter(clock);
  const bring = (count: number) => {
    for (let at = 0; at < count; at++) filter.received({ jsonrpc: "2.0", method: "notifications/message", params: {} });
  };
  for (let seconds = 0; seconds < 40; seconds += 8) {
    bring(5_000);
    await clock.advance(4_000);
    bring(5_000);
    await clock.advance(4_000);
  }
  bring(1);
  await clock.advance(4_000);
  bring(9_000);
  await clock.advance(1_500);
  assert.throws(() => bring(9_000), /more than 10000 notifications within 5 s/);
});
