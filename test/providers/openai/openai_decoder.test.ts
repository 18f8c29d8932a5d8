import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import { OpenAiDecoder } from "../../../lib/providers/openai/openai_decoder.ts";
import { EventStreamDecoder } from "../../../lib/system/net/event_stream_decoder.ts";
import { anyCharacter } from "../../support/any_character.ts";

const upstream = { name: "up", keySource: undefined, key: undefined, now: () => 0 };
const MAX_BYTES = 1_000_000;

interface Decoded {
  readonly events: readonly ProviderEvent[];
  readonly error: string | undefined;
}

/** Decodes pieces of a stream; neighbouring deltas stay apart, so that both ways must agree event by event. */
function decode(pieces: readonly Uint8Array[], fastScan: boolean): Decoded {
  let id = 0;
  const stream = new EventStreamDecoder({ maxBytes: MAX_BYTES });
  const decoder = new OpenAiDecoder({ upstream, nextId: () => `call_${id++}`, fastScan });
  const events: ProviderEvent[] = [];
  try {
    for (const piece of pieces) {
      for (const data of stream.push(piece)) if (decoder.push(data, events)) return { events, error: undefined };
    }
    decoder.end(stream.end(), events);
    return { events, error: undefined };
  } catch (error) {
    return { events, error: String(error) };
  }
}

function cut(bytes: Uint8Array, sizes: readonly number[]): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  let at = 0;
  for (let i = 0; at < bytes.length; i++) {
    const size = sizes.length === 0 ? bytes.length : sizes[i % sizes.length] ?? 1;
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return pieces;
}

const text = fc.oneof(
  fc.string({ unit: anyCharacter, maxLength: 12 }),
  fc.string({ maxLength: 8 }),
  fc.constantFrom(
    "",
    " ",
    '"',
    "\\",
    "\\u0041",
    '","x":"',
    "\n",
    "\r\n\r\n",
    "data: [DONE]",
    "\u2028",
    "😀",
    "\u0000",
    "é",
  ),
);

// Chunks of the known shape, and ones that look like it: other members before and after, other choices, nulls, extra deltas
const chunk = fc.oneof(
  { weight: 6, arbitrary: text.map((content) => shape({ content })) },
  { weight: 2, arbitrary: text.map((content) => shape({ reasoning_content: content })) },
  {
    weight: 3,
    arbitrary: fc.record({
      content: text,
      other: text,
      extra: fc.constantFrom("content", "role", "refusal", "tool_calls", "name"),
    })
      .map(({ content, other, extra }) =>
        shape({ content, [extra]: extra === "tool_calls" ? [{ index: 0, function: { name: other } }] : other })
      ),
  },
  {
    weight: 1,
    arbitrary: text.map((content) => ({ ...shape({ content }), usage: { prompt_tokens: 1, completion_tokens: 2 } })),
  },
  { weight: 1, arbitrary: text.map((content) => ({ ...shape({ content }), created: content.length })) },
  { weight: 1, arbitrary: text.map((content) => ({ ...shape({}), content })) },
  { weight: 1, arbitrary: fc.constantFrom("stop", "length", null).map((reason) => shape({}, reason)) },
);

function shape(delta: object, finish_reason: string | null = null) {
  return {
    id: "c1",
    object: "chat.completion.chunk",
    created: 1,
    model: "m",
    choices: [{ index: 0, delta, logprobs: null, finish_reason }],
  };
}

const stream = fc.record({
  chunks: fc.array(chunk, { maxLength: 12 }),
  newline: fc.constantFrom("\n", "\r\n", "\r"),
  space: fc.constantFrom(" ", ""),
  bom: fc.boolean(),
  comments: fc.boolean(),
  multiline: fc.boolean(),
  ascii: fc.boolean(),
  done: fc.boolean(),
}).map((parts) => {
  const { newline, space } = parts;
  const encode = (value: unknown) => {
    const json = parts.multiline ? JSON.stringify(value, undefined, 1) : JSON.stringify(value);
    const escaped = parts.ascii
      ? json.replaceAll(/[^ -~\n]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)
      : json;
    return escaped.split("\n").map((line) => `data:${space}${line}${newline}`).join("") + newline;
  };
  const comment = parts.comments ? `: keep-alive${newline}event: message${newline}${newline}` : "";
  const body = parts.chunks.map((value) => comment + encode(value)).join("");
  const end = parts.done ? encode(shape({}, "stop")) + `data:${space}[DONE]${newline}${newline}` : "";
  return new TextEncoder().encode((parts.bom ? "\uFEFF" : "") + body + end);
});

