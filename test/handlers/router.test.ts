import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Route } from "../../handlers/route.ts";
import { refuse } from "../../lib/base/errors.ts";
import { createTestRouter, errorOf, RESPONSE_CLASSES } from "../support/test_router.ts";

const route = (path: string, handler: Route["handler"], method: Route["method"] = "GET"): Route => ({
  method,
  path,
  access: "public",
  summary: "",
  reply: { status: 200, type: "text/plain" },
  ...(method === "POST" ? { idempotency: "honoured" as const } : {}),
  handler,
});

for (const [name, ResponseClass] of RESPONSE_CLASSES) {
  test(`${name}: an ordinary reply carries the request id, the limits and Vary`, async () => {
    const { send } = createTestRouter({ Response: ResponseClass });
    const reply = await send("GET", "/health");
    assert.equal(reply.status, 200);
    assert.equal(reply.headers.get("content-type"), "application/json");
    assert.equal(reply.headers.get("vary"), "Origin");
    assert.equal(reply.headers.get("x-ratelimit-limit-requests"), "600");
    assert.equal(reply.headers.get("x-ratelimit-remaining-requests"), "599");
    assert.match(reply.headers.get("x-ratelimit-reset-requests") ?? "", /^\d+s$/);
    assert.match(reply.headers.get("x-request-id") ?? "", /^req_[0-9a-v]{24}$/);
    assert.deepEqual(await reply.json(), { status: "ok", version: "0.0.0-test", uptime_seconds: 0 });
  });

  test(`${name}: HEAD answers as GET, without a body`, async () => {
    const { send } = createTestRouter({ Response: ResponseClass });
    for (const path of ["/health", "/metrics", "/openapi.json", "/v1/models", "/v1/tools/read_file"]) {
      const reply = await send("HEAD", path);
      assert.equal(reply.status, 200, path);
      assert.equal(reply.body, null);
      assert.equal(reply.headers.get("content-type"), (await send("GET", path)).headers.get("content-type"));
    }
    assert.equal((await send("HEAD", "/nothing")).status, 404);
  });

  test(`${name}: a reply the handler built by itself keeps its own headers and gets the gateway's`, async () => {
    const handler = () =>
      new ResponseClass("mine", { status: 202, headers: { "x-own": "1", "content-type": "text/mine" } });
    const { send } = createTestRouter({ Response: ResponseClass, routes: [route("/own", handler)] });
    const reply = await send("GET", "/own", { headers: { "x-request-id": "abc" } });
    assert.equal(reply.status, 202);
    assert.equal(reply.headers.get("x-own"), "1");
    assert.equal(reply.headers.get("content-type"), "text/mine");
    assert.equal(reply.headers.get("x-request-id"), "abc");
    assert.equal(await reply.text(), "mine");
  });

  test(`${name}: a bug is 500 with a fixed sentence, the cause goes to the log under the request id`, async () => {
    for (
      const handler of [() => {
        throw new Error("secret cause");
      }, () => Promise.reject(new Error("secret cause"))]
    ) {
      const { send, services } = createTestRouter({ Response: ResponseClass, routes: [route("/bug", handler)] });
      const reply = await send("GET", "/bug");
      assert.equal(reply.status, 500);
      const error = await errorOf(reply);
      assert.equal(error.code, "internal_error");
      assert.doesNotMatch(error.message, /secret/);
      const line = services.logged.find(({ level }) => level === "error");
      assert.equal(line?.fields["request_id"], reply.headers.get("x-request-id"));
      assert.match(JSON.stringify(line?.fields["error"]), /secret cause/);
    }
  });
}

test("a client's request id of 1-128 safe characters is echoed, any other is replaced", async () => {
  const { send } = createTestRouter();
  for (const id of ["a", "A-1_b.c:d", "x".repeat(128)]) {
    assert.equal((await send("GET", "/health", { headers: { "x-request-id": id } })).headers.get("x-request-id"), id);
  }
  for (const id of ["", "x".repeat(129), "a b", "a,b", '"', "é"]) {
    assert.match(
      (await send("GET", "/health", { headers: { "x-request-id": id } })).headers.get("x-request-id") ?? "",
      /^req_/,
      id,
    );
  }
});

