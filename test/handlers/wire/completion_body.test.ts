import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { checkBody } from "../../../handlers/wire/check_body.ts";
import {
  type CompletionBody,
  completionSchema,
  isCompletionBody,
  readCompletionBody,
} from "../../../handlers/wire/completion_body.ts";
import { toCompletionInput } from "../../../handlers/wire/to_completion_input.ts";

// Values that are wrong almost everywhere, mixed in rarely enough that whole bodies are often right
const odd = fc.oneof(
  fc.constantFrom<unknown>(null, undefined, true, 0, -1, 1.5, 3, 1e300, Infinity, "", "auto", "text", [], {}, [1], {
    a: 1,
  }, ["x"]),
  fc.jsonValue({ maxDepth: 2 }),
);
const maybe = <T>(good: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 80, arbitrary: good as fc.Arbitrary<unknown> }, { weight: 1, arbitrary: odd });
const record = (entries: Record<string, fc.Arbitrary<unknown>>, requiredKeys: string[]) =>
  fc.record(Object.fromEntries(Object.entries(entries).map(([key, value]) => [key, maybe(value)])), { requiredKeys });
// The same bodies in every run, so that how many of them are good does not vary
const SEED = 20261121;
const nullable = (value: fc.Arbitrary<unknown>) => fc.oneof(value, fc.constant(null));

const part = maybe(fc.oneof(
  record({ type: fc.constant("text"), text: fc.string(), extra: fc.integer() }, ["type", "text"]),
  record({
    type: fc.constant("image_url"),
    image_url: record({
      url: fc.constantFrom(
        "https://x.test/a.png",
        "HTTP://x.test",
        "data:image/png;base64,AA",
        "file:///etc/passwd",
        "x",
      ),
      detail: fc.constantFrom("auto", "low", "high", null, "other"),
    }, ["url"]),
  }, ["type", "image_url"]),
  record({ type: fc.constantFrom("input_audio", "file", "refusal", "other"), data: fc.string() }, ["type"]),
));
const content = fc.oneof(fc.string(), fc.array(part, { maxLength: 3 }));
const call = record({
  id: fc.string(),
  type: fc.constant("function"),
  function: record({ name: fc.string(), arguments: fc.string() }, ["name", "arguments"]),
}, ["id", "type", "function"]);
const message = maybe(fc.oneof(
  record({
    role: fc.constantFrom("system", "developer", "user"),
    content,
    name: nullable(fc.string()),
    extra: fc.string(),
  }, ["role", "content"]),
  record({
    role: fc.constant("assistant"),
    content: nullable(content),
    refusal: nullable(fc.string()),
    tool_calls: nullable(fc.array(call, { maxLength: 2 })),
    opaque: fc.constant({ a: 1 }),
  }, ["role"]),
  record({ role: fc.constant("tool"), content, tool_call_id: fc.string() }, ["role", "content", "tool_call_id"]),
  record({ role: fc.constantFrom("function", "robot", "constructor"), content }, ["role"]),
));
const tool = record({
  type: fc.constant("function"),
  function: record({
    name: fc.constantFrom("add", "sub", "a b", "", "x".repeat(65)),
    description: nullable(fc.string()),
    parameters: fc.constantFrom({ type: "object" }, null, {}),
    strict: nullable(fc.boolean()),
  }, ["name"]),
}, ["type", "function"]);
const body = maybe(record({
  model: nullable(fc.string()),
  messages: fc.array(message, { maxLength: 4 }),
  stream: nullable(fc.boolean()),
  stream_options: nullable(record({ include_usage: nullable(fc.boolean()) }, [])),
  temperature: nullable(fc.double({ min: -1, max: 3, noNaN: true })),
  top_p: fc.constantFrom(0, 1, 0.5, null),
  max_tokens: nullable(fc.integer({ min: -2, max: 9 })),
  max_completion_tokens: fc.constantFrom(1, -1, null),
  stop: fc.oneof(fc.string(), fc.array(fc.string(), { maxLength: 3 }), fc.constant(null)),
  seed: fc.integer(),
  presence_penalty: fc.constantFrom(-2, 2, 0),
  frequency_penalty: fc.constantFrom(-2, 2, 0),
  response_format: fc.constantFrom({ type: "text" }, { type: "json_object", extra: 1 }, null),
  tools: nullable(fc.array(tool, { maxLength: 2 })),
  tool_choice: fc.constantFrom("auto", "none", "required", null, { type: "function", function: { name: "add" } }),
  parallel_tool_calls: nullable(fc.boolean()),
  user: fc.string(),
  metadata: nullable(fc.dictionary(fc.stringMatching(/^[a-z]{1,4}$/), fc.string())),
  reasoning_effort: fc.constantFrom("low", "high", null),
  n: fc.constantFrom(1, null, 2),
  logit_bias: fc.constant({}),
}, ["messages"]));

/** The body as the schema gives it; undefined when it refuses. */
function bySchema(value: unknown): CompletionBody | undefined {
  try {
    return checkBody(completionSchema, structuredClone(value), []);
  } catch {
    return undefined;
  }
}

test("the check by hand accepts and refuses exactly what the schema does", () => {
  let accepted = 0;
  fc.assert(
    fc.property(body, (value) => {
      const good = bySchema(value) !== undefined;
      if (good) accepted++;
      assert.equal(isCompletionBody(value), good);
    }),
    { numRuns: 200, seed: SEED },
  );
  assert.ok(accepted > 20, `only ${accepted} of the bodies were good: the generator tests too little`);
});

test("by hand or by schema, an accepted body means the same to the run", () => {
  fc.assert(
    fc.property(body, (value) => {
      const parsed = bySchema(value);
      fc.pre(parsed !== undefined);
      const byHand = outcome(() => toCompletionInput(readCompletionBody(value)));
      assert.deepEqual(byHand, outcome(() => toCompletionInput(parsed)));
    }),
    { numRuns: 100, seed: SEED },
  );
});

/** As JSON. Names of unknown fields in messages are left out: the schema has dropped them. */
function outcome(translate: () => ReturnType<typeof toCompletionInput>): unknown {
  try {
    const { ignored: _, ...input } = translate();
    return JSON.parse(JSON.stringify(input));
  } catch (error) {
    return String(error);
  }
}

test("what is refused by hand is refused by the schema, which says why", () => {
  fc.assert(
    fc.property(body, (value) => {
      fc.pre(!isCompletionBody(value));
      assert.throws(() => readCompletionBody(value), { code: "invalid_request", status: 400 });
    }),
    { numRuns: 100, seed: SEED },
  );
});

test("an array is no object, by hand and by schema", () => {
  const messages = [{ role: "user", content: "hi" }];
  const tools = [{ type: "function", function: { name: "add", parameters: [] } }];
  const bodies = [
    [],
    { messages: [[]] },
    { messages, metadata: [] },
    { messages, metadata: ["a"] },
    { messages, stream_options: [] },
    { messages, tools },
    { messages, response_format: [] },
    { messages, tool_choice: [] },
  ];
  for (const body of bodies) {
    assert.equal(isCompletionBody(body), false, JSON.stringify(body));
    assert.equal(bySchema(body), undefined, JSON.stringify(body));
  }
  assert.throws(() => readCompletionBody({ messages, metadata: [] }), {
    message: 'Cannot accept "metadata": expected an object, got an array',
  });
});
