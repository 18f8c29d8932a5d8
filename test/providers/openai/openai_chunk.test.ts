import assert from "node:assert/strict";
import { test } from "node:test";
import { callFieldsBeside, returnedFields, withContent } from "../../../lib/providers/openai/openai_chunk.ts";
import { fieldsBeside } from "../../../lib/providers/upstream/json_reading.ts";

test("fields beside the known ones are those with a value, zero, false and empty ones too", () => {
  const record = { id: "1", a: 0, b: false, c: "", d: null, e: undefined, f: [], g: { h: 1 } };
  assert.deepEqual(fieldsBeside(record, new Set(["id"])), { a: 0, b: false, c: "", f: [], g: { h: 1 } });
  assert.equal(fieldsBeside({ id: "1", d: null, e: undefined }, new Set(["id"])), undefined);
});

test("a piece of a stream keeps what has something in it, and a message made of nothing has no fields", () => {
  const fields = { a: 0, b: false, c: "", f: [], g: { h: 1 }, i: {}, j: "x", k: [0] };
  assert.deepEqual(withContent(fields), { a: 0, b: false, g: { h: 1 }, j: "x", k: [0] });
  assert.equal(withContent({ c: "", f: [], i: {} }), undefined);
  assert.equal(withContent(undefined), undefined);
});

test("what is a result for the reader does not go back to the vendor", () => {
  const fields = { reasoning: "r", annotations: [1], images: ["i"], reasoning_details: [{ type: "t" }], empty: "" };
  assert.deepEqual(returnedFields(fields), { reasoning_details: [{ type: "t" }] });
  assert.equal(returnedFields({ citations: ["c"], audio: { id: "a" } }), undefined);
});

test("a tool call keeps its own fields and those of its function, each in its place", () => {
  const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } };
  assert.equal(callFieldsBeside(call), undefined);
  assert.deepEqual(callFieldsBeside({ ...call, extra_content: { signature: "s" } }), {
    extra_content: { signature: "s" },
  });
  assert.deepEqual(callFieldsBeside({ ...call, function: { ...call.function, strict: true } }), {
    function: { strict: true },
  });
  assert.equal(callFieldsBeside({ ...call, function: null }), undefined);
});