test("an unknown path is 404, a wrong method 405 with Allow, in the one error shape", async () => {
  const { send } = createTestRouter();
  const missing = await send("GET", "/v1/nothing");
  assert.equal(missing.status, 404);
  assert.deepEqual(Object.keys(await missing.json() as object), ["error"]);
  const cases = [
    ["POST", "/health", "GET, HEAD, OPTIONS"],
    ["GET", "/v1/chat/completions", "POST, OPTIONS"],
    ["PUT", "/v1/tokens", "GET, POST, DELETE, HEAD, OPTIONS"],
    ["POST", "/v1/tokens/abc", "GET, DELETE, HEAD, OPTIONS"],
    ["DELETE", "/v1/tools/read_file/call", "POST, OPTIONS"],
    ["POST", "/ws/chat", "GET, HEAD, OPTIONS"],
    // Not the response of this id
    ["GET", "/v1/responses/compact", "POST, OPTIONS"],
    ["DELETE", "/v1/responses/input_tokens", "POST, OPTIONS"],
  ] as const;
  for (const [method, path, allow] of cases) {
    const reply = await send(method, path);
    assert.equal(reply.status, 405, path);
    assert.equal(reply.headers.get("allow"), allow);
    assert.equal((await errorOf(reply)).code, "method_not_allowed");
  }
});

test("tricks with slashes, dots, case and encoding never reach a route", async () => {
  const { router } = createTestRouter();
  const paths = [
    "//health",
    "/health/",
    "/v1//models",
    "/HEALTH",
    "/Health",
    "/%68ealth",
    "/health%2f",
    "/v1%2Fmodels",
    "/v1/tools/..%2ftokens/x",
    "/v1/tools//call",
    "/./health",
    "/v1/../health",
    "/v1/tools/../tokens",
    "/v1/tools/%2e%2e/tokens",
    "/v1/tools/.%2E/tokens",
    "/health;a=b",
    "/health%00",
    "/health%20",
    "/\\health",
    "/v1\\models",
    "/health\u00e9",
    "/.",
    "/..",
    "/%2e",
    "/v1/models/",
    "/v1/tokens/a/b",
  ];
  const headers = new Headers({ host: "gateway.test", authorization: "Bearer token_admin" });
  for (const path of paths) {
    // As a server hands it over: the global Request would repair the path first
    const request = {
      method: "GET",
      url: `http://gateway.test${path}`,
      headers,
      signal: new AbortController().signal,
      body: null,
    };
    const reply = await router.fetch(request as unknown as Request);
    assert.equal(reply.status, 404, path);
  }
});

test("a parameter is decoded; one that is not percent-encoded UTF-8 text is 400", async () => {
  const { send } = createTestRouter({
    routes: [route("/v1/things/:id", (_request, { params }) => new Response(params["id"]))],
  });
  assert.equal(await (await send("GET", "/v1/things/a%2Fb%20%C3%A9")).text(), "a/b é");
  for (const bad of ["%ff", "%", "%zz", "a%00b", "%0d%0a", "%c3%28"]) {
    const reply = await send("GET", `/v1/things/${bad}`);
    assert.equal(reply.status, 400, bad);
    assert.deepEqual([(await errorOf(reply)).code], ["invalid_request"]);
  }
});

test("a parameter keeps every visible character that a path may hold", async () => {
  const { router } = createTestRouter({
    routes: [route("/v1/things/:id", (_request, { params }) => new Response(params["id"]))],
  });
  const characters = Array.from({ length: 94 }, (_, index) => String.fromCharCode(0x21 + index));
  const id = characters.filter((character) => !"#%/?\\".includes(character)).join("");
  // As a server hands it over: the global Request would encode some of the characters
  const request = { method: "GET", url: `http://gateway.test/v1/things/${id}`, headers: new Headers(), body: null };
  assert.equal(await (await router.fetch(request as unknown as Request)).text(), id);
});

