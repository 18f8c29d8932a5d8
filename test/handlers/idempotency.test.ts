import assert from "node:assert/strict";
import { test } from "node:test";
import type { Handler, Route } from "../../handlers/route.ts";
import { textQuery } from "../../handlers/wire/lists.ts";
import { sendJson, sendReply, streamReply } from "../../handlers/wire/reply.ts";
import { refuse } from "../../lib/base/errors.ts";
import { createFakeServices } from "../support/fake_services.ts";
import { createTestRouter, errorOf, RESPONSE_CLASSES, type SendInit } from "../support/test_router.ts";

const key = (value = "k1") => ({ "idempotency-key": value });
const post = (handler: Handler, path = "/work"): Route => ({
  method: "POST",
  path,
  access: "chat",
  summary: "",
  query: { wait: textQuery("Anything") },
  reply: { status: 200, type: "application/json" },
  idempotency: "honoured",
  handler,
});

/** A handler that counts its calls and answers when it is told to. */
function counting() {
  const gate = Promise.withResolvers<void>();
  const seen = { calls: 0, aborted: false };
  const handler: Handler = async (_request, context) => {
    seen.calls++;
    const signal = context.signal;
    signal.addEventListener("abort", () => void (seen.aborted = true));
    await gate.promise;
    return sendJson(context, 201, { call: seen.calls }, { "x-own": "1" });
  };
  return { seen, handler, finish: () => gate.resolve() };
}

for (const [name, ResponseClass] of RESPONSE_CLASSES) {
  test(`${name}: a later repeat gets the stored reply, with its own request id, for 24 hours`, async () => {
    const work = counting();
    work.finish();
    const { send, services } = createTestRouter({ routes: [post(work.handler)], Response: ResponseClass });
    const first = await send("POST", "/work", { headers: key(), body: { a: 1 } });
    assert.equal(first.headers.get("idempotency-replayed"), null);
    assert.deepEqual(await first.json(), { call: 1 });
    await services.clock.advance(24 * 3_600_000 - 1);
    const again = await send("POST", "/work", { headers: { ...key(), "x-request-id": "second" }, body: { a: 1 } });
    assert.equal(again.status, 201);
    assert.equal(again.headers.get("idempotency-replayed"), "true");
    assert.equal(again.headers.get("x-own"), "1");
    assert.equal(again.headers.get("x-request-id"), "second");
    assert.equal(again.headers.get("content-type"), "application/json");
    assert.deepEqual(await again.json(), { call: 1 });
    await services.clock.advance(1);
    assert.deepEqual(await (await send("POST", "/work", { headers: key(), body: { a: 1 } })).json(), { call: 2 });
  });

  test(`${name}: repeats during the first wait for it, and the work is done once`, async () => {
    const work = counting();
    const { send } = createTestRouter({ routes: [post(work.handler)], Response: ResponseClass });
    const replies = Array.from({ length: 20 }, () => send("POST", "/work", { headers: key(), body: { a: 1 } }));
    setImmediate(work.finish);
    const answered = await Promise.all(replies);
    assert.equal(answered.filter(({ headers }) => headers.get("idempotency-replayed") === null).length, 1);
    const bodies = await Promise.all(answered.map((reply) => reply.json()));
    assert.deepEqual(bodies, Array(20).fill({ call: 1 }));
    assert.equal(work.seen.calls, 1);
  });
}

test("another body or query under the same key is 409, during the first and later", async () => {
  const work = counting();
  const { send } = createTestRouter({ routes: [post(work.handler)] });
  const first = send("POST", "/work", { headers: key(), body: { a: 1 } });
  const during = await send("POST", "/work", { headers: key(), body: { a: 2 } });
  work.finish();
  await first;
  const later = await send("POST", "/work", { headers: key(), body: { a: 2 } });
  const query = await send("POST", "/work?wait=1", { headers: key(), body: { a: 1 } });
  for (const reply of [during, later, query]) {
    assert.equal(reply.status, 409);
    assert.equal(reply.headers.get("x-should-retry"), "false");
    assert.equal((await errorOf(reply)).code, "idempotency_conflict");
  }
  assert.equal(work.seen.calls, 1);
});

