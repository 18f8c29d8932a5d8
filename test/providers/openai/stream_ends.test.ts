import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test, type TestContext } from "node:test";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { toChunk, toDelta, toSse, USAGE_CHUNK } from "../../../fixtures/upstream/openai_upstream.ts";
import type { ProviderEvent } from "../../../lib/base/records/provider_event.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import type { ProviderHttpRequest } from "../../../lib/system/net/http_exchange.ts";
import type { ProviderSettings } from "../../../lib/providers/provider_settings.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { until } from "../../support/until.ts";
import { collect, NEVER, noticesOf, REQUEST, setUp, textOf } from "../support/provider_setup.ts";

type Settings = Partial<ProviderSettings>;

/** A provider whose server streams what the test writes, and the reply under way. */
async function stream(context: TestContext, settings: Settings = {}) {
  const clock = createFakeClock();
  const replies: ServerResponse[] = [];
  const upstream = await startFakeServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    replies.push(response);
  });
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { base_url: `${upstream.origin}/v1`, ...settings }, { clock });
  const { provider } = providers.resolve("");
  const reading = collect(provider).then((events) => ({ events, error: undefined }), (error: unknown) => {
    assert.ok(error instanceof ProviderError, String(error));
    return { events: [] as ProviderEvent[], error };
  });
  await until(() => replies.length > 0);
  const [reply] = replies as [ServerResponse];
  return { clock, upstream, provider, reading, reply };
}

const TEXT = toSse(toDelta({ content: "fine" }));
const USAGE = { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };
const FINISH = toSse(toDelta({}, "stop"));

const anthropic = (events: readonly Record<string, unknown>[]) => events.map((event) => toSse(event)).join("");
const SAID = anthropic([
  { type: "message_start", message: { model: "m", usage: { input_tokens: 12, output_tokens: 1 } } },
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "fine" } },
  { type: "content_block_stop", index: 0 },
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 3 } },
]);

/** Streams whose last word is said, and whether their usage was. */
const COMPLETE: readonly (readonly [what: string, body: string, settings?: Settings])[] = [
  ["chat completions", TEXT + FINISH + toSse(USAGE_CHUNK)],
  [
    "chat completions with the usage beside the finish reason",
    TEXT + toSse({ ...toDelta({}, "stop"), usage: USAGE }),
  ],
  ["the Messages API", SAID, { kind: "anthropic" }],
];

for (const [what, body, settings] of COMPLETE) {
  test(`a stream that has said all, and is left open, ends at once: ${what}`, async (t) => {
    const { reply, reading, clock, upstream } = await stream(t, { ...settings });
    reply.write(body);
    const { events, error } = await reading;
    assert.equal(error, undefined);
    assert.equal(textOf(events), "fine");
    assert.deepEqual(noticesOf(events), []);
    const last = events.at(-1);
    assert.deepEqual(last?.type === "finish" && [last.finish_reason, last.usage?.completion_tokens], ["stop", 3]);
    // The connection is kept for a second, should the stream end after all
    await clock.advance(1_000);
    assert.deepEqual(await upstream.requests[0]?.closed, { complete: false });
    assert.equal(clock.pending(), 0);
  });
}

test("a stop reason of the Messages API waits for the usage that follows", async (t) => {
  const { reply, reading } = await stream(t, { kind: "anthropic", timeout_secs: 3600 });
  const events = SAID.split("\n\n").slice(0, 4);
  const stop = toSse({ type: "message_delta", delta: { stop_reason: "end_turn" } });
  await new Promise<void>((resolve) => reply.write(`${events.join("\n\n")}\n\n${stop}`, () => resolve()));
  reply.write(toSse({ type: "message_delta", delta: {}, usage: { output_tokens: 3 } }));
  const last = (await reading).events.at(-1);
  assert.equal(last?.type === "finish" && last.usage?.completion_tokens, 3);
});

test("a stream without its usage that is left open ends by the clock", async (t) => {
  const { reply, reading, clock } = await stream(t, { timeout_secs: 3600 });
  let isOver = false;
  void reading.then(() => isOver = true);
  reply.write(TEXT + FINISH);
  await until(async () => {
    await clock.advance(100);
    return isOver;
  });
  const { events, error } = await reading;
  assert.equal(error, undefined);
  assert.deepEqual([textOf(events), noticesOf(events)], ["fine", ["usage_missing"]]);
  assert.equal(clock.pending(), 0);
});

for (const how of ["is cut", "ends"] as const) {
  test(`a stream that ${how} after its finish reason is whole`, async (t) => {
    const { reply, reading } = await stream(t);
    await new Promise<void>((resolve) => reply.write(TEXT + FINISH, () => resolve()));
    if (how === "ends") reply.end();
    else reply.destroy();
    const { events, error } = await reading;
    assert.equal(error, undefined);
    assert.equal(textOf(events), "fine");
    assert.equal(events.at(-1)?.type, "finish");
  });
}