test("of two patterns that match a path the first takes the request, and a method of the second is found too", async () => {
  const { send } = createTestRouter({
    routes: [
      route("/v1/things/:first", (_request, { params }) => new Response(`first ${params["first"]}`)),
      route("/v1/:kind/:second", (_request, { params }) => new Response(`second ${params["second"]}`)),
      route("/v1/:kind/:second", (_request, { params }) => new Response(`post ${params["second"]}`), "POST"),
    ],
  });
  assert.equal(await (await send("GET", "/v1/things/a")).text(), "first a");
  assert.equal(await (await send("GET", "/v1/others/a")).text(), "second a");
  assert.equal(await (await send("POST", "/v1/things/a")).text(), "post a");
  const refused = await send("DELETE", "/v1/things/a");
  assert.deepEqual([refused.status, refused.headers.get("allow")], [405, "GET, POST, HEAD, OPTIONS"]);
});

test("a path without parameters is answered without a promise", () => {
  const { router } = createTestRouter();
  const headers = new Headers({ host: "gateway.test", authorization: "Bearer token_admin" });
  for (const path of ["/health", "/health/live", "/metrics", "/v1/tools"]) {
    const reply = router.fetch(new Request(`http://gateway.test${path}`, { headers }));
    assert.ok(!(reply instanceof Promise), path);
  }
});

test("under a base path only paths below it are routes, and the query reaches the handler", async () => {
  const echo = route("/echo", (_request, { query }) => new Response(query.get("a")));
  const { send } = createTestRouter({ basePath: "/gw", routes: [echo] });
  assert.equal(await (await send("GET", "/gw/echo?a=1#x")).text(), "1");
  for (const path of ["/echo", "/gwecho", "/gw/gw/echo", "/other/echo", "/GW/echo"]) {
    const reply = await send("GET", path);
    assert.equal(reply.status, 404, path);
    const { error } = await reply.json() as { error: { message: string } };
    if (path !== "/gw/gw/echo") assert.match(error.message, /outside the basePath.*app\.mount\(\) of Hono/, path);
  }
});

test("the dashboard under a mount is there with and without the slash at its end", async () => {
  const { send } = createTestRouter({ basePath: "/apps/gw" });
  for (const path of ["/apps/gw", "/apps/gw/"]) {
    const page = await send("GET", path);
    assert.equal(page.status, 200, path);
    assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none'/);
  }
});

test("the signal aborts with client_gone while the handler works, and never after the reply", async () => {
  const reasons: unknown[] = [];
  let held: AbortSignal | undefined;
  const slow = route(
    "/slow",
    (_request, { signal }) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => {
          reasons.push(signal.reason.reason);
          reject(signal.reason);
        })
      ),
  );
  const fast = route("/fast", (_request, { signal }) => {
    held = signal;
    return new Response("done");
  });
  const { send } = createTestRouter({ routes: [slow, fast] });
  const client = new AbortController();
  const pending = send("GET", "/slow", { signal: client.signal });
  client.abort();
  assert.equal((await pending).status, 408);
  assert.deepEqual(reasons, ["client_gone"]);
  const second = new AbortController();
  await send("GET", "/fast", { signal: second.signal });
  second.abort();
  assert.equal(held?.aborted, false);
});

test("a handler that outlives request_timeout_secs is aborted with timeout, and no timer is left behind", async () => {
  const slow = route(
    "/slow",
    (_request, { signal }) =>
      new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  );
  const { send, services } = createTestRouter({ routes: [slow], gateway: { request_timeout_secs: 5 } });
  const pending = send("GET", "/slow");
  await services.clock.advance(5000);
  const reply = await pending;
  assert.equal(reply.status, 504);
  assert.equal((await errorOf(reply)).code, "provider_timeout");
  assert.equal(services.clock.pending(), 0);
});

