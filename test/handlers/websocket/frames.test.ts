import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseFrame } from "../../../handlers/websocket/frames.ts";
import { anyCharacter } from "../../support/any_character.ts";

const TYPES = ["message", "cancel", "approve", "deny", "resume", "hello", "ping"];

test("any text that is no JSON object is the message, word for word", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1, unit: anyCharacter }), (text) => {
      fc.pre(text.trim() !== "" && !text.trimStart().startsWith("{"));
      assert.deepEqual(parseFrame(text), { ok: true, frame: { type: "message", text } });
    }),
    { numRuns: 200 },
  );
});

test("a message of blanks alone is refused", () => {
  for (const text of ["", "\n\n", '{"message":" "}', '{"type":"message","text":"\\t"}']) {
    assert.equal(parseFrame(text).ok, false, text);
  }
});

test("any JSON object is a frame or a reason without its values, and never an exception", () => {
  const fields = fc.dictionary(
    fc.constantFrom("type", "text", "message", "content", "approval_id", "run_id", "after", "events", "__proto__", "x"),
    fc.oneof(fc.constantFrom<unknown>(...TYPES, "wave", null, 3, "sk-secret"), fc.jsonValue({ maxDepth: 2 })),
  );
  fc.assert(
    fc.property(fields, (value) => {
      const parsed = parseFrame(JSON.stringify(value));
      if (parsed.ok) assert.ok(TYPES.includes(parsed.frame.type));
      else assert.doesNotMatch(parsed.reason, /sk-secret/);
    }),
    { numRuns: 200 },
  );
});

test("a frame of 2 MiB of braces is no trouble", () => {
  const text = '{"a":'.repeat(400_000);
  assert.deepEqual(parseFrame(text), { ok: true, frame: { type: "message", text } });
  const closed = `${text}1${"}".repeat(400_000)}`;
  assert.equal(parseFrame(closed).ok, true);
});

test("an answer to a question refuses fields it does not know, by name; other frames pass over them", () => {
  for (const type of ["approve", "deny"]) {
    const parsed = parseFrame(JSON.stringify({ type, approval_id: "apr_1", remeber: "sk-secret" }));
    assert.deepEqual(parsed, {
      ok: false,
      reason: `Cannot read the "${type}" frame: it has no field "remeber"`,
    });
  }
  assert.equal(parseFrame('{"type":"ping","x":1}').ok, true);
});

test("the answer to what a server asks has content, and a denial has none", () => {
  const frame = { type: "approve", approval_id: "apr_1", content: { name: "Ada" } };
  assert.deepEqual(parseFrame(JSON.stringify(frame)), { ok: true, frame });
  assert.equal(parseFrame('{"type":"approve","approval_id":"apr_1","content":"Ada"}').ok, false);
  assert.equal(parseFrame('{"type":"deny","approval_id":"apr_1","content":{}}').ok, false);
});
