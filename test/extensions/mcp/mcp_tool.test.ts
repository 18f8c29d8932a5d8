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
  assert.throws(() => read(open, { any: 1 }), { code: "invalid_input" });
  assert.deepEqual(read({ type: "object" }, { any: 1 }), { any: 1 });
  const $defs = { At: { type: "object", properties: { x: { type: "integer" } } } };
  const defined = { type: "object", properties: { at: { anyOf: [{ $ref: "#/$defs/At" }, { type: "null" }] } }, $defs };
  assert.deepEqual(read(defined, { at: { x: 1 } }), { at: { x: 1 } });
  assert.throws(() => read(defined, { at: { y: 1 } }), { code: "invalid_input" });
  assert.deepEqual(read({ ...plain, additionalProperties: true }, { any: 1 }), { any: 1 });
});

test("a required field with a default gets it, whatever else the schema says", () => {
  const properties = {
    type: { type: "string", enum: ["png", "jpeg"], default: "png" },
    at: { type: "object", properties: { x: { type: "integer", default: 1 }, y: { default: 2 } }, required: ["x"] },
    left: { type: "string", default: "out" },
  };
  for (const more of [{}, { $defs: {}, if: {} }]) {
    const { read } = createMcpInput("mcp__s__t", { type: "object", properties, required: ["type"], ...more });
    assert.deepEqual(read("{}"), { type: "png" });
    assert.deepEqual(read('{"type":"jpeg","at":{}}'), { type: "jpeg", at: { x: 1 } });
  }
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

test("whatever a server writes as a schema, its tool has a reader, and no other tool suffers", () => {
  const noText = { toString: 1 };
  let deep: JsonSchema = { type: "null" };
  for (let level = 0; level < 8_000; level++) deep = { anyOf: [deep] };
  for (const field of [{ $ref: noText }, { $ref: [noText] }, { type: noText }, { type: [noText] }, deep]) {
    const { read } = createMcpInput("mcp__s__t", { type: "object", properties: { a: field } });
    assert.deepEqual(read('{"a": 1}'), { a: 1 });
  }
});