test("while draining every reply says connection: close, and /health is 503", async () => {
  const { send, services } = createTestRouter();
  assert.equal((await send("GET", "/health")).headers.get("connection"), null);
  services.enter("draining");
  const reply = await send("GET", "/health");
  assert.equal(reply.status, 503);
  assert.equal(reply.headers.get("connection"), "close");
  assert.equal((await reply.json() as { status: string }).status, "draining");
  services.enter("degraded");
  assert.equal((await send("GET", "/health")).status, 200);
});

test("metrics and the access log see every outcome under the route's template", async () => {
  const { send, services } = createTestRouter({ gateway: { rate_limit_max: 8 } });
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await send("GET", "/v1/tools/read_file", {
    headers: { traceparent, "x-request-id": "r1" },
    remoteAddress: "10.0.0.1",
  });
  await send("GET", "/v1/tools/secret-name", { headers: { traceparent: `${traceparent}-secret-name` } });
  await send("GET", "/v1/tools/x", { token: null });
  await send("GET", "/../../etc/passwd");
  await send("POST", "/v1/ping", { body: "{" });
  await send("OPTIONS", "/v1/ping");
  await send("FROBNICATE", "/health");
  for (let i = 0; i < 5; i++) await send("GET", "/v1/models");
  const text = await (await send("GET", "/metrics")).text();
  for (
    const line of [
      'postern_http_requests_total{method="GET",route="/v1/tools/:name",status="200"} 1',
      'postern_http_requests_total{method="GET",route="/v1/tools/:name",status="404"} 1',
      'postern_http_requests_total{method="GET",route="/v1/tools/:name",status="401"} 1',
      'postern_http_requests_total{method="GET",route="unmatched",status="404"} 1',
      'postern_http_requests_total{method="POST",route="/v1/ping",status="400"} 1',
      'postern_http_requests_total{method="OPTIONS",route="preflight",status="204"} 1',
      'postern_http_requests_total{method="other",route="unmatched",status="405"} 1',
      "postern_http_requests_in_flight 1",
      'postern_http_request_duration_seconds_count{route="/v1/ping"} 1',
    ]
  ) assert.ok(text.includes(`${line}\n`), `${line} in\n${text}`);
  assert.match(text, /postern_rate_limited_total 2\n/);
  assert.doesNotMatch(text, /secret-name|passwd/);
  const [first] = services.logged.filter(({ message }) => message === "Request");
  assert.doesNotMatch(JSON.stringify(services.logged), /secret-name/);
  const { duration_ms, ...fields } = first?.fields ?? {};
  assert.equal(typeof duration_ms, "number");
  assert.deepEqual(fields, {
    request_id: "r1",
    method: "GET",
    route: "/v1/tools/:name",
    status: 200,
    token_id: "admin",
    remote_address: "10.0.0.1",
    traceparent,
  });
  assert.equal(services.logged.at(-1)?.level, "debug");
});

