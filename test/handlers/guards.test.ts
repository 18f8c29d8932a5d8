import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestRouter, errorOf } from "../support/test_router.ts";

/** A request as a server hands it over, with the Host header that the global Request would drop. */
function raw(method: string, url: string, headers: Record<string, string>): Request {
  return {
    method,
    url,
    headers: new Headers(headers),
    signal: new AbortController().signal,
    body: null,
  } as unknown as Request;
}

test("on a loopback bind only loopback hosts and allowed_hosts are served", async () => {
  const { router } = createTestRouter({ gateway: { allowed_hosts: ["My.Lan", "other.lan:8080"] } });
  for (
    const host of [
      "127.0.0.1:42617",
      "localhost",
      "LOCALHOST:1",
      "[::1]:42617",
      "127.9.9.9",
      "my.lan",
      "MY.LAN:99",
      "other.lan:8080",
    ]
  ) {
    assert.equal((await router.fetch(raw("GET", `http://${host}/health`, { host }))).status, 200, host);
  }
  const bad = [
    "evil.com",
    "evil.com:42617",
    "localhost.evil.com",
    "127.0.0.1.evil.com",
    "my.lan.evil.com",
    "other.lan",
    "192.168.1.2",
    "0.0.0.0",
    "[::]",
    "127.0.0.256",
    "2130706433",
    "",
  ];
  for (const host of bad) {
    const reply = await router.fetch(raw("GET", `http://${host}/health`, { host }));
    assert.equal(reply.status, 403, host);
    assert.equal((await errorOf(reply)).code, "host_forbidden");
  }
});

test("the Host header and the target's authority must agree: an absolute-form target hides no host", async () => {
  const { router } = createTestRouter();
  assert.equal((await router.fetch(raw("GET", "http://evil.com/health", { host: "127.0.0.1" }))).status, 403);
  assert.equal((await router.fetch(raw("GET", "http://127.0.0.1/health", { host: "evil.com" }))).status, 403);
  assert.equal(
    (await router.fetch(raw("GET", "http://127.0.0.1/health", { host: "127.0.0.1, evil.com" }))).status,
    403,
  );
  assert.equal((await router.fetch(raw("GET", "http://localhost/health", { host: "LocalHost:80" }))).status, 200);
});

test("the usual port may stand in the Host header or be left out, by the scheme of the request", async () => {
  const { router } = createTestRouter();
  const statusOf = async (url: string, host: string) => (await router.fetch(raw("GET", url, { host }))).status;
  assert.equal(await statusOf("https://localhost/health", "localhost:443"), 200);
  assert.equal(await statusOf("https://localhost/health", "localhost:80"), 403);
  assert.equal(await statusOf("http://localhost/health", "localhost:80"), 200);
  assert.equal(await statusOf("http://localhost/health", "localhost:443"), 403);
});

test("on a public bind any host is served", async () => {
  const { router } = createTestRouter({ gateway: { host: "0.0.0.0" } });
  assert.equal(
    (await router.fetch(raw("GET", "http://gateway.example/health", { host: "gateway.example" }))).status,
    200,
  );
});

test("a foreign origin is refused before any handler, save for GET, HEAD and OPTIONS without CORS headers", async () => {
  const { send, services } = createTestRouter();
  for (
    const origin of [
      "http://evil.com",
      "null",
      "http://gateway.test.evil.com",
      "http://gateway.test:81",
      "file://",
      "http://evil.com/gateway.test",
    ]
  ) {
    for (
      const [method, path] of [["POST", "/v1/ping"], ["POST", "/pair"], ["DELETE", "/v1/tokens"], [
        "PUT",
        "/nothing",
      ]] as const
    ) {
      const reply = await send(method, path, { headers: { origin, "x-pairing-code": "GOOD-CODE" } });
      assert.equal(reply.status, 403, `${method} ${origin}`);
      assert.equal((await errorOf(reply)).code, "origin_forbidden");
    }
    for (const [method, status] of [["GET", 200], ["HEAD", 200], ["OPTIONS", 204]] as const) {
      const reply = await send(method, "/health", { headers: { origin } });
      assert.equal(reply.status, status);
      assert.equal(reply.headers.get("access-control-allow-origin"), null);
      assert.equal(reply.headers.get("vary"), "Origin");
    }
  }
  assert.equal(await services.tokens.count(), 0);
});

