import assert from "node:assert/strict";
import { test } from "node:test";
import type { Dispatcher } from "undici";
import { CancelError } from "../../../lib/base/cancel.ts";
import { type HttpExchange, startExchange } from "../../../lib/system/net/http_exchange.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** An exchange whose head has come, and the network as its handler sees it. */
async function begun(signal = new AbortController().signal) {
  const controller = { abort() {}, pause() {}, resume: () => assert.fail("it is over"), paused: true };
  let handler: Dispatcher.DispatchHandler = {};
  const dispatch = (_: unknown, given: Dispatcher.DispatchHandler) => {
    handler = given;
    return true;
  };
  const request = { method: "GET", path: "/", headers: {}, signal, timeoutMs: 1000 } as const;
  const context = { provider: "up", origin: "http://up.test", clock: createFakeClock() };
  // No more of them is asked
  const sent = startExchange({ dispatch } as unknown as Dispatcher, request, context);
  const network = controller as unknown as Dispatcher.DispatchController;
  handler.onRequestStart?.(network, {});
  handler.onResponseStart?.(network, 200, {});
  return {
    exchange: await sent,
    come: (text: string) => handler.onResponseData?.(network, Buffer.from(text)),
    fail: () => handler.onResponseError?.(network, new Error("reset")),
  };
}

const read = async (exchange: HttpExchange) => Buffer.from(await exchange.read() ?? []).toString();

test("what came before the connection broke is read first, however late", async () => {
  const { exchange, come, fail } = await begun();
  for (const text of ["one ", "two"]) come(text);
  fail();
  assert.equal(await read(exchange), "one two");
  await assert.rejects(exchange.read(), { code: "provider_error" });
});

test("who has gone reads nothing any more", async () => {
  const controller = new AbortController();
  const { exchange, come } = await begun(controller.signal);
  come("one");
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(exchange.read(), { reason: "client_gone" });
});
