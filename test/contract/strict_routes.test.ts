import assert from "node:assert/strict";
import { test } from "node:test";
import { ROUTES } from "../../handlers/routes.ts";
import { createTestRouter, errorOf } from "../support/test_router.ts";
import { STRICT_ENDPOINTS } from "./endpoints.ts";

test("the routes of tokens, pairing, approvals, rules and trust, and those that forget in bulk, are the strict ones", () => {
  const strict = ROUTES.filter((route) => route.strict).map(({ method, path }) => `${method} ${path}`);
  assert.deepEqual(strict.sort(), [...STRICT_ENDPOINTS].sort());
});

const HANDSHAKE = {
  upgrade: "websocket",
  connection: "Upgrade",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};
const pair = { "x-pairing-code": "GOOD-CODE" };

for (const endpoint of STRICT_ENDPOINTS) {
  const [method = "", template = ""] = endpoint.split(" ");

  test(`${endpoint} refuses what it does not know, by name, and does nothing`, async () => {
    const { send, services } = createTestRouter();
    const { record } = await services.tokens.issue({ scopes: ["chat"], label: "stays" });
    const path = template.replace(":id", template.includes("tokens") ? record.id : "apr_1");
    const token = template === "/pair" ? null : "token_admin";
    const before = await services.tokens.list();
    const asked = await send(method, `${path}?expires_in=60`, { token, headers: pair });
    assert.equal(asked.status, 400, "query");
    assert.deepEqual([(await errorOf(asked)).code, "expires_in"], ["invalid_request", "expires_in"]);
    // A body of another media type has no fields
    const isRaw = ROUTES.some((route) => `${route.method} ${route.path}` === endpoint && route.rawBody !== undefined);
    if (method !== "GET" && !isRaw) {
      for (const value of [60, null, { a: 1 }]) {
        const told = await send(method, path, {
          token,
          headers: pair,
          body: { ...(template === "/v1/approvals/:id" ? { decision: "deny" } : {}), expires_in: value },
        });
        const { code, param, message } = await errorOf(told);
        assert.deepEqual([told.status, code, param], [400, "invalid_request", "expires_in"]);
        assert.match(message, /^Cannot accept "expires_in": there is no such field; /);
      }
    }
    assert.deepEqual(await services.tokens.list(), before);
  });
}

for (const { method, path, access, websocket } of ROUTES) {
  // No token reaches the gateways' own routes, and a plain request no socket
  if (access === "cluster" || websocket !== undefined) continue;
  const isPublic = access === "public";

  test(`${method} ${path} ${isPublic ? "takes any query" : "refuses a query parameter that it does not know"}`, async () => {
    const { send } = createTestRouter();
    const token = path === "/pair" ? null : "token_admin";
    const plain = path.replaceAll(/:\w+\+?/g, "x");
    const asked = await send(method, `${plain}?api-version=1&q=1`, { token, headers: pair });
    if (isPublic) return assert.equal(asked.status, (await send(method, plain, { token, headers: pair })).status);
    const { code, param, message } = await errorOf(asked);
    assert.deepEqual([asked.status, code, param], [400, "invalid_request", "q"]);
    assert.match(message, /^Cannot accept the query parameter "q": this route does not know it; it takes /);
  });
}

test("a handshake with a query parameter that no socket knows is refused", async () => {
  const { router } = createTestRouter({ agent: {} as never });
  const headers = { ...HANDSHAKE, authorization: "Bearer token_admin" };
  const open = (query: string) =>
    router.resolveWebSocket(new Request(`http://gateway.test/ws/chat${query}`, { headers }));
  const refused = await open("?tickets=1").upgrade?.({} as never);
  assert.equal(refused instanceof Response && refused.status, 400);
  assert.equal(typeof open("?api-version=1").open, "function");
});

test("an empty body stays fine where none is needed, of whatever type", async () => {
  const { send } = createTestRouter();
  const form = { "content-type": "application/x-www-form-urlencoded", "content-length": "0" };
  assert.equal((await send("POST", "/pair", { token: null, headers: { ...form, ...pair }, body: "" })).status, 200);
  assert.equal((await send("POST", "/v1/pairing-code", { headers: form, body: "" })).status, 200);
  assert.equal((await send("POST", "/v1/pairing-code", { body: {} })).status, 200);
  assert.equal((await send("DELETE", "/v1/tokens")).status, 200);
});

test("pairing names the token and says when it ends", async () => {
  const { send } = createTestRouter();
  const body = { label: "Firefox on Linux", idle_ttl_seconds: 2_592_000, ttl_seconds: null };
  const reply = await send("POST", "/pair", { token: null, headers: pair, body });
  assert.equal(reply.status, 200);
  assert.equal((await reply.json() as { idle_ttl_seconds: number }).idle_ttl_seconds, 2_592_000);
  for (const [field, value] of [["label", "x".repeat(101)], ["ttl_seconds", 0], ["idle_ttl_seconds", 1.5]] as const) {
    const refused = await send("POST", "/pair", { token: null, headers: pair, body: { [field]: value } });
    assert.deepEqual([refused.status, (await errorOf(refused)).param], [400, field]);
  }
  const long = await send("POST", "/pair", { token: null, headers: pair, body: { label: "x".repeat(4096) } });
  assert.deepEqual([long.status, (await errorOf(long)).code], [413, "payload_too_large"]);
  const codeless = await send("POST", "/pair", { token: null, body: "no JSON" });
  assert.equal((await errorOf(codeless)).code, "pairing_code_required");
});