test("a page that looks again by itself fills no log, and a stranger who says the same is seen all the same", async () => {
  const { send, services, router } = createTestRouter({ gateway: { rate_limit_max: 0 } });
  const levels = () =>
    services.logged.splice(0).filter(({ message }) => message === "Request").map(({ level }) => level);
  const look = (path: string, given: Parameters<typeof send>[2] = {}) =>
    send("GET", path, { ...given, headers: { "x-postern-look": "1" } });
  for (let looks = 0; looks < 3; looks++) await look("/v1/approvals");
  assert.deepEqual(levels(), ["info", "debug", "debug"], "the first one says who looks");
  assert.match(await (await send("GET", "/metrics")).text(), /route="\/v1\/approvals",status="200"\} 3\n/);
  levels();
  await send("GET", "/v1/approvals");
  assert.deepEqual(levels(), ["info"], "a request of another program");
  const strangers = [
    { what: "no token", path: "/v1/approvals", given: { token: null } },
    { what: "a wrong token", path: "/v1/approvals", given: { token: "wrong" } },
    { what: "too small a token", path: "/v1/approvals", given: { token: "token_chat" } },
    { what: "no such path", path: "/v1/none", given: {} },
  ];
  for (const { what, path, given } of strangers) {
    for (let tries = 0; tries < 2; tries++) await look(path, given);
    assert.deepEqual(levels(), ["info", "info"], what);
  }
  for (const given of [{ remoteAddress: "10.9.9.9" }, { token: "token_approve" }]) {
    await look("/v1/approvals", given);
    assert.deepEqual(levels(), ["info"], "a token that somebody else uses, or another one");
  }
  for (const path of ["/v1/approvals?limit=1", "/v1/approvals?limit=2"]) {
    await look(path);
    assert.deepEqual(levels(), ["info"], "each record that somebody reads");
  }
  await send("POST", "/v1/ping", { headers: { "x-postern-look": "1" } });
  await send("POST", "/v1/ping", { headers: { "x-postern-look": "1" } });
  assert.deepEqual(levels(), ["info", "info"], "what is no look");
  await services.clock.advance(3_600_000);
  await look("/v1/approvals");
  assert.deepEqual(levels(), ["info"], "each hour says it again");
  const headers = { authorization: "Bearer token_admin", "x-postern-look": "1" };
  for (let number = 0; number < 1_000; number++) {
    const request = new Request("http://gateway.test/v1/approvals", { headers });
    await router.fetch(request, { remoteAddress: `10.1.${number >> 8}.${number & 255}` });
  }
  levels();
  for (let tries = 0; tries < 2; tries++) await look("/v1/approvals", { remoteAddress: "10.2.0.1" });
  assert.deepEqual(levels(), ["info", "info"], "more senders than are known");
});

test("the headers of a thrown error reach the client", async () => {
  const fail = () => {
    throw refuse("overloaded", "Cannot take it", { headers: { "Retry-After": "7" } });
  };
  const reply = await createTestRouter({ routes: [route("/fail", fail)] }).send("GET", "/fail");
  assert.equal(reply.status, 503);
  assert.equal(reply.headers.get("retry-after"), "7");
});

