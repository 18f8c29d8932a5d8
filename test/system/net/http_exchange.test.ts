import assert from "node:assert/strict";
import { test } from "node:test";
import type { Dispatcher } from "undici";
import { CancelError } from "../../../lib/base/cancel.ts";
import { createExchangeQueues, type HttpExchange, startExchange } from "../../../lib/system/net/http_exchange.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** A request that was sent, and the network as its handler sees it. */
function send(
  { signal = new AbortController().signal, ...limits }: {
    signal?: AbortSignal;
    wholeBytes?: number;
    silenceMs?: number;
    paused?: boolean;
  } = {},
) {
  const clock = createFakeClock();
  let isBroken = false;
  const controller = {
    abort: () => isBroken = true,
    pause() {},
    resume: () => assert.fail("it is over"),
    paused: limits.paused ?? limits.wholeBytes === undefined,
  };
  let handler: Dispatcher.DispatchHandler = {};
  const dispatch = (_: unknown, given: Dispatcher.DispatchHandler) => {
    handler = given;
    return true;
  };
  const request = { method: "GET", path: "/", headers: {}, signal, timeoutMs: 1000, ...limits } as const;
  const context = { provider: "up", origin: "http://up.test", clock, queues: createExchangeQueues() };
  // No more of them is asked
  const sent = startExchange({ dispatch } as unknown as Dispatcher, request, context);
  let isGiven = false;
  sent.then(() => isGiven = true, () => {});
  const network = controller as unknown as Dispatcher.DispatchController;
  handler.onRequestStart?.(network, {});
  return {
    sent,
    clock,
    isBroken: () => isBroken,
    async isGiven() {
      await new Promise((resolve) => setImmediate(resolve));
      return isGiven;
    },
    head: (status: number, type: string) => handler.onResponseStart?.(network, status, { "content-type": type }),
    come: (text: string) => handler.onResponseData?.(network, Buffer.from(text)),
    end: () => handler.onResponseEnd?.(network, {}),
    fail: () => handler.onResponseError?.(network, new Error("reset")),
  };
}

/** An exchange whose head has come. */
async function begun(signal?: AbortSignal, limits: { silenceMs?: number; paused?: boolean } = {}) {
  const network = send({ ...(signal && { signal }), ...limits });
  network.head(200, "text/event-stream");
  return { ...network, exchange: await network.sent };
}

const read = async (exchange: HttpExchange) => Buffer.from(await exchange.read() ?? []).toString();

test("what came before the connection broke is read first, however late", async () => {
  const { exchange, come, fail, clock } = await begun();
  for (const text of ["one ", "two"]) come(text);
  fail();
  assert.equal(clock.pending(), 0);
  assert.equal(await read(exchange), "one two");
  await assert.rejects(exchange.read(), { code: "provider_error" });
});

test("a head and what came with it are given, though the connection breaks in the same turn", async () => {
  const { sent, head, come, fail } = send();
  head(200, "text/event-stream");
  come("some");
  fail();
  const exchange = await sent;
  assert.equal(await read(exchange), "some");
  await assert.rejects(exchange.read(), { code: "provider_error", message: /in the middle of its reply/ });
});

test("who has gone reads nothing any more", async () => {
  const controller = new AbortController();
  const { exchange, come } = await begun(controller.signal);
  come("one");
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(exchange.read(), { reason: "client_gone" });
});

test("a reply that is wanted whole is given with its last byte, and needs no wait", async () => {
  const { sent, head, come, end, isGiven } = send({ wholeBytes: 100 });
  head(200, "application/json");
  come('{"a":');
  assert.equal(await isGiven(), false);
  come("1}");
  end();
  const all = (await sent).whole(100);
  assert.ok(all instanceof Uint8Array);
  assert.equal(Buffer.from(all).toString(), '{"a":1}');
});

test("one that is longer than was asked for is given up at once", async () => {
  const { sent, head, come, isBroken } = send({ wholeBytes: 4 });
  head(200, "application/json");
  for (const text of ["123", "45"]) come(text);
  assert.equal((await sent).whole(4), undefined);
  assert.equal(isBroken(), true);
});

