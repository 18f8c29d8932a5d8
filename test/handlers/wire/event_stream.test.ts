import assert from "node:assert/strict";
import { test } from "node:test";
import { type EventEncoder, eventStream, KEEP_ALIVE_MS } from "../../../handlers/wire/event_stream.ts";
import { refuse } from "../../../lib/base/errors.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

const delta = (text: string) => [{ seq: 1, time: "", type: "text_delta", delta: text }] as const;

/** Deltas as they are; `end` is the end. */
function createPlainEncoder(): EventEncoder {
  let ended = false;
  return {
    start: () => "<",
    encode(events) {
      if (ended) return "";
      const text = events.map((event) => (event.type === "text_delta" ? event.delta : "")).join("");
      ended ||= text.includes("end");
      return text;
    },
    fail: ({ message }) => `!${message}`,
    get ended() {
      return ended;
    },
  };
}

function streaming(iteration: AsyncIterable<readonly AgentEvent[]>) {
  const clock = createFakeClock();
  let left = 0;
  const body = eventStream({
    opening: { iterator: iteration[Symbol.asyncIterator](), held: [], pending: undefined },
    encoder: createPlainEncoder(),
    clock,
    toError: (error) => refuse("internal_error", error === undefined ? "silence" : String(error)),
    onLeave: () => void left++,
  });
  return { clock, body, left: () => left };
}

async function* said(...texts: readonly string[]) {
  for (const text of texts) yield delta(text);
}

async function* broken() {
  yield delta("a");
  throw new Error("torn");
}

/** By the stream's own reader, and by whatever reads web streams without it. */
const READINGS = {
  "its reader": async (body: ReadableStream<Uint8Array>) => {
    const reader = body.getReader();
    let text = "";
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += Buffer.from(next.value);
    await reader.closed;
    return text;
  },
  "a response": (body: ReadableStream<Uint8Array>) => new Response(body).text(),
  "a pipe": async (body: ReadableStream<Uint8Array>) => {
    let text = "";
    await body.pipeTo(new WritableStream({ write: (piece) => void (text += Buffer.from(piece)) }));
    return text;
  },
};

for (const [name, readAll] of Object.entries(READINGS)) {
  test(`${name} gets every piece, the end, and nothing after it`, async () => {
    const { body, clock, left } = streaming(said("a", "", "b", "end", "late"));
    assert.equal(await readAll(body), "<abend");
    assert.deepEqual([clock.pending(), left()], [0, 0]);
  });

  test(`${name} is told of an iteration that breaks or ends too early`, async () => {
    assert.match(await readAll(streaming(broken()).body), /^<a!.*torn/);
    assert.match(await readAll(streaming(said("a")).body), /^<a!silence/);
  });
}

test("reads that are asked for at once are answered in their order, and after the end for ever", async () => {
  const { body } = streaming(said("a", "b", "end"));
  const reader = body.getReader();
  const pieces = await Promise.all(Array.from({ length: 7 }, () => reader.read()));
  assert.deepEqual(pieces.map(({ value }) => value && Buffer.from(value).toString()), [
    ...["<", "a", "b", "end"],
    ...[undefined, undefined, undefined],
  ]);
  assert.equal((await reader.read()).done, true);
});

test("a silence is told to whoever waits, and the events that were waited for come next", async () => {
  let say = (_: string) => {};
  const { body, clock } = streaming((async function* () {
    yield delta(await new Promise<string>((resolve) => (say = resolve)));
    yield delta("end");
  })());
  const reader = body.getReader();
  const read = async () => Buffer.from((await reader.read()).value ?? []).toString();
  assert.equal(await read(), "<");
  const silent = read();
  await clock.advance(KEEP_ALIVE_MS);
  assert.equal(await silent, ": keep-alive\n\n");
  const next = read();
  say("a");
  assert.deepEqual([await next, await read()], ["a", "end"]);
});

test("a reader that leaves in the middle of a read ends the run once, and reads no more", async () => {
  const { body, clock, left } = streaming((async function* (): AsyncGenerator<readonly AgentEvent[]> {
    yield await new Promise<never>(() => {});
  })());
  const reader = body.getReader();
  await reader.read();
  const waiting = reader.read();
  await reader.cancel();
  await reader.cancel();
  assert.equal((await waiting).done, true);
  assert.equal((await reader.read()).done, true);
  assert.deepEqual([left(), clock.pending()], [1, 0]);
});

test("a reader that leaves after the end was written has not left the run", async () => {
  const { body, clock, left } = streaming((async function* (): AsyncGenerator<readonly AgentEvent[]> {
    yield delta("end");
    yield await new Promise<never>(() => {});
  })());
  const reader = body.getReader();
  assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "<");
  assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "end");
  await reader.cancel();
  assert.deepEqual([left(), clock.pending()], [0, 0]);
});

test("a stream has one reader at a time", () => {
  const { body } = streaming(said("end"));
  const reader = body.getReader();
  assert.throws(() => body.getReader(), TypeError);
  reader.releaseLock();
  body.getReader();
});