test("no target, method, header or body makes a 500, and every reply has the request id and a known shape", async () => {
  const piece = fc.constantFrom(
    "/",
    "v1",
    "tools",
    "read_file",
    "call",
    "models",
    "tokens",
    "health",
    "..",
    "%2e",
    "%",
    "%ff",
    "?",
    "#",
    "//",
    "\\",
    "a",
    "é",
    ":",
    ";",
  );
  const header = fc.tuple(
    fc.constantFrom(
      "authorization",
      "content-type",
      "content-length",
      "origin",
      "upgrade",
      "idempotency-key",
      "x-request-id",
      "traceparent",
    ),
    fc.constantFrom(
      "",
      "Bearer token_admin",
      "Bearer",
      "application/json",
      "text/plain",
      "5",
      "-1",
      "1e9",
      "http://gateway.test",
      "null",
      "websocket",
      "k",
      "x".repeat(300),
    ),
  );
  const input = fc.record({
    method: fc.constantFrom("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "BREW"),
    path: fc.array(piece, { maxLength: 8 }),
    headers: fc.array(header, { maxLength: 5 }),
    body: fc.constantFrom(
      null,
      "",
      "{",
      "{}",
      "[]",
      "null",
      '{"message":1}',
      '{"scopes":["chat"],"label":null}',
      '{"input":{}}',
    ),
  });
  const { router, services } = createTestRouter({ gateway: { rate_limit_max: 0 } });
  await fc.assert(
    fc.asyncProperty(input, async ({ method, path, headers, body }) => {
      const request = {
        method,
        url: `http://gateway.test/${path.join("")}`,
        headers: new Headers(
          [["authorization", "Bearer token_admin"], ...headers].map(([name, value]) =>
            [name, value] as [string, string]
          ),
        ),
        body: body === null ? null : new Response(body).body,
        signal: new AbortController().signal,
      };
      const reply = await router.fetch(request as unknown as Request);
      assert.ok(reply.status < 500, `${reply.status} ${method} ${request.url}`);
      assert.ok(reply.headers.get("x-request-id"));
      if (reply.status >= 400 && method !== "HEAD") assert.equal(typeof (await errorOf(reply)).code, "string");
    }),
    { numRuns: 200 },
  );
  assert.deepEqual(services.logged.filter(({ level }) => level === "error"), []);
});

test("OPTIONS names the methods of a path, and none where there is no route", async () => {
  const { send } = createTestRouter();
  const cases = [["/v1/models/a", "GET, HEAD, OPTIONS"], ["/v1/ping", "POST, OPTIONS"], ["/nothing", null], [
    "//",
    null,
  ]];
  for (const [path, allow] of cases) {
    const reply = await send("OPTIONS", path ?? "", { token: null });
    assert.equal(reply.status, 204);
    assert.equal(reply.headers.get("allow"), allow);
  }
});

test("HEAD says how long the body of GET is", async () => {
  const { send } = createTestRouter();
  for (const path of ["/health", "/nothing", "/openapi.json", "/v1/chat/completions"]) {
    const [head, get] = [await send("HEAD", path), await send("GET", path)];
    assert.equal(Number(head.headers.get("content-length")), (await get.arrayBuffer()).byteLength, path);
    assert.equal((await head.arrayBuffer()).byteLength, 0);
  }
});

test("the gauge of sockets is there before the first socket", async () => {
  const { send } = createTestRouter();
  assert.match(await (await send("GET", "/metrics")).text(), /^postern_ws_connections 0$/m);
});

test("a path that is not there is refused with its cause, and with no word of its own", async () => {
  const { send } = createTestRouter();
  const cases: readonly (readonly [path: string, says: RegExp])[] = [
    ["/chat/completions", /it is \/v1\/chat\/completions here; the base URL .* ends with \/v1, once$/],
    ["/v1/v1/chat/completions", /it is \/v1\/chat\/completions here/],
    ["/api/v1/chat/completions", /it is \/v1\/chat\/completions here/],
    ["/openai/v1/models", /it is \/v1\/models here/],
    ["/models/secret-name", /it is \/v1\/models\/:id\+ here/],
    ["/v1//chat/completions", /an empty part .*; ask for \/v1\/chat\/completions$/],
    ["//v1/models", /an empty part .*; ask for \/v1\/models$/],
    ["/v1/models/", /a slash at the end\); ask for \/v1\/models$/],
    ["/messages", /it is \/v1\/messages here/],
    ["/v1/completions", /POST \/v1\/chat\/completions answers, .* with the prompt as a message$/],
    ["/v1/audio/speech", /no such API, and no other route does this$/],
    ["/v1/rerank", /no other route does this$/],
    ["/v1/images/generations", /no other route does this$/],
    ["/v1/assistants", /POST \/v1\/runs starts work/],
    ["/v1/realtime", /at \/ws\/chat$/],
    ["/api/tags", /no API of Ollama: GET \/v1\/models lists/],
    ["/api/embed", /no API of Ollama: POST \/v1\/embeddings gives/],
    ["/api/generate", /no API of Ollama: POST \/v1\/chat\/completions answers/],
    ["/sse", /MCP is at \/mcp/],
    ["/.well-known/oauth-protected-resource/mcp", /no OAuth; make a token with/],
    ["/register", /no OAuth/],
    ["/nothing/secret-name", /see \/openapi\.json for those that exist$/],
    ["/v1/../secret-name/%2e%2e/x", /see \/openapi\.json/],
  ];
  for (const [path, says] of cases) {
    const reply = await send("POST", path, { body: {} });
    const { error } = await reply.json() as { error: { code: string; message: string } };
    assert.deepEqual([reply.status, error.code], [404, "not_found"], path);
    assert.match(error.message, says, path);
    assert.doesNotMatch(error.message, /secret-name/, path);
  }
  const other = await send("DELETE", "/v1/models");
  assert.equal(other.status, 405, "a path that is there has another method");
});
