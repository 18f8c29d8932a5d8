import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isNodeId } from "../../../lib/config/schema/gateway.ts";
import { parseGatewayFrame, parseNodeFrame } from "../../../lib/extensions/nodes/protocol.ts";
import { nodeToolName } from "../../../lib/extensions/nodes/known_node.ts";
import { ECHO, HELLO } from "../../support/node_bench.ts";

test("no text makes the parsers throw, and a reason never repeats a value", () => {
  const secret = "s3cret-value";
  const frame = fc.record({
    type: fc.oneof(fc.constantFrom("hello", "result", "tools", "welcome", "invoke", "ping", "__proto__"), fc.string()),
    id: fc.oneof(fc.string(), fc.constant(secret), fc.integer()),
    n: fc.oneof(fc.integer(), fc.string(), fc.constant(null)),
    tools: fc.oneof(fc.array(fc.jsonValue()), fc.constant(secret)),
    output: fc.jsonValue(),
  }, { requiredKeys: [] });
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), frame.map((value) => JSON.stringify(value))), (text) => {
      for (const parse of [parseNodeFrame, parseGatewayFrame]) {
        const parsed = parse(text);
        if (!parsed.ok) assert.ok(!parsed.reason.includes(secret) && parsed.reason.length < 200);
      }
    }),
    { numRuns: 200, seed: 7 },
  );
});

test("a hello is bounded: names, number, size, nesting and shape of its tools", () => {
  const hello = (tools: unknown) => parseNodeFrame(JSON.stringify({ ...HELLO, tools })).ok;
  assert.equal(hello([ECHO]), true);
  assert.equal(hello([]), true);
  const bad: Record<string, unknown> = {
    "a name that no model takes": [{ ...ECHO, name: "a b" }],
    "a name too long for the registry": [{ ...ECHO, name: "a".repeat(33) }],
    "the same name twice": [ECHO, ECHO],
    "too many": Array.from({ length: 257 }, (_, index) => ({ ...ECHO, name: `t${index}` })),
    "a description without end": [{ ...ECHO, description: "x".repeat(8193) }],
    "an access there is not": [{ ...ECHO, access: "root" }],
    "a schema that is no object's": [{ ...ECHO, input_schema: { type: "string" } }],
    "a schema that takes anything": [{ ...ECHO, input_schema: { ...ECHO.input_schema, additionalProperties: true } }],
    "no list": { ...ECHO },
  };
  for (const [what, tools] of Object.entries(bad)) assert.equal(hello(tools), false, what);
  let deep: unknown = "x";
  for (let depth = 0; depth < 100; depth++) deep = { deep };
  assert.equal(parseNodeFrame(JSON.stringify({ ...HELLO, deep })).ok, false);
});

test("ids never leave a doubt about where they end in a tool's name, and every name fits the registry", () => {
  for (const id of ["pi", "gpu-1", "board_2", "a".repeat(24)]) assert.ok(isNodeId(id), id);
  for (const id of ["", "Pi", "a__b", "-a", "a-", "_a", "a b", "a/b", "a".repeat(25), "ä", "pi\n"]) {
    assert.ok(!isNodeId(id), JSON.stringify(id));
  }
  assert.match(nodeToolName("a".repeat(24), "b".repeat(32)), /^[a-zA-Z][a-zA-Z0-9_-]{0,63}$/);
});