test("fast scan and JSON.parse agree on every stream, wherever it is cut", () => {
  fc.assert(
    fc.property(stream, fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 6 }), (bytes, sizes) => {
      const whole = decode([bytes], false);
      assert.deepEqual(decode([bytes], true), whole);
      assert.deepEqual(decode(cut(bytes, sizes), true), whole);
      assert.deepEqual(decode(cut(bytes, sizes), false), whole);
    }),
    { numRuns: 200 },
  );
});

test("usage that was told stays, whatever a later chunk leaves out of it", () => {
  const usage = { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 };
  const told = { ...shape({ content: "a" }), usage };
  const later = [null, undefined, {}, { prompt_tokens: 1 }, "none"].map((usage) => ({
    ...shape({}, "stop"),
    ...(usage === undefined ? {} : { usage }),
  }));
  for (const chunk of later) {
    for (const isFast of [true, false]) {
      const body = [told, chunk].map((each) => `data: ${JSON.stringify(each)}\n\n`).join("") + "data: [DONE]\n\n";
      const finish = decode([new TextEncoder().encode(body)], isFast).events.at(-1);
      assert.deepEqual(finish?.type === "finish" && finish.usage, usage, JSON.stringify(chunk));
    }
  }
});

test("cutting a stream at each single byte changes nothing", () => {
  const bytes = new TextEncoder().encode(
    `\uFEFF: hi\r\n\r\ndata: ${JSON.stringify(shape({ content: "a😀é" }))}\r\n\r\ndata:${
      JSON.stringify(shape({ content: '\\"' }))
    }\n\n` +
      `data: ${JSON.stringify(shape({}, "stop"))}\r\rdata: [DONE]\r\n\r\n`,
  );
  const whole = decode([bytes], false);
  assert.equal(whole.error, undefined);
  for (let at = 1; at < bytes.length; at++) {
    assert.deepEqual(decode([bytes.subarray(0, at), bytes.subarray(at)], true), whole);
  }
});

test("a chunk that repeats the delta's member is read as JSON.parse reads it", () => {
  const line = (inner: string) => `data: {"choices":[{"index":0,"delta":{${inner}},"finish_reason":null}]}\n\n`;
  const body = line('"content":"a","content":"b"') + line('"content":"c","content":"b"') +
    line('"content":"a","content":"d"') +
    'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';
  const bytes = new TextEncoder().encode(body);
  assert.deepEqual(decode([bytes], true), decode([bytes], false));
});

test("a text that also stands elsewhere in its chunk is not taken from there", () => {
  const line = (model: string, delta: string) =>
    `data: {"model":"${model}","choices":[{"index":0,"delta":{${delta}},"finish_reason":null}]}\n\n`;
  const body = line("m", '"content":"m"') + line("z", '"content":"m"') + line("m", '"content":"a","content":"a"') +
    line("m", '"content":"q","content":"a"');
  const texts = decode([new TextEncoder().encode(body)], true).events.map((event) =>
    event.type === "text_delta" && event.delta
  );
  assert.deepEqual(texts, ["m", "m", "a", "a"]);
});

test("broken UTF-8 becomes a replacement character, not an error", () => {
  const encoder = new TextEncoder();
  const body = Buffer.concat([
    encoder.encode('data: {"choices":[{"delta":{"content":"a'),
    Uint8Array.of(0xff, 0xc3),
    encoder.encode('b"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'),
  ]);
  assert.deepEqual(decode([body], true).events[0], { type: "text_delta", delta: "a\uFFFD\uFFFDb" });
});

test("data of many lines is bounded", () => {
  const stream = new EventStreamDecoder({ maxBytes: 100 });
  const lines = new TextEncoder().encode("data: 0123456789\n".repeat(20));
  assert.throws(() => stream.push(lines), RangeError);
});

test("a line that never ends is bounded", () => {
  const stream = new EventStreamDecoder({ maxBytes: 100 });
  assert.throws(() => {
    for (let i = 0; i < 20; i++) stream.push(new TextEncoder().encode("0123456789"));
  }, RangeError);
});

test("fields with a vendor's own reasoning name their provider, and others do not", () => {
  const told = (delta: object) => {
    const stream = new EventStreamDecoder({ maxBytes: MAX_BYTES });
    const decoder = new OpenAiDecoder({ upstream, nextId: () => "call_1", givesFields: true });
    const events: ProviderEvent[] = [];
    const data = new TextEncoder().encode(`data: ${JSON.stringify({ choices: [{ index: 0, delta }] })}\n\n`);
    for (const one of stream.push(data)) decoder.push(one, events);
    return events;
  };
  const details = [{ type: "reasoning.encrypted", data: "ZW5j" }];
  assert.deepEqual(told({ reasoning_details: details }), [
    { type: "reply_fields", message: { reasoning_details: details }, provider: "up" },
  ]);
  assert.deepEqual(told({ mood: "calm" }), [{ type: "reply_fields", message: { mood: "calm" } }]);
});