test("usage that comes within the second counts", async (t) => {
  const { reply, reading, clock } = await stream(t);
  reply.write(TEXT + FINISH);
  await clock.advance(500);
  reply.write(toSse(USAGE_CHUNK));
  const { events } = await reading;
  assert.deepEqual(noticesOf(events), []);
});

test("a server that gives a finish reason and the usage with each part is read to its end", async (t) => {
  const { reply, reading } = await stream(t);
  for (const content of ["one ", "two ", "three"]) {
    await new Promise<void>((resolve) =>
      reply.write(toSse({ ...toDelta({ content }, "stop"), usage: USAGE }), () => resolve())
    );
  }
  reply.end("data: [DONE]\n\n");
  assert.equal(textOf((await reading).events), "one two three");
});

test("an event of a stream may be as long as a reply in one piece, and beyond that nobody asks again", async (t) => {
  const { reply, reading } = await stream(t);
  const content = "x".repeat(6 * 1024 * 1024);
  reply.end(toSse(toDelta({ content })) + FINISH + toSse(USAGE_CHUNK) + "data: [DONE]\n\n");
  assert.equal(textOf((await reading).events).length, content.length);
  const long = await stream(t, { max_retries: 2 });
  long.reply.end(`data: ${"x".repeat(33 * 1024 * 1024)}`);
  const { error } = await long.reading;
  assert.match(error?.message ?? "", /longer than 33554432 bytes/);
  assert.equal(long.upstream.requests.length, 1);
});

const NOTHING = [
  [": keep-alive\n\n", "comments"],
  [toSse(toDelta({ content: "" })), "empty deltas"],
  [toSse(toChunk([{ index: 0, delta: {}, finish_reason: null }], { waiting: 1 })), "fields"],
] as const;

for (const [part, what] of NOTHING) {
  test(`a stream that is held open and says nothing ends after silence_secs: ${what}`, async (t) => {
    const { reply, reading, clock, upstream } = await stream(t, {
      timeout_secs: 3600,
      silence_secs: 40,
      max_retries: 2,
    });
    let isOver = false;
    void reading.then(() => isOver = true);
    let seconds = 0;
    for (; seconds < 1_000 && !isOver; seconds++) {
      await new Promise<void>((resolve) => reply.write(part, () => resolve()));
      await clock.advance(1_000);
    }
    const { error } = await reading;
    assert.equal(error?.code, "provider_timeout");
    assert.match(error?.message ?? "", /said nothing within 40 s \(silence_secs\)/);
    // Time in which nobody waits for a read does not count
    assert.ok(seconds >= 39 && seconds < 1_000, `${seconds} s`);
    assert.equal(upstream.requests.length, 1, "what came was paid");
    assert.equal(clock.pending(), 0);
  });
}

test("by default it is ten times timeout_secs, and a reply in one piece has as long as it may take", async (t) => {
  const bounds: (number | undefined)[] = [];
  const net = () => ({
    origin: "http://up.test",
    send({ silenceMs }: ProviderHttpRequest) {
      bounds.push(silenceMs);
      return Promise.reject(new ProviderError("provider_rejected", "No", { provider: "up" }));
    },
    close: () => Promise.resolve(),
  });
  for (const silence_secs of [0, 7]) {
    const settings = { base_url: "http://up.test", timeout_secs: 4, silence_secs };
    const { provider } = (await setUp(t, settings, { net })).providers.resolve("");
    for (const whole of [false, true]) {
      const asked = provider.stream(REQUEST, { signal: NEVER, whole })[Symbol.asyncIterator]().next();
      await assert.rejects(asked, { code: "provider_rejected" });
    }
  }
  assert.deepEqual(bounds, [40_000, 40_000, 7_000, 20_000]);
});

test("reasoning counts as said", async (t) => {
  const clock = createFakeClock();
  let reply: ServerResponse | undefined;
  const upstream = await startFakeServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    reply = response;
  });
  t.after(() => upstream.close());
  const { providers } = await setUp(t, { base_url: upstream.origin, silence_secs: 40, timeout_secs: 3600 }, { clock });
  const events = providers.resolve("").provider.stream(REQUEST, { signal: NEVER })[Symbol.asyncIterator]();
  for (let turn = 0; turn < 6; turn++) {
    const next = events.next();
    await until(() => reply !== undefined);
    await clock.advance(30_000);
    reply?.write(toSse(toDelta({ reasoning_content: "hm" })));
    assert.deepEqual((await next).value, [{ type: "reasoning_delta", delta: "hm" }]);
  }
  await events.return?.();
});
