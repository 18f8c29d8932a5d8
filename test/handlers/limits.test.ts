import assert from "node:assert/strict";
import { test } from "node:test";
import { RATE_WINDOWS } from "../../lib/access/rate_records.ts";
import { SharedWindows } from "../../lib/access/shared_windows.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { createObserver } from "../../handlers/visit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createFakeServices } from "../support/fake_services.ts";
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

const MAX = 100;
const ADDRESS = "127.0.0.1";

interface Flood {
  readonly what: string;
  readonly method?: string;
  readonly path: string;
  readonly token?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** How many of them are answered other than by 429 within one window */
  readonly answered: number;
}

/** Requests that anybody can send without a token that counts, and how many of each are answered in one window. */
const FLOODS: readonly Flood[] = [
  { what: "wrong tokens", path: "/v1/models", token: "pst_wrong", answered: 60 },
  { what: "requests without a token", path: "/v1/models", answered: 60 },
  { what: "handshakes without a token", path: "/ws/chat", headers: { upgrade: "websocket" }, answered: 60 },
  { what: "a refused origin", method: "POST", path: "/v1/ping", headers: { origin: "http://evil.test" }, answered: 60 },
  {
    what: "a page of another site that posts",
    method: "POST",
    path: "/pair",
    headers: { "sec-fetch-site": "cross-site" },
    answered: 60,
  },
  { what: "a refused host", path: "/health", headers: { host: "evil.test" }, answered: 60 },
  {
    what: "a page of another site that reads public pages",
    path: "/openapi.json",
    headers: { "sec-fetch-site": "cross-site" },
    answered: 60,
  },
  {
    what: "a page of another site that reads probes",
    path: "/health",
    headers: { "sec-fetch-site": "cross-site" },
    answered: 60,
  },
  {
    what: "a page of another site that reads bearer routes",
    path: "/v1/models",
    headers: { "sec-fetch-site": "cross-site" },
    answered: 60,
  },
  { what: "public pages", path: "/openapi.json", answered: MAX },
  { what: "paths that do not exist", path: "/nothing", answered: MAX },
  { what: "wrong methods", method: "DELETE", path: "/health/live", answered: MAX },
  {
    what: "bodies that are too long",
    method: "POST",
    path: "/v1/ping",
    headers: { "content-length": "1e9" },
    answered: MAX,
  },
  { what: "pairing without a code", method: "POST", path: "/pair", answered: MAX },
  { what: "wrong pairing codes", method: "POST", path: "/pair", headers: { "x-pairing-code": "WRONG" }, answered: MAX },
  { what: "probes", path: "/health", answered: MAX },
];

async function flood(
  { router, send }: ReturnType<typeof createTestRouter>,
  { method = "GET", path, token = null, headers = {} }: Flood,
  options: { readonly count: number; readonly address?: string } = { count: MAX + 20 },
): Promise<number> {
  const { count, address: remoteAddress = ADDRESS } = options;
  let answered = 0;
  for (let i = 0; i < count; i++) {
    if (headers["upgrade"] !== undefined) {
      const hooks = router.resolveWebSocket(new Request(`http://gateway.test${path}`, { headers }), { remoteAddress });
      const refusal = await hooks.upgrade?.(new Request("http://gateway.test"));
      if (!(refusal instanceof Response) || refusal.status !== 429) answered++;
    } else if ((await send(method, path, { token, headers, remoteAddress })).status !== 429) answered++;
  }
  return answered;
}

for (const attack of FLOODS) {
  test(`${attack.what} fill a window of their own, and no valid token waits for them`, async () => {
    const made = createTestRouter({ gateway: { rate_limit_max: MAX } });
    const { send } = made;
    assert.equal(await flood(made, attack), attack.answered);
    for (const token of ["token_chat", "token_admin"]) {
      const reply = await send("POST", "/v1/ping", { token, remoteAddress: ADDRESS });
      assert.equal(reply.headers.get("x-ratelimit-remaining-requests"), String(MAX - 1));
      if (token === "token_chat" || token === "token_admin") assert.equal(reply.status, 200);
      assert.equal((await send("GET", "/openapi.json", { token, remoteAddress: ADDRESS })).status, 200);
    }
    const foreign = { headers: { "sec-fetch-site": "cross-site" }, remoteAddress: ADDRESS };
    assert.equal((await send("GET", "/openapi.json", { token: "token_chat", ...foreign })).status, 200);
    if (attack.what !== "probes") {
      assert.equal((await send("GET", "/health", { token: null, remoteAddress: ADDRESS })).status, 200, "a probe");
      const elsewhere = await flood(made, attack, { count: 1, address: "192.0.2.7" });
      assert.equal(elsewhere, 1, "another address has a window of its own");
    }
    const code = { "x-pairing-code": "GOOD-CODE" };
    const paired = await send("POST", "/pair", { token: null, headers: code, remoteAddress: ADDRESS });
    assert.equal(paired.status, attack.path === "/pair" && attack.answered === MAX ? 429 : 200);
  });
}

