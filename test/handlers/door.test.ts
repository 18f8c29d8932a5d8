import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestRouter, errorOf } from "../support/test_router.ts";

test("a bearer route without a usable token is 401 with WWW-Authenticate, and says whether one was given", async () => {
  const { send } = createTestRouter();
  const cases = [
    [{}, "auth_required"],
    [{ authorization: "Basic dXNlcjpwYXNz" }, "auth_required"],
    [{ authorization: "Bearer" }, "auth_required"],
    [{ authorization: "Bearer a b" }, "auth_required"],
    [{ authorization: "token_admin" }, "auth_required"],
    [{ authorization: "Bearer token_wrong" }, "auth_invalid"],
    [{ authorization: `Bearer ${"x".repeat(5000)}` }, "auth_invalid"],
  ] as const;
  for (const [headers, code] of cases) {
    const reply = await send("POST", "/v1/ping", { token: null, headers });
    assert.equal(reply.status, 401, JSON.stringify(headers));
    assert.equal(reply.headers.get("www-authenticate"), "Bearer");
    const error = await errorOf(reply);
    assert.deepEqual([error.code, error.type], [code, "authentication_error"]);
    assert.doesNotMatch(error.message, /xxxx|wrong/);
  }
  assert.equal(
    (await send("POST", "/v1/ping", { token: null, headers: { authorization: "bearer  token_chat " } })).status,
    200,
  );
});

test("a token may come as x-api-key; two headers with different tokens let nobody in", async () => {
  const { send } = createTestRouter();
  const ping = async (headers: Record<string, string>) => {
    const reply = await send("POST", "/v1/ping", { token: null, headers });
    return reply.status === 200 ? 200 : (await errorOf(reply)).code;
  };
  assert.equal(await ping({ "x-api-key": "token_chat" }), 200);
  assert.equal(await ping({ "x-api-key": "token_wrong" }), "auth_invalid");
  assert.equal(await ping({ "x-api-key": "" }), "auth_required");
  assert.equal(await ping({ "x-api-key": "token_chat", authorization: "Bearer token_chat" }), 200);
  assert.equal(await ping({ "x-api-key": "token_chat", authorization: "Basic dXNlcjpwYXNz" }), 200);
  for (
    const [key, bearer] of [["token_chat", "token_wrong"], ["token_wrong", "token_chat"], ["token_chat", "token_admin"]]
  ) {
    assert.equal(await ping({ "x-api-key": key ?? "", authorization: `Bearer ${bearer}` }), "auth_invalid");
  }
  const open = createTestRouter({ gateway: { require_pairing: false }, remoteAddress: "127.0.0.1" });
  const both = { "x-api-key": "token_chat", authorization: "Bearer token_wrong" };
  assert.equal((await open.send("POST", "/v1/ping", { token: null, headers: both })).status, 401);
});

test("a token without the route's scope is 403 insufficient_scope; admin has all", async () => {
  const { send } = createTestRouter();
  const routes = [["POST", "/v1/ping", "chat"], ["GET", "/v1/tools", "tools"], ["GET", "/v1/tokens", "admin"]] as const;
  for (const [method, path, scope] of routes) {
    for (const token of ["chat", "runs", "tools", "approve", "admin"]) {
      const reply = await send(method, path, { token: `token_${token}` });
      if (token === scope || token === "admin") assert.equal(reply.status, 200, `${path} ${token}`);
      else assert.equal((await errorOf(reply)).code, "insufficient_scope", `${path} ${token}`);
    }
  }
});

test("require_pairing = false opens the bearer routes on a loopback bind only", async () => {
  const open = createTestRouter({ gateway: { require_pairing: false }, remoteAddress: "127.0.0.1" });
  assert.equal((await open.send("POST", "/v1/ping", { token: null })).status, 200);
  assert.equal((await open.send("POST", "/v1/ping", { token: "sk-anything" })).status, 200);
  assert.equal((await open.send("GET", "/v1/tokens", { token: null })).status, 200);
  assert.equal((await open.send("GET", "/v1/tokens", { token: "token_chat" })).status, 403);
  assert.equal(
    (await open.send("POST", "/v1/ping", { token: null, headers: { origin: "http://evil.com" } })).status,
    403,
  );
  for (const host of ["0.0.0.0", "::", "192.168.1.5", "gateway.example"]) {
    const bound = createTestRouter({ gateway: { require_pairing: false, host }, remoteAddress: "127.0.0.1" });
    assert.equal((await bound.send("POST", "/v1/ping", { token: null })).status, 401, host);
  }
});

test("require_pairing = false lets nobody in from another machine", async () => {
  const { send } = createTestRouter({ gateway: { require_pairing: false } });
  for (const remoteAddress of ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1", ""]) {
    assert.equal((await send("POST", "/v1/ping", { token: null, remoteAddress })).status, 401, remoteAddress);
    assert.equal((await send("POST", "/v1/ping", { token: "token_chat", remoteAddress })).status, 200, remoteAddress);
  }
  for (const remoteAddress of ["127.0.0.1", "::1", "::ffff:127.0.0.1"]) {
    assert.equal((await send("POST", "/v1/ping", { token: null, remoteAddress })).status, 200, remoteAddress);
  }
});

test("require_pairing = false lets nobody in whose address the server does not say, and tells the way out", async () => {
  const { send } = createTestRouter({ gateway: { require_pairing: false } });
  for (const token of [null, "sk-anything"]) {
    const reply = await send("POST", "/v1/ping", { token });
    assert.equal(reply.status, 401);
    const { code, message } = await errorOf(reply);
    assert.equal(code, "auth_required");
    assert.match(message, /remoteAddress/);
  }
  assert.equal((await send("POST", "/v1/ping", { token: "token_chat" })).status, 200);
});

test("a change of the configuration counts from the next request on", async () => {
  const { send, services } = createTestRouter({ remoteAddress: "127.0.0.1" });
  assert.equal((await send("POST", "/v1/ping", { token: null })).status, 401);
  services.configure({ require_pairing: false });
  assert.equal((await send("POST", "/v1/ping", { token: null })).status, 200);
});
