import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { EventStreamDecoder } from "../../../lib/system/net/event_stream_decoder.ts";

const encoder = new TextEncoder();

/** Data of every event that these pieces make, the one that nothing closed at the end. */
function decode(pieces: readonly string[], maxBytes = 1000): readonly string[] {
  return decodeBytes(pieces.map((piece) => encoder.encode(piece)), maxBytes);
}

function decodeBytes(pieces: readonly Uint8Array[], maxBytes = 1000): readonly string[] {
  const stream = new EventStreamDecoder({ maxBytes });
  const events = pieces.flatMap((piece) => [...stream.push(piece)]);
  const rest = stream.end();
  return rest === undefined ? events : [...events, rest];
}

/** The bytes of a text, each in a piece of its own. */
function eachByte(text: string): readonly Uint8Array[] {
  return [...encoder.encode(text)].map((byte) => Uint8Array.of(byte));
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

test("one mark of byte order is dropped at the start, also when it comes in pieces", () => {
  assert.deepEqual(decode(["\uFEFFdata: a\n\n"]), ["a"]);
  assert.deepEqual(decode(["\uFEFFdata: \uFEFFa\n\n\uFEFFdata: b\n\n"]), ["\uFEFFa"]);
  assert.deepEqual(decodeBytes(eachByte("\uFEFFdata: a\n\n")), ["a"]);
});

test("a character that two reads share is whole", () => {
  assert.deepEqual(decodeBytes(eachByte("data: für 你好 😀\n\n")), ["für 你好 😀"]);
});

test("empty reads and comments make no event, however many come", () => {
  assert.deepEqual(decode(["", ":\n\n", "", ": still here\n", "\n", "data: a", "", "\n", "", "\n", ""]), ["a"]);
  assert.deepEqual(decode(Array.from({ length: 50 }, () => ": still here\n\n"), 20), []);
});

test("every kind of line is bounded while it is unfinished", () => {
  for (const start of ["data: ", "id: ", "event: ", "retry: ", ": ", "other: ", ""]) {
    assert.doesNotThrow(() => decode([start, "x".repeat(100 - start.length), "\n"], 100), start);
    assert.throws(() => decode([start, "x".repeat(101 - start.length)], 100), RangeError, start);
  }
});

test("a line is bounded in bytes, not in characters", () => {
  assert.throws(() => decode([`data:${"😀".repeat(24)}`], 100), RangeError);
});

test("an event of many lines is bounded before it is closed", () => {
  const stream = new EventStreamDecoder({ maxBytes: 100 });
  for (let i = 0; i < 9; i++) assert.deepEqual(stream.push(encoder.encode("data: 0123456789\n")), []);
  assert.throws(() => stream.push(encoder.encode("data: 0123456789\n")), RangeError);
});

test("names and ids of other events do not count for the next one", () => {
  const event = `event: ${"e".repeat(60)}\nid: ${"i".repeat(60)}\ndata: ${"x".repeat(90)}\n\n`;
  assert.deepEqual(decode([event, event, event], 100), Array.from({ length: 3 }, () => "x".repeat(90)));
});

/** Returns the events of a whole text by the standard's rules, and an event that nothing closed. */
function expected(text: string): readonly string[] {
  const blocks: string[][] = [[]];
  for (const line of text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/)) {
    if (line === "") blocks.push([]);
    const [, value] = /^data(?::\x20?([^]*))?$/.exec(line) ?? [undefined, undefined];
    if (/^data(:|$)/.test(line)) blocks.at(-1)?.push(value ?? "");
  }
  return blocks.filter((block) => block.length > 0).map((block) => block.join("\n"));
}

const part = fc.oneof(
  fc.constantFrom(
    "data: ",
    "data:",
    "data",
    "dat",
    "event: x",
    "id: 1",
    "id: \0",
    "retry: 5",
    "retry: no",
    ":",
    ": comment",
    " ",
  ),
  fc.constantFrom("\n", "\r", "\r\n", "\n\n", "\r\n\r\n"),
  fc.constantFrom("a", "{}", "😀", "é", "\u2028", "\uFEFF", "\0"),
  fc.string({ unit: "grapheme", maxLength: 5 }),
);

test("any text, cut anywhere, has the events that the standard says", () => {
  fc.assert(
    fc.property(
      fc.array(part, { maxLength: 30 }).map((parts) => parts.join("")),
      fc.array(fc.integer({ min: 0, max: 7 }), { maxLength: 10 }),
      (text, sizes) => {
        const bytes = encoder.encode(text);
        const pieces: Uint8Array[] = [];
        let at = 0;
        for (const size of sizes) pieces.push(bytes.subarray(at, at += size));
        pieces.push(bytes.subarray(at));
        assert.deepEqual(decodeBytes(pieces), expected(text));
      },
    ),
    { numRuns: 2_000 },
  );
});