test("the key is scoped to token, method and path, and each key is its own", async () => {
  const work = counting();
  work.finish();
  const { send } = createTestRouter({ routes: [post(work.handler), post(work.handler, "/other")] });
  const inits: [string, SendInit][] = [
    ["/work", { headers: key() }],
    ["/work", { headers: key(), token: "token_chat" }],
    ["/other", { headers: key() }],
    ["/work", { headers: key("k2") }],
    ["/work", {}],
    ["/work", {}],
  ];
  for (const [path, init] of inits) await send("POST", path, { ...init, body: {} });
  assert.equal(work.seen.calls, 6);
});

test("what no handler answered is not stored, nor a failure that may be tried again", async () => {
  const outcomes = [
    () => {
      throw refuse("provider_error", "Upstream failed");
    },
    () => {
      throw new Error("bug");
    },
    () => {
      throw refuse("provider_error", "Failed after an effect", { headers: { "x-should-retry": "false" } });
    },
  ];
  let calls = 0;
  const { send } = createTestRouter({ routes: [post(() => outcomes[calls++]?.() ?? assert.fail())] });
  const status = async (init: SendInit = {}) =>
    (await send("POST", "/work", { headers: key(), body: {}, ...init })).status;
  assert.equal(await status({ token: null }), 401);
  assert.deepEqual([await status(), await status(), await status(), await status(), await status()], [
    502,
    500,
    502,
    502,
    502,
  ]);
  assert.equal(calls, 3);
});

test("secret routes refuse the header, and a key must be 1-255 visible characters", async () => {
  const { send, services } = createTestRouter();
  for (const path of ["/pair", "/v1/ws-ticket", "/v1/pairing-code", "/v1/tokens"]) {
    const reply = await send("POST", path, { headers: { ...key(), "x-pairing-code": "GOOD-CODE" } });
    assert.deepEqual([reply.status, (await errorOf(reply)).param], [400, "Idempotency-Key"], path);
  }
  assert.equal(await services.tokens.count(), 0);
  for (const bad of ["", "a b", "ä", "x".repeat(256)]) {
    assert.equal((await send("POST", "/v1/ping", { headers: key(bad) })).status, 400, bad);
  }
});

test("the first client's leaving stops the work only when nobody else waits for it", async () => {
  const alone = counting();
  const one = createTestRouter({ routes: [post(alone.handler)] });
  const client = new AbortController();
  const pending = one.send("POST", "/work", { headers: key(), body: {}, signal: client.signal });
  await one.services.clock.advance(0);
  client.abort();
  assert.equal(alone.seen.aborted, true);
  alone.finish();
  await pending;

  const shared = counting();
  const two = createTestRouter({ routes: [post(shared.handler)] });
  const leaver = new AbortController();
  void two.send("POST", "/work", { headers: key(), body: {}, signal: leaver.signal });
  await two.services.clock.advance(0);
  const follower = new AbortController();
  const followed = two.send("POST", "/work", { headers: key(), body: {}, signal: follower.signal });
  await two.services.clock.advance(0);
  leaver.abort();
  assert.equal(shared.seen.aborted, false);
  follower.abort();
  assert.equal(shared.seen.aborted, true);
  shared.finish();
  await followed;
});

/** A stream of numbered events, each sent when it is asked for by `next`. */
function streaming(sizes: readonly number[] = [1, 1, 1]) {
  const seen = { calls: 0, cancelled: false };
  const gates = sizes.map(() => Promise.withResolvers<void>());
  const handler: Handler = (_request, context) => {
    seen.calls++;
    return sendReply(context, streamReply(events(), () => void (seen.cancelled = true)));
  };
  async function* events() {
    for (const [i, size] of sizes.entries()) {
      await gates[i]?.promise;
      yield new TextEncoder().encode(`data: ${String(i).repeat(size)}\n\n`);
    }
  }
  return { seen, handler, next: (i: number) => gates[i]?.resolve() };
}