test("a refusal and an event stream are given with their head all the same", async () => {
  for (const [status, type] of [[500, "application/json"], [200, "text/event-stream; charset=utf-8"]] as const) {
    const { sent, head, come } = send({ wholeBytes: 100 });
    head(status, type);
    const exchange = await sent;
    come("some");
    assert.equal(await read(exchange), "some", type);
  }
});

test("one that falls silent or breaks off half-way is an error", async () => {
  const silent = send({ wholeBytes: 100 });
  silent.head(200, "application/json");
  silent.come("{");
  await silent.clock.advance(1000);
  await assert.rejects(silent.sent, { code: "provider_timeout" });
  const broken = send({ wholeBytes: 100 });
  broken.head(200, "application/json");
  broken.come("{");
  broken.fail();
  await assert.rejects(broken.sent, { code: "provider_error", message: /in the middle of its reply/ });
});

test("those that end in one turn are given in their order, a cancelled one too: all of it was there", async () => {
  const controller = new AbortController();
  const given: number[] = [];
  const replies = Array.from({ length: 40 }, (_, i) => {
    const reply = send({ wholeBytes: 100, signal: controller.signal });
    reply.sent.then(() => given.push(i), () => {});
    reply.head(200, "application/json");
    reply.come(String(i));
    reply.end();
    return reply;
  });
  controller.abort();
  assert.deepEqual(given, []);
  const texts = await Promise.all(replies.map(async ({ sent }) => Buffer.from(await (await sent).whole(100) ?? [])));
  assert.deepEqual(texts.map(String), [...given.keys()].map(String));
  assert.deepEqual(given, given.toSorted((a, b) => a - b));
  assert.equal(given.length, 40);
});

test("a reply that comes and says nothing ends after its bound, which begins again with each word", async () => {
  const { exchange, come, clock } = await begun(undefined, { silenceMs: 3000, paused: false });
  const wait = async (ms: number) => {
    const reading = exchange.read().then(() => "read", (error: Error) => error.message);
    await clock.advance(ms);
    come("x");
    return await reading;
  };
  for (let i = 0; i < 3; i++) assert.equal(await wait(900), "read");
  exchange.said();
  for (let i = 0; i < 3; i++) assert.equal(await wait(900), "read");
  // While nobody waits, no time counts
  await clock.advance(60_000);
  assert.equal(await wait(200), "read");
  assert.match(await wait(200), /said nothing within 3 s/);
  assert.equal(clock.pending(), 0);
});

test("spaces in the place of a whole reply do not hold it for ever", async () => {
  const { sent, head, come, clock } = send({ wholeBytes: 100, silenceMs: 3000 });
  head(200, "application/json");
  const reading = sent.then(() => "given", (error: Error) => error.message);
  for (let i = 0; i < 4; i++) {
    come(" ");
    await clock.advance(900);
  }
  assert.match(await reading, /said nothing within 3 s/);
});

test("once all was said, a break is an end, and so is the time that was given", async () => {
  const cut = await begun(undefined, { paused: false });
  cut.come("all");
  assert.equal(await read(cut.exchange), "all");
  cut.exchange.hurry(1000);
  cut.come("usage");
  cut.fail();
  assert.equal(await read(cut.exchange), "usage", "what came is read");
  assert.equal(await cut.exchange.read(), undefined);
  const open = await begun();
  open.exchange.hurry(1000);
  const next = open.exchange.read();
  await open.clock.advance(999);
  assert.equal(open.isBroken(), false);
  await open.clock.advance(1);
  assert.equal(await next, undefined);
  assert.ok(open.isBroken());
  assert.equal(open.clock.pending(), 0);
  const controller = new AbortController();
  const left = await begun(controller.signal);
  left.exchange.hurry(1000);
  const reading = left.exchange.read();
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(reading, CancelError);
});
