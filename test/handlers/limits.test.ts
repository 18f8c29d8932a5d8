import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestRouter, errorOf } from "../support/test_router.ts";

test("over the limit is 429 with Retry-After, until the window has moved on", async () => {
  const { send, services } = createTestRouter({ gateway: { rate_limit_max: 2, rate_limit_window_secs: 10 } });
  const remaining = [];
  for (let i = 0; i < 2; i++) {
    remaining.push((await send("POST", "/v1/ping")).headers.get("x-ratelimit-remaining-requests"));
  }
  assert.deepEqual(remaining, ["1", "0"]);
  const refused = await send("POST", "/v1/ping");
  assert.equal(refused.status, 429);
  assert.deepEqual([(await errorOf(refused)).code, refused.headers.get("x-ratelimit-remaining-requests")], [
    "rate_limited",
    "0",
  ]);
  const seconds = Number(refused.headers.get("retry-after"));
  assert.ok(seconds >= 10 && seconds <= 11, String(seconds));
  await services.clock.advance(seconds * 1000);
  assert.equal((await send("POST", "/v1/ping")).status, 200);
});

test("every request counts, refused and unknown ones too; probes have a window of their own", async () => {
  const { send } = createTestRouter({ gateway: { rate_limit_max: 3 } });
  await send("GET", "/nothing");
  await send("POST", "/v1/ping", { token: null });
  await send("POST", "/pair");
  assert.equal((await send("POST", "/v1/ping")).status, 429);
  for (const path of ["/health", "/health/live", "/metrics"]) assert.equal((await send("GET", path)).status, 200);
  assert.equal((await send("GET", "/health")).status, 429);
  assert.equal((await send("OPTIONS", "/v1/ping")).status, 204);
});

test("rate_limit_max = 0 turns the limit and its headers off", async () => {
  const { send } = createTestRouter({ gateway: { rate_limit_max: 0 } });
  for (let i = 0; i < 50; i++) assert.equal((await send("GET", "/health")).status, 200);
  assert.equal((await send("GET", "/health")).headers.get("x-ratelimit-limit-requests"), null);
});

test("rate_limit_per_identity counts by token, else by peer address", async () => {
  const { send } = createTestRouter({ gateway: { rate_limit_per_identity: 1 } });
  assert.equal((await send("POST", "/v1/ping", { token: "token_chat" })).status, 200);
  assert.equal((await send("POST", "/v1/ping", { token: "token_chat" })).status, 429);
  assert.equal((await send("POST", "/v1/ping", { token: "token_admin" })).status, 200);
  const anonymous = (remoteAddress: string) => send("GET", "/openapi.json", { token: null, remoteAddress });
  assert.deepEqual([
    (await anonymous("10.0.0.1")).status,
    (await anonymous("10.0.0.1")).status,
    (await anonymous("10.0.0.2")).status,
  ], [200, 429, 200]);
});

test("a reload that leaves the limits alone keeps what was counted", async () => {
  const { send, services } = createTestRouter({ gateway: { rate_limit_max: 1 } });
  await send("POST", "/v1/ping");
  services.configure({ cors_origins: ["http://app.test"] });
  assert.equal((await send("POST", "/v1/ping")).status, 429);
  services.configure({ rate_limit_max: 5 });
  assert.equal((await send("POST", "/v1/ping")).status, 200);
});

const chunks = (sizes: readonly number[]) => ReadableStream.from(sizes.map((size) => new Uint8Array(size).fill(0x20)));

test("a body over max_request_bytes is 413, by its length before it is read, and by counting without one", async () => {
  const { send } = createTestRouter({ gateway: { max_request_bytes: 100 } });
  let pulled = false;
  const unread = new ReadableStream({ pull: () => void (pulled = true) }, { highWaterMark: 0 });
  const declared = await send("POST", "/v1/ping", { body: unread, headers: { "content-length": "101" } });
  assert.deepEqual([declared.status, (await errorOf(declared)).code, pulled], [413, "payload_too_large", false]);
  const counted = await send("POST", "/v1/ping", { body: chunks([60, 41]) });
  assert.deepEqual([counted.status, (await errorOf(counted)).code], [413, "payload_too_large"]);
  const exact = `{"message":"${"x".repeat(86)}"}`;
  assert.equal(exact.length, 100);
  assert.equal((await send("POST", "/v1/ping", { body: exact })).status, 200);
  assert.equal((await send("POST", "/v1/ping", { body: " ", headers: { "content-length": "1e1" } })).status, 400);
});

test("a body that does not arrive in time is 408; one that stops half-way ends the request", async () => {
  const { send, services } = createTestRouter({ gateway: { request_timeout_secs: 3 } });
  const pending = send("POST", "/v1/ping", { body: new ReadableStream() });
  await services.clock.advance(3000);
  const late = await pending;
  assert.deepEqual([late.status, (await errorOf(late)).code, late.headers.get("connection")], [
    408,
    "request_timeout",
    "close",
  ]);
  const broken = new ReadableStream({ pull: (controller) => controller.error(new Error("reset")) });
  assert.equal((await send("POST", "/v1/ping", { body: broken })).status, 408);
  assert.equal(services.clock.pending(), 0);
  assert.equal(services.logged.filter(({ level }) => level === "error").length, 0);
});
