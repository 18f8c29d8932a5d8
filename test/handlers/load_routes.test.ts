import assert from "node:assert/strict";
import { test } from "node:test";
import { ROUTES } from "../../handlers/routes.ts";
import { HEALTH_ROUTES } from "../../handlers/routes/health.ts";
import type { Route } from "../../handlers/route.ts";
import { createTestRouter, errorOf } from "../support/test_router.ts";

/** A router that has the routes of health alone until somebody asks for more. */
function lateRouter(load: () => Promise<readonly Route[]> = () => Promise.resolve(ROUTES)) {
  let loads = 0;
  const loadRoutes = () => {
    loads++;
    return load();
  };
  return { ...createTestRouter({ routes: HEALTH_ROUTES, loadRoutes }), loads: () => loads };
}

const HANDSHAKE = {
  upgrade: "websocket",
  connection: "upgrade",
  "sec-websocket-key": "x",
  "sec-websocket-version": "13",
};

test("requests for the gateway's health load no other route", async () => {
  const { send, loads } = lateRouter();
  for (const path of ["/health", "/health/live", "/metrics", "/v1/status"]) {
    assert.equal((await send("GET", path)).status, 200, path);
  }
  assert.equal((await send("HEAD", "/health")).status, 200);
  assert.equal(loads(), 0);
});

test("the first other request loads all routes, once for all who come meanwhile", async () => {
  const { send, loads } = lateRouter();
  const replies = await Promise.all([
    send("POST", "/v1/ping", { body: { message: "hello" } }),
    send("GET", "/v1/tools"),
    send("GET", "/v1/tools/read_file"),
    send("GET", "/nowhere"),
    send("GET", "/v1/tools", { token: null }),
  ]);
  assert.deepEqual(replies.map(({ status }) => status), [200, 200, 200, 404, 401]);
  assert.deepEqual(await replies[0]?.json(), { ok: true, echo: "hello" });
  assert.equal((await send("GET", "/v1/tools")).status, 200);
  assert.equal(loads(), 1);
});

test("a method that a route of health does not take is refused as with all routes, and OPTIONS names the methods", async () => {
  const whole = createTestRouter();
  for (
    const [method, path] of [["POST", "/health"], ["DELETE", "/metrics"], ["OPTIONS", "/health"], [
      "OPTIONS",
      "/v1/runs",
    ]]
  ) {
    const [late, usual] = [lateRouter(), whole];
    const [reply, expected] = [await late.send(method ?? "", path ?? ""), await usual.send(method ?? "", path ?? "")];
    assert.deepEqual(
      [reply.status, reply.headers.get("allow")],
      [expected.status, expected.headers.get("allow")],
      path,
    );
  }
});

test("a WebSocket that comes first is let in, and one that may not is refused as with all routes", async () => {
  const heard: string[] = [];
  const socket: Route = {
    method: "GET",
    path: "/ws/test",
    access: "chat",
    summary: "A socket of this test",
    reply: { status: 101 },
    handler: () => assert.fail("it is a socket"),
    websocket: () => ({ open: () => void heard.push("open"), message: () => void heard.push("message") }),
  };
  const routes = [...ROUTES, socket];
  const shake = async ({ router }: ReturnType<typeof createTestRouter>, path: string, token: string) => {
    const request = new Request(`http://gateway.test${path}`, {
      headers: { ...HANDSHAKE, authorization: `Bearer ${token}` },
    });
    const hooks = router.resolveWebSocket(request);
    // The hook gets the request as crossws hands it over
    const given = await hooks.upgrade?.(request as never);
    return { hooks, status: given instanceof Response ? given.status : 101 };
  };
  for (
    const [path, token, expected] of [
      ["/ws/test", "token_admin", 101],
      ["/ws/test", "wrong", 401],
      ["/v1/runs", "token_admin", 400],
      ["/no", "token_admin", 400],
    ] as const
  ) {
    assert.equal((await shake(createTestRouter({ routes }), path, token)).status, expected, path);
    assert.equal((await shake(lateRouter(() => Promise.resolve(routes)), path, token)).status, expected, path);
  }
  const { hooks } = await shake(lateRouter(() => Promise.resolve(routes)), "/ws/test", "token_admin");
  await hooks.open?.({} as never);
  await hooks.message?.({} as never, {} as never);
  assert.deepEqual(heard, ["open", "message"]);
});

test("routes that cannot be loaded are an error of the request, and the next one tries again", async () => {
  let isBroken = true;
  const { send, router } = lateRouter(() => isBroken ? Promise.reject(new Error("no file")) : Promise.resolve(ROUTES));
  const reply = await send("GET", "/v1/tools");
  assert.equal(reply.status, 500);
  assert.equal((await errorOf(reply)).code, "internal_error");
  assert.ok(reply.headers.has("x-request-id"));
  const request = new Request("http://gateway.test/ws/chat", { headers: HANDSHAKE });
  const refused = await router.resolveWebSocket(request).upgrade?.(request as never);
  assert.equal(refused instanceof Response && refused.status, 500);
  assert.equal((await send("GET", "/health")).status, 200);
  isBroken = false;
  assert.equal((await send("GET", "/v1/tools")).status, 200);
});