test("a repeat during an event stream replays it from its start and follows to its end; later it comes from the store", async () => {
  const stream = streaming();
  const { send, services } = createTestRouter({ routes: [post(stream.handler)] });
  const first = await send("POST", "/work", { headers: key(), body: {} });
  const reader = first.body?.getReader() ?? assert.fail();
  stream.next(0);
  assert.equal(new TextDecoder().decode((await reader.read()).value), "data: 0\n\n");
  const repeat = await send("POST", "/work", { headers: key(), body: {} });
  assert.equal(repeat.headers.get("content-type"), "text/event-stream");
  assert.equal(repeat.headers.get("idempotency-replayed"), "true");
  assert.equal(repeat.headers.get("cache-control"), "no-cache, no-transform");
  stream.next(1);
  stream.next(2);
  const whole = "data: 0\n\ndata: 1\n\ndata: 2\n\n";
  assert.equal(await repeat.text(), whole);
  assert.equal(new TextDecoder().decode((await reader.read()).value), "data: 1\n\n");
  await services.clock.advance(0);
  const later = await send("POST", "/work", { headers: key(), body: {} });
  assert.equal(await later.text(), whole);
  assert.equal(later.headers.get("content-type"), "text/event-stream");
  assert.equal(stream.seen.calls, 1);
});

test("a stream goes on while one of its readers is left, stops with the last, and may then be asked for again", async () => {
  const stream = streaming();
  const { send, services } = createTestRouter({ routes: [post(stream.handler)] });
  const first = await send("POST", "/work", { headers: key(), body: {} });
  const second = await send("POST", "/work", { headers: key(), body: {} });
  await first.body?.cancel();
  assert.equal(stream.seen.cancelled, false);
  await second.body?.cancel();
  assert.equal(stream.seen.cancelled, true);
  await services.clock.advance(0);
  const again = await send("POST", "/work", { headers: key(), body: {} });
  for (const event of [0, 1, 2]) stream.next(event);
  assert.equal(await again.text(), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  assert.deepEqual([again.status, again.headers.get("idempotency-replayed"), stream.seen.calls], [200, null, 2]);
});

test("a repeat that comes while the reply is being kept waits for it, and does not find the claim alone", async () => {
  const base = createFakeServices();
  const gate = Promise.withResolvers<void>();
  let isHeld = false;
  const { store } = base;
  const { batch } = store;
  Object.assign(store, {
    batch: async (writes: Parameters<typeof batch>[0]) => {
      if (isHeld) await gate.promise;
      return await batch(writes);
    },
  });
  const handler: Handler = (_request, context) => {
    isHeld = true;
    return sendJson(context, 200, { done: true });
  };
  const { send } = createTestRouter({ routes: [post(handler)], services: base });
  assert.equal((await send("POST", "/work", { headers: key(), body: {} })).status, 200);
  await base.clock.advance(0);
  const repeat = send("POST", "/work", { headers: key(), body: {} });
  await base.clock.advance(0);
  gate.resolve();
  assert.equal((await repeat).status, 200);
});

test("a reply over 4 MiB reaches its client whole, is not kept, and a repeat is refused rather than run again", async () => {
  const size = 3 * 1024 * 1024;
  const stream = streaming([size, size, size]);
  const { send, services } = createTestRouter({ routes: [post(stream.handler)] });
  for (const i of [0, 1, 2]) stream.next(i);
  const first = await send("POST", "/work", { headers: key(), body: {} });
  assert.equal((await first.text()).length, 3 * (size + "data: \n\n".length));
  await services.clock.advance(0);
  const repeat = await send("POST", "/work", { headers: key(), body: {} });
  assert.deepEqual([repeat.status, (await errorOf(repeat)).code], [409, "idempotency_conflict"]);
  assert.equal(stream.seen.calls, 1);
});

test("a repeat with another x-postern-tools asks for something else: 409", async () => {
  const work = counting();
  work.finish();
  const { send } = createTestRouter({ routes: [post(work.handler)] });
  await send("POST", "/work", { headers: key(), body: { a: 1 } });
  const other = await send("POST", "/work", { headers: { ...key(), "x-postern-tools": "none" }, body: { a: 1 } });
  assert.equal((await errorOf(other)).code, "idempotency_conflict");
});

test("a repeat that asks for another version or beta of a format asks for something else: 409", async () => {
  const work = counting();
  work.finish();
  const { send } = createTestRouter({ routes: [post(work.handler)] });
  const ask = (headers: Record<string, string>) =>
    send("POST", "/work", { headers: { ...key(), ...headers }, body: { a: 1 } });
  assert.equal((await ask({ "anthropic-version": "2023-06-01", "anthropic-beta": "one" })).status, 201);
  assert.equal((await ask({ "anthropic-version": "2023-06-01", "anthropic-beta": "one" })).status, 201);
  for (const headers of [{}, { "anthropic-version": "2023-06-01", "anthropic-beta": "two" }]) {
    assert.equal((await ask(headers)).status, 409);
  }
});