test("the gateway's own page and an allowed origin are served; the allowed one may read the reply whatever its status", async () => {
  const { send } = createTestRouter({ gateway: { cors_origins: ["http://app.test:3000"] } });
  const own = await send("POST", "/v1/ping", { headers: { origin: "http://gateway.test" } });
  assert.equal(own.status, 200);
  assert.equal(own.headers.get("access-control-allow-origin"), null);
  const origin = "http://app.test:3000";
  for (
    const [method, path, token, status] of [["POST", "/v1/ping", "token_admin", 200], ["POST", "/v1/ping", null, 401], [
      "GET",
      "/nothing",
      null,
      404,
    ], ["GET", "/v1/ping", null, 405]] as const
  ) {
    const reply = await send(method, path, { headers: { origin }, token });
    assert.equal(reply.status, status);
    assert.equal(reply.headers.get("access-control-allow-origin"), origin);
    assert.match(reply.headers.get("access-control-expose-headers") ?? "", /x-request-id/);
  }
  assert.equal((await send("POST", "/v1/ping", { headers: { origin: "http://app.test" } })).status, 403);
});

test("Sec-Fetch-Site: cross-site without an allowed origin is refused on anything but GET, HEAD and OPTIONS", async () => {
  const { send } = createTestRouter({ gateway: { cors_origins: ["http://app.test"] } });
  const headers = { "sec-fetch-site": "cross-site" };
  assert.equal((await send("POST", "/v1/ping", { headers })).status, 403);
  assert.equal(
    (await send("POST", "/v1/ping", { headers: { ...headers, origin: "http://gateway.test" } })).status,
    403,
  );
  assert.equal((await send("POST", "/v1/ping", { headers: { ...headers, origin: "http://app.test" } })).status, 200);
  assert.equal((await send("GET", "/health", { headers })).status, 200);
  for (const site of ["same-origin", "same-site", "none"]) {
    assert.equal((await send("POST", "/v1/ping", { headers: { "sec-fetch-site": site } })).status, 200, site);
  }
});

test("a preflight of an allowed origin names methods and headers, on every path", async () => {
  const { send } = createTestRouter({ gateway: { cors_origins: ["http://app.test"] } });
  const headers = {
    origin: "http://app.test",
    "access-control-request-headers": "authorization,x-stainless-os,x-evil",
    "access-control-request-private-network": "true",
  };
  for (const path of ["/v1/chat/completions", "/nothing", "/v1//x"]) {
    const reply = await send("OPTIONS", path, { headers, token: null });
    assert.equal(reply.status, 204);
    assert.equal(reply.headers.get("access-control-allow-origin"), "http://app.test");
    assert.match(reply.headers.get("access-control-allow-methods") ?? "", /POST, DELETE/);
    const allowed = reply.headers.get("access-control-allow-headers") ?? "";
    for (
      const name of [
        "Authorization",
        "Content-Type",
        "X-Pairing-Code",
        "Idempotency-Key",
        "Last-Event-ID",
        "X-Request-Id",
        "x-stainless-os",
      ]
    ) {
      assert.ok(allowed.includes(name), name);
    }
    assert.doesNotMatch(allowed, /x-evil/);
    assert.equal(reply.headers.get("access-control-allow-private-network"), "true");
  }
  const star = await createTestRouter({ gateway: { cors_origins: ["*"] } }).send("OPTIONS", "/v1/ping", {
    headers: { origin: "http://any.test" },
  });
  assert.equal(star.headers.get("access-control-allow-origin"), "*");
});

const HANDSHAKE = {
  upgrade: "websocket",
  connection: "Upgrade",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
  host: "127.0.0.1",
};