test("a token that has used its window up is refused, and no other is", async () => {
  const made = createTestRouter({ gateway: { rate_limit_max: MAX } });
  const { send } = made;
  const own: Flood = { what: "own", method: "POST", path: "/v1/ping", token: "token_chat", answered: MAX };
  assert.equal(await flood(made, own), MAX);
  // A route that the token may not use, and one that does not exist, are its own requests too
  for (const path of ["/v1/tokens", "/nothing", "/openapi.json"]) {
    assert.equal((await send("GET", path, { token: "token_chat", remoteAddress: ADDRESS })).status, 429, path);
  }
  assert.equal((await send("POST", "/v1/ping", { token: "token_admin", remoteAddress: ADDRESS })).status, 200);
  assert.equal((await send("GET", "/openapi.json", { token: null, remoteAddress: ADDRESS })).status, 200);
});

test("with pairing off all accepted callers share one window, which a page of another site cannot use up", async () => {
  const made = createTestRouter({ gateway: { rate_limit_max: MAX, require_pairing: false } });
  const { send } = made;
  const page = { method: "GET", headers: { "sec-fetch-site": "cross-site" }, answered: 60 };
  for (const path of ["/v1/models", "/openapi.json"]) {
    const alone = createTestRouter({ gateway: { rate_limit_max: MAX, require_pairing: false } });
    assert.equal(await flood(alone, { what: "a page", path, ...page }), 60);
    assert.equal((await alone.send("POST", "/v1/ping", { token: null, remoteAddress: ADDRESS })).status, 200);
  }
  const caller: Flood = { what: "callers", method: "POST", path: "/v1/ping", answered: MAX };
  assert.equal(await flood(made, caller, { count: 60 }), 60);
  assert.equal(await flood(made, { ...caller, token: "token_chat" }, { count: 60 }), 40);
  assert.equal((await send("POST", "/v1/ping", { token: null, remoteAddress: ADDRESS })).status, 429);
});

test("a page that cors_origins names is an ordinary caller", async () => {
  const made = createTestRouter({ gateway: { rate_limit_max: MAX, cors_origins: ["http://app.test"] } });
  const headers = { origin: "http://app.test", "sec-fetch-site": "cross-site" };
  assert.equal(await flood(made, { what: "app", path: "/openapi.json", headers, answered: MAX }), MAX);
});

test("a small window is never larger than rate_limit_max, and OPTIONS takes none", async () => {
  const made = createTestRouter({ gateway: { rate_limit_max: 3 } });
  assert.equal(await flood(made, { what: "wrong", path: "/v1/models", token: "pst_wrong", answered: 3 }), 3);
  for (let i = 0; i < 10; i++) assert.equal((await made.send("OPTIONS", "/v1/ping")).status, 204);
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
  const wrong = { token: "pst_wrong", remoteAddress: "10.0.0.1" };
  assert.equal((await send("GET", "/v1/models", wrong)).status, 401, "a wrong token spends nobody's window");
  const anonymous = (remoteAddress: string) => send("GET", "/openapi.json", { token: null, remoteAddress });
  assert.deepEqual([
    (await anonymous("10.0.0.1")).status,
    (await anonymous("10.0.0.1")).status,
    (await anonymous("10.0.0.2")).status,
  ], [200, 429, 200]);
});

test("addresses take no place of a token where gateways tell each other of the requests of few senders", async () => {
  const services = createFakeServices({ gateway: { rate_limit_per_identity: 10, rate_limit_scope: "cluster" } });
  const { clock, log } = services;
  const store = createMemoryStore();
  const sharedWindows = new SharedWindows({ store, clock, log, gateway: "gw_1", gateways: () => Promise.resolve(2) });
  const { send } = createTestRouter({ services: { ...services, sharedWindows } });
  for (let n = 0; n < 300; n++) {
    const reply = await send("GET", "/openapi.json", { token: null, remoteAddress: `2001:db8::${n}` });
    await reply.body?.cancel();
  }
  assert.equal((await send("POST", "/v1/ping", { token: "token_chat" })).status, 200);
  await clock.advance(1_000);
  const [record] = await store.scan(RATE_WINDOWS.name, { limit: 1 });
  const { windows } = RATE_WINDOWS.parse(record?.body);
  assert.equal(Object.keys(windows["identities"]?.keys ?? {}).length, 1);
  await sharedWindows.close();
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

test("a client that tries every route with every method leaves the names of the others' failures in the metrics", () => {
  const metrics = createMetrics();
  const observer = createObserver({ metrics, clock: createFakeClock(), log: SILENT });
  const see = (method: string, route: string, status: number) => {
    const request = new Request("http://127.0.0.1/", { method });
    // The observer reads these fields alone
    const context = { requestId: "r", identity: null, remoteAddress: ADDRESS } as never;
    observer.end(request, context, { startedAt: observer.begin(), route, status });
  };
  for (const status of [400, 401, 403, 404, 409, 413, 415, 429]) {
    for (const { method, path } of ROUTES) {
      for (const each of method === "GET" ? ["GET", "HEAD"] : [method]) see(each, path, status);
    }
    for (const method of ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH", "BREW"]) {
      see(method, "unmatched", status);
    }
  }
  see("POST", "/v1/runs", 500);
  assert.match(metrics.render(), /^postern_http_requests_total\{method="POST",route="\/v1\/runs",status="500"\} 1$/m);
});
