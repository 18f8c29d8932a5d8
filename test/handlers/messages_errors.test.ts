import assert from "node:assert/strict";
import { test } from "node:test";
import type { Handler, Route } from "../../handlers/route.ts";
import { sendJson } from "../../handlers/wire/reply.ts";
import { ERROR_CODES, type ErrorCode, ProviderError, refuse } from "../../lib/base/errors.ts";
import { createTestRouter, type SendInit } from "../support/test_router.ts";

const PATH = "/v1/messages";
const HI = { max_tokens: 5, messages: [{ role: "user", content: "Hi" }] };

const routeOf = (handler: Handler): Route => ({
  method: "POST",
  path: PATH,
  access: "chat",
  summary: "",
  reply: { status: 200, type: "application/json" },
  idempotency: "honoured",
  handler,
});

/** Checks that a reply is an error in the vendor's form, and returns its status and its type. */
async function toldBy(reply: Response): Promise<readonly [status: number, type: string]> {
  const { type, error, request_id, ...more } = await reply.json() as Record<string, unknown> & {
    readonly error: { readonly type: string; readonly message: string };
  };
  const { type: kind, message } = error;
  assert.deepEqual([type, more], ["error", {}]);
  assert.deepEqual(Object.keys(error).toSorted(), ["code", "message", "param", "type"]);
  assert.match(message, /^[A-Z]/);
  assert.equal(reply.headers.get("content-type"), "application/json");
  assert.equal(reply.headers.get("request-id"), reply.headers.get("x-request-id"));
  assert.equal(reply.headers.get("request-id"), request_id);
  return [reply.status, kind];
}

/** Types of errors by the statuses of the vendor. Source: https://docs.anthropic.com/en/api/errors */
const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  504: "timeout_error",
  529: "overloaded_error",
};

test("each code of the catalogue has the vendor's form, its status and its type", async () => {
  let code: ErrorCode = "not_found";
  const { send } = createTestRouter({
    routes: [routeOf(() => {
      throw refuse(code, "Cannot do it: it is only tried");
    })],
  });
  for (code of Object.keys(ERROR_CODES) as ErrorCode[]) {
    const reply = await send("POST", PATH, { body: HI });
    const own = ERROR_CODES[code].status;
    const status = own === 503 && code !== "agent_unavailable" ? 529 : own;
    const type = TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
    assert.equal(reply.headers.get("retry-after") !== null, typeof ERROR_CODES[code].retry === "number", code);
    assert.deepEqual(await toldBy(reply), [status, type], code);
  }
});

test("a refusal of the model's server keeps its status, and a bug is 500", async () => {
  const rows: readonly (readonly [error: Error, status: number, type: string])[] = [
    [new ProviderError("provider_rejected", "No", { provider: "p", status: 422 }), 422, "invalid_request_error"],
    [
      new ProviderError("provider_rate_limited", "No", { provider: "p", retryAfterSeconds: 7 }),
      429,
      "rate_limit_error",
    ],
    [new ProviderError("model_not_found", "No", { provider: "p" }), 404, "not_found_error"],
    [new TypeError("a secret"), 500, "api_error"],
  ];
  for (const [error, status, type] of rows) {
    const { send } = createTestRouter({
      routes: [routeOf(() => {
        throw error;
      })],
    });
    const reply = await send("POST", PATH, { body: HI });
    if (status === 429) assert.equal(reply.headers.get("retry-after"), "7");
    assert.deepEqual(await toldBy(reply), [status, type]);
  }
});

interface Guard {
  readonly init?: SendInit;
  readonly method?: string;
  readonly path?: string;
  readonly status: number;
}

const GUARDS: Readonly<Record<string, Guard>> = {
  "no token": { init: { token: null }, status: 401 },
  "an unknown token": { init: { token: "nobody" }, status: 401 },
  "two tokens that differ": { init: { headers: { "x-api-key": "token_chat" } }, status: 401 },
  "a token without the scope": { init: { token: "token_runs" }, status: 403 },
  "another host": { init: { headers: { host: "evil.com" } }, status: 403 },
  "a page of another site": { init: { headers: { origin: "http://evil.com" } }, status: 403 },
  "a path below": { path: "/v1/messages/batches", status: 404 },
  "another method": { method: "GET", status: 405 },
  "a long body": { init: { headers: { "content-length": "99999999" } }, status: 413 },
  "a compressed body": { init: { headers: { "content-encoding": "br" } }, status: 415 },
  "another media type": { init: { headers: { "content-type": "text/plain" } }, status: 415 },
  "an expectation": { init: { headers: { expect: "more" } }, status: 417 },
  "a query that nobody knows": { path: `${PATH}?other=1`, status: 400 },
  "a body that is no JSON": { init: { body: "{" }, status: 400 },
  "a field that is wrong": { init: { body: { ...HI, temperature: 9 } }, status: 400 },
  "a bad key of idempotency": { init: { headers: { "idempotency-key": " " } }, status: 400 },
  "another value of the tools' header": { init: { headers: { "x-postern-tools": "all" } }, status: 400 },
  "no agent": { status: 503 },
};