async function refusalOf(
  router: ReturnType<typeof createTestRouter>["router"],
  url: string,
  headers: Record<string, string>,
) {
  const hooks = router.resolveWebSocket(raw("GET", url, { ...HANDSHAKE, ...headers }));
  const reply = await hooks.upgrade?.({} as never);
  assert.ok(reply instanceof Response, "the handshake was accepted");
  return [reply.status, (await errorOf(reply)).code];
}

test("a handshake passes the same guards as a request, and is refused with status and code", async () => {
  const { router } = createTestRouter({ agent: {} as never });
  const url = "http://127.0.0.1/ws/chat";
  const authorization = "Bearer token_chat";
  assert.deepEqual(await refusalOf(router, "http://127.0.0.1/health", { authorization }), [400, "invalid_request"]);
  assert.deepEqual(await refusalOf(router, "http://127.0.0.1/nothing", { authorization }), [400, "invalid_request"]);
  assert.deepEqual(await refusalOf(router, "http://evil.com/ws/chat", { authorization, host: "evil.com" }), [
    403,
    "host_forbidden",
  ]);
  assert.deepEqual(await refusalOf(router, url, { authorization, origin: "http://evil.com" }), [
    403,
    "origin_forbidden",
  ]);
  assert.deepEqual(await refusalOf(router, url, { authorization, "sec-fetch-site": "cross-site" }), [
    403,
    "origin_forbidden",
  ]);
  assert.deepEqual(await refusalOf(router, url, {}), [401, "auth_required"]);
  assert.deepEqual(await refusalOf(router, url, { authorization: "Bearer wrong" }), [401, "auth_invalid"]);
  assert.deepEqual(await refusalOf(router, url, { authorization: "Bearer token_runs" }), [403, "insufficient_scope"]);
  assert.deepEqual(await refusalOf(router, `${url}?ticket=nonsense`, {}), [401, "auth_invalid"]);
  const hooks = router.resolveWebSocket(raw("GET", url, { ...HANDSHAKE, authorization, origin: "http://127.0.0.1" }));
  const accepted = await hooks.upgrade?.({} as never) as { headers: Headers };
  assert.match(accepted.headers.get("x-request-id") ?? "", /^req_/);
  assert.equal(typeof hooks.message, "function");
});

test("a handshake with another method than GET is 405 with Allow", async () => {
  const { router } = createTestRouter({ agent: {} as never });
  const hooks = router.resolveWebSocket(raw("POST", "http://127.0.0.1/ws/chat", HANDSHAKE));
  const reply = await hooks.upgrade?.({} as never) as Response;
  assert.deepEqual([reply.status, reply.headers.get("allow")], [405, "GET, HEAD, OPTIONS"]);
});

test("a ticket opens one socket and no other route", async () => {
  const { router, send } = createTestRouter({ agent: {} as never });
  const { ticket } = await (await send("POST", "/v1/ws-ticket", { token: "token_chat" })).json() as { ticket: string };
  assert.equal((await send("POST", `/v1/ping?ticket=${ticket}`, { token: null })).status, 401);
  const request = () => raw("GET", `http://127.0.0.1/ws/chat?ticket=${ticket}`, HANDSHAKE);
  assert.equal(typeof router.resolveWebSocket(request()).open, "function");
  const again = await router.resolveWebSocket(request()).upgrade?.({} as never);
  assert.equal((again as Response).status, 401);
});

test("a plain GET of the socket route is 426; a handshake that the server cannot upgrade too, elsewhere it is 400", async () => {
  const { send } = createTestRouter();
  for (const headers of [{}, { upgrade: "websocket" }] as Record<string, string>[]) {
    const reply = await send("GET", "/ws/chat", { headers, token: null });
    assert.equal(reply.status, 426);
    assert.equal(reply.headers.get("upgrade"), "websocket");
    assert.equal((await errorOf(reply)).code, "upgrade_required");
  }
  assert.equal((await send("GET", "/health", { headers: { upgrade: "WebSocket" } })).status, 400);
  const refused = await send("GET", "/v1/responses", { headers: { upgrade: "websocket" } });
  assert.equal(refused.status, 426, "a client of Responses goes on over HTTP");
  assert.equal((await send("GET", "/health", { headers: { upgrade: "h2c" } })).status, 200);
});
