import assert from "node:assert/strict";
import { test } from "node:test";
import type { JsonSchema } from "../../../lib/base/json.ts";
import { createMcpInput } from "../../../lib/extensions/mcp/mcp_tool.ts";

test("an input is checked by the server's own schema, whatever the model was told", () => {
  const read = (inputSchema: JsonSchema, input: unknown) =>
    createMcpInput("mcp__s__t", inputSchema).read(JSON.stringify(input));
  const plain = { type: "object", properties: { "filter[id]": { type: "string", pattern: "^a" } } };
  assert.deepEqual(read(plain, { "filter[id]": "ab" }), { "filter[id]": "ab" });
  assert.throws(() => read(plain, { "filter[id]": "b" }), { code: "invalid_input" });
  assert.throws(() => read(plain, { filter: "ab" }), { code: "invalid_input" });
  const union = { type: "object", anyOf: [{ properties: { a: { type: "string" } } }, { properties: { b: {} } }] };
  assert.deepEqual(read(union, { b: 1 }), { b: 1 });
  const open = { type: "object", properties: {}, additionalProperties: { type: "string" } };
  assert.deepEqual(read(open, { any: "field" }), { any: "field" });
});

test("null stays where the schema names it, and means absent elsewhere", () => {
  const optional = { type: "string" };
  const properties = { a: { anyOf: [optional, { type: "null" }] }, b: { type: ["string", "null"] }, c: optional };
  const { read } = createMcpInput("mcp__s__t", { type: "object", properties });
  assert.deepEqual(read('{"a":null,"b":null,"c":null}'), { a: null, b: null });
});

test("a required property with a default gets it where the call leaves it out, and no other property does", () => {
  const type = { type: "string", enum: ["png", "jpeg"], default: "png" };
  const schema = {
    type: "object",
    properties: { type, quality: { type: "number", default: 80 }, name: { type: "string" } },
    required: ["type", "name"],
  };
  const { read } = createMcpInput("mcp__browser__browser_take_screenshot", schema);
  assert.deepEqual(read('{"name":"a"}'), { name: "a", type: "png" });
  assert.deepEqual(read('{"name":"a","type":"jpeg"}'), { name: "a", type: "jpeg" });
  assert.throws(() => read("{}"), { code: "invalid_input", message: /"name"/ });
  assert.throws(() => read('{"name":"a","type":null}'), { code: "invalid_input" });
});