for (const [name, { init = {}, method = "POST", path = PATH, status }] of Object.entries(GUARDS)) {
  test(`a refusal has the vendor's form: ${name}`, async () => {
    const needsAgent = status === 415 ||
      (status === 400 && !path.includes("?") && init.headers?.["idempotency-key"] === undefined);
    // deno-lint-ignore no-explicit-any -- nothing of the agent is asked for before the body is read
    const { send } = createTestRouter(needsAgent ? { agent: {} as any } : {});
    const body = method === "GET" ? {} : { body: HI };
    const reply = await send(method, path, { ...body, ...init });
    const type = TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
    assert.deepEqual(await toldBy(reply), [status, type]);
  });
}

test("the rate limit and a repeated key have the vendor's form", async () => {
  const limited = createTestRouter({ gateway: { rate_limit_max: 1 } });
  await limited.send("POST", PATH, { body: HI });
  const reply = await limited.send("POST", PATH, { body: HI });
  assert.ok(Number(reply.headers.get("retry-after")) > 0);
  assert.deepEqual(await toldBy(reply), [429, "rate_limit_error"]);
  const { send } = createTestRouter({ routes: [routeOf((_request, context) => sendJson(context, 200, {}))] });
  const headers = { "idempotency-key": "k" };
  const first = await send("POST", PATH, { headers, body: { a: 1 } });
  const again = await send("POST", PATH, { headers: { ...headers, "x-request-id": "second" }, body: { a: 1 } });
  assert.deepEqual([first.status, again.headers.get("request-id")], [200, "second"]);
  assert.deepEqual(await toldBy(await send("POST", PATH, { headers, body: { a: 2 } })), [409, "invalid_request_error"]);
});

const FORM = { "anthropic-version": "2023-06-01" };

const MODEL_GUARDS: Readonly<Record<string, Guard>> = {
  "no token": { init: { token: null }, status: 401 },
  "two tokens that differ": { init: { headers: { "x-api-key": "token_chat" } }, status: 401 },
  "a token without the scope": { init: { token: "token_runs" }, status: 403 },
  "another host": { init: { headers: { host: "evil.com" } }, status: 403 },
  "another method": { method: "DELETE", status: 405 },
  "an expectation": { init: { headers: { expect: "more" } }, status: 417 },
  "a query that nobody knows": { path: "/v1/models?other=1", status: 400 },
  "a model that is not there": { path: "/v1/models/some/model", status: 404 },
  "a path that is not clean": { path: "/v1/models//x", status: 404 },
};

for (const [name, { init = {}, method = "GET", path = "/v1/models", status }] of Object.entries(MODEL_GUARDS)) {
  test(`a refusal about models has the vendor's form for a client that asks in it: ${name}`, async () => {
    const { send } = createTestRouter();
    const reply = await send(method, path, { ...init, headers: { ...FORM, ...init.headers } });
    const type = TYPES[status] ?? "invalid_request_error";
    assert.deepEqual(await toldBy(reply), [status, type]);
    const other = await send(method, path, init);
    const body = await other.json() as Record<string, unknown>;
    assert.deepEqual([other.status, Object.keys(body), other.headers.get("request-id")], [status, ["error"], null]);
  });
}

test("the rate limit and a drain about models have the vendor's form for a client that asks in it", async () => {
  const limited = createTestRouter({ gateway: { rate_limit_max: 1 } });
  await limited.send("GET", "/v1/models", { headers: FORM });
  assert.deepEqual(await toldBy(await limited.send("GET", "/v1/models", { headers: FORM })), [429, "rate_limit_error"]);
  const { send } = createTestRouter({
    routes: [{
      ...routeOf(() => {
        throw refuse("shutting_down", "Cannot do it: it is only tried");
      }),
      method: "GET",
      path: "/v1/models",
    }],
  });
  const reply = await send("GET", "/v1/models", { headers: FORM });
  assert.ok(Number(reply.headers.get("retry-after")) > 0);
  assert.deepEqual(await toldBy(reply), [529, "overloaded_error"]);
});

test("other paths keep their own form", async () => {
  const reply = await createTestRouter().send("POST", "/v1/messagesx", { body: HI });
  assert.equal(reply.headers.get("request-id"), null);
  assert.equal(((await reply.json()) as { error: { code: string } }).error.code, "not_found");
});
