import assert from "node:assert/strict";
import { test } from "node:test";
import { SseDecoder } from "../../lib/providers/sse_decoder.ts";

const encoder = new TextEncoder();

/** Data of every event that these pieces make, the one that nothing closed at the end. */
function decode(pieces: readonly string[], maxBytes = 1000): readonly (string | undefined)[] {
  const sse = new SseDecoder({ maxBytes });
  const events = pieces.flatMap((piece) => [...sse.push(encoder.encode(piece))]);
  const rest = sse.end();
  return rest === undefined ? events : [...events, rest];
}

test("CR and LF end one line, also where nothing comes between them", () => {
  const lines = ["data: a", "data: b", "", "data: c", ""];
  assert.deepEqual(decode([lines.join("\r\n") + "\r\n"]), ["a\nb", "c"]);
  assert.deepEqual(decode(lines.flatMap((line) => [`${line}\r`, "", "\n"])), ["a\nb", "c"]);
  assert.deepEqual(decode(lines.flatMap((line) => [`${line}\r`, "", "", "\n"])), ["a\nb", "c"]);
  // Two CRs are two ends of a line
  assert.deepEqual(decode(["data: a\r", "", "\rdata: b\r\r"]), ["a", "b"]);
});

test("an event may be as long as the limit, and not one byte longer", () => {
  const line = `data:${"x".repeat(95)}`;
  assert.deepEqual(decode([line, "\n\n"], 100), ["x".repeat(95)]);
  assert.deepEqual(decode([line], 100), ["x".repeat(95)]);
  assert.throws(() => decode([line, "x"], 100), RangeError);
  assert.deepEqual(decode(["data:" + "x".repeat(50) + "\ndata:" + "y".repeat(50) + "\n\n"], 100), [
    `${"x".repeat(50)}\n${"y".repeat(50)}`,
  ]);
  assert.throws(() => decode(["data:" + "x".repeat(50) + "\ndata:" + "y".repeat(51) + "\n\n"], 100), RangeError);
});

test("names, ids and comments are dropped, and a field without a colon is an empty line of data", () => {
  assert.deepEqual(decode([": hello\nevent: x\nid: 1\nretry: 5\ndatabase: no\ndata\ndata:  two\ndata:\n\n\n"]), [
    "\n two\n",
  ]);
});
