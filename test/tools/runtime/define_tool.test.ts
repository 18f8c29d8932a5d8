import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { ToolError } from "../../../lib/base/errors.ts";
import { defineTool } from "../../../lib/tools/runtime/define_tool.ts";
import type { ToolContext } from "../../../lib/tools/runtime/tool.ts";

const text = v.pipe(v.string(), v.description("A text"));
const result = async () => ({ output: "", isError: false });
const base = {
  name: "echo",
  description: "Says it again, for tests",
  access: "read",
  enabled: "always",
  needs: [],
  run: result,
} as const;

test("a definition that breaks the rules is refused when the program starts", () => {
  const two = v.strictObject({ first: text, second: text });
  assert.throws(() => defineTool({ ...base, input: two, textField: "second" }), /must stand first/);
  assert.throws(() => defineTool({ ...base, input: two, enabled: () => false }), /what enables it/);
});

test("a schema that the model cannot be told is refused at its first use, by a call and by a list", () => {
  const undescribed = v.strictObject({ text: v.string() });
  assert.throws(() => defineTool({ ...base, input: undescribed }).inputSchema, /"text" has no description/);
  assert.throws(() => defineTool({ ...base, input: undescribed }).modelSchema, /"text" has no description/);
  assert.throws(() => defineTool({ ...base, input: undescribed }).prepare('{"text":"x"}'), /"text" has no description/);
  const nested = v.strictObject({ list: v.pipe(v.array(v.strictObject({ x: v.string() })), v.description("A list")) });
  assert.throws(() => defineTool({ ...base, input: nested }).inputSchema, /"x" has no description/);
  const converted = v.strictObject({ text: v.pipe(v.string(), v.transform(Number), v.description("A number")) });
  assert.throws(() => defineTool({ ...base, input: converted }).inputSchema);
});

test("a tool whose definition does not say so is not repeatable, has no effects, and its access is that of the tool", () => {
  const input = v.strictObject({ text });
  const { repeatable, effects, access } = defineTool({ ...base, input }).prepare('{"text":"x"}');
  assert.deepEqual([repeatable, effects, access], [false, {}, "read"]);
  const said = { repeatable: true, accessOf: () => "write" as const, effects: () => ({ paths: ["a"] }) } as const;
  const other = defineTool({ ...base, ...said, input }).prepare('{"text":"x"}');
  assert.deepEqual([other.repeatable, other.effects, other.access], [true, { paths: ["a"] }, "write"]);
});

test("the first property takes a plain text, and only a JSON object is an object", () => {
  const tool = defineTool({ ...base, input: v.strictObject({ text, more: v.optional(text) }), textField: "text" });
  for (const input of ["plain", "[1]", '"quoted"', "{broken", "1", "null", " ", "{a,b}"]) {
    assert.deepEqual(tool.prepare(input).input, { text: input }, input);
  }
  assert.deepEqual(tool.prepare(' {"text":"x"} ').input, { text: "x" });
  assert.throws(() => tool.prepare('{"more":"x"}'), { code: "invalid_input", message: /"text" is missing/ });
});

test("a field named like an alias of op is left alone", () => {
  const input = v.strictObject({
    op: v.optional(v.pipe(v.picklist(["a", "b"]), v.description("What"))),
    action: v.optional(text),
  });
  const tool = defineTool({ ...base, input });
  assert.deepEqual(tool.prepare('{"action":"a"}').input, { action: "a" });
  assert.deepEqual(tool.prepare('{"operation":"a"}').input, { op: "a" });
  assert.throws(() => tool.prepare('{"op":"a","operation":"b"}'), /"operation" is not one of its fields/);
});

test("a message tells what is wrong without repeating the value", () => {
  const input = v.strictObject({
    count: v.pipe(v.number(), v.integer(), v.minValue(1), v.description("How many")),
    tags: v.optional(v.pipe(v.array(text), v.maxLength(2), v.description("Tags"))),
  });
  const tool = defineTool({ ...base, input });
  const cases: readonly (readonly [input: unknown, message: string])[] = [
    [{ count: "secret-value" }, 'Cannot call "echo": "count" must be a number, and is a string'],
    [{ count: 0 }, 'Cannot call "echo": "count" must be at least 1, and is 0'],
    [{ count: 1.5 }, 'Cannot call "echo": "count" must be a whole number'],
    [{ count: 1, tags: ["a", 2] }, 'Cannot call "echo": "tags.1" must be a string, and is 2'],
    [{ count: 1, tags: ["a", "b", "c"] }, 'Cannot call "echo": "tags" must have a length of at most 2, and has 3'],
    [{ count: 1, tags: {} }, 'Cannot call "echo": "tags" must be an array, and is an object'],
    [{}, 'Cannot call "echo": "count" is missing'],
    [
      { many: 1 },
      'Cannot call "echo": "count" is missing, and "many" is not one of its fields: they are "count", "tags"',
    ],
    [{ count: -1 }, 'Cannot call "echo": "count" must be at least 1, and is -1'],
    [
      { count: 1, __proto__x: 1 },
      'Cannot call "echo": "__proto__x" is not one of its fields: they are "count", "tags"',
    ],
  ];
  for (const [given, message] of cases) assert.throws(() => tool.prepare(JSON.stringify(given)), { message });
  assert.throws(() => tool.prepare('{"count":1,"__proto__":{"a":1}}'), { code: "invalid_input" });
  const deep = `{"count":1,"tags":${"[".repeat(64)}${"]".repeat(64)}}`;
  assert.throws(() => tool.prepare(deep), { message: /"tags" is nested deeper than 64 levels/ });
  const shallow = `{"count":1,"tags":${"[".repeat(63)}${"]".repeat(63)}}`;
  assert.throws(() => tool.prepare(shallow), { message: /"tags\.0" must be/ });
});

test("check refuses what the schema cannot say; effects come from the input", () => {
  const tool = defineTool({
    ...base,
    input: v.strictObject({ text }),
    check: ({ text }) => {
      if (text === "no") throw new RangeError("checked");
    },
    effects: ({ text }) => ({ paths: [text] }),
  });
  assert.throws(() => tool.prepare('{"text":"no"}'), /checked/);
  assert.deepEqual(tool.prepare('{"text":"a/b"}').effects, { paths: ["a/b"] });
});

test("a tool that throws before its first wait rejects like any other", async () => {
  const run = () => {
    throw new ToolError("not_found", "Cannot find it");
  };
  const tool = defineTool({ ...base, run, input: v.strictObject({ text }) });
  // It does not get as far as its context
  const running = tool.prepare('{"text":"x"}').run({} as ToolContext);
  await assert.rejects(running, ToolError);
});
