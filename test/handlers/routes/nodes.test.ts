import assert from "node:assert/strict";
import { test } from "node:test";
import type { Nodes } from "../../../lib/extensions/nodes/nodes.ts";
import { isHandshake } from "../../../handlers/middleware/guards.ts";
import { createFakePeer, driveHooks } from "../../support/fake_peer.ts";
import { jsonOf } from "../../support/json_of.ts";
import { createNodeBench, ECHO, HELLO } from "../../support/node_bench.ts";
import { createTestRouter, errorOf } from "../../support/test_router.ts";

const TOKEN = "right-token-0123456789";

/** A handshake of a node, and its reply: the refusal, or undefined where it may become a socket. */
function createDoor(nodes: Nodes | undefined) {
  const { router, services, send } = createTestRouter({ nodes });
  const shake = async (path: string, headers: Record<string, string> = {}) => {
    const request = new Request(`http://gateway.test${path}`, { headers: { upgrade: "websocket", ...headers } });
    assert.ok(isHandshake(request));
    const hooks = router.resolveWebSocket(request, { remoteAddress: "192.0.2.7" });
    const given = await hooks.upgrade?.(request as never);
    return { hooks, refusal: given instanceof Response ? given : undefined };
  };
  return { services, send, shake };
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

test("GET /ws/node is refused before the upgrade, with the one error shape, by everything but the node's token and an allowed id", async () => {
  const { shake, services } = createDoor(createNodeBench().nodes);
  const cases: readonly [path: string, headers: Record<string, string>, status: number, code: string][] = [
    ["/ws/node?id=pi", {}, 401, "auth_required"],
    ["/ws/node?id=pi", bearer("token_admin"), 401, "auth_invalid"],
    ["/ws/node?id=pi", bearer("token_chat"), 401, "auth_invalid"],
    ["/ws/node?id=pi", { authorization: `Basic ${TOKEN}` }, 401, "auth_required"],
    [`/ws/node?id=pi&ticket=ticket_0&token=${TOKEN}`, {}, 400, "invalid_request"],
    ["/ws/node", bearer(TOKEN), 400, "invalid_request"],
    ["/ws/node?id=unknown", bearer(TOKEN), 403, "insufficient_scope"],
    ["/ws/node?id=pi", { ...bearer(TOKEN), origin: "https://evil.example" }, 403, "origin_forbidden"],
  ];
  services.tickets.issue({ tokenId: "t", scopes: ["admin"] });
  for (const [path, headers, status, code] of cases) {
    const { refusal } = await shake(path, headers);
    assert.equal(refusal?.status, status, `${path} ${JSON.stringify(headers)}`);
    assert.equal((await errorOf(refusal as Response)).code, code);
  }
  assert.deepEqual(services.audit.refused.slice(0, 2), ["auth_required 192.0.2.7", "auth_invalid 192.0.2.7"]);
  assert.equal((await shake("/ws/node?id=pi", bearer(TOKEN))).refusal, undefined);
});

test("pairing off opens the bearer routes and not the nodes'", async () => {
  const { services, shake } = createDoor(createNodeBench().nodes);
  services.configure({ require_pairing: false });
  assert.equal((await shake("/ws/node?id=pi")).refusal?.status, 401);
});

test("too many wrong tokens of one address are 429 with Retry-After, and keep no node out", async () => {
  const { shake, services } = createDoor(createNodeBench().nodes);
  services.configure({ rate_limit_max: 3 });
  for (let tries = 0; tries < 30; tries++) await shake("/ws/node?id=pi", bearer("guess"));
  assert.equal((await shake("/ws/node?id=pi", bearer(TOKEN))).refusal, undefined);
  const { refusal } = await shake("/ws/node?id=pi", bearer("guess"));
  assert.equal(refusal?.status, 429);
  assert.match(refusal?.headers.get("retry-after") ?? "", /^\d+$/);
});

test("with node control off, socket and routes say so; a gateway that drains takes no node", async () => {
  const off = createDoor(undefined);
  assert.equal((await off.shake("/ws/node?id=pi", bearer(TOKEN))).refusal?.status, 404);
  for (
    const [method, path] of [["GET", "/v1/nodes"], ["GET", "/v1/nodes/pi"], ["POST", "/v1/nodes/pi/describe"]] as const
  ) {
    const reply = await off.send(method, path);
    assert.equal(reply.status, 404);
    assert.match((await errorOf(reply)).message, /node control is off; set \[gateway\.node_control\] enabled = true/);
  }
  const draining = createDoor(createNodeBench().nodes);
  draining.services.enter("draining");
  assert.equal((await draining.shake("/ws/node?id=pi", bearer(TOKEN))).refusal?.status, 503);
});

test("a plain GET of the socket is 426, and the node routes want the scope tools", async () => {
  const { send } = createDoor(createNodeBench().nodes);
  assert.equal((await send("GET", "/ws/node?id=pi")).status, 426);
  assert.equal((await send("GET", "/v1/nodes", { token: "token_chat" })).status, 403);
  assert.equal((await send("POST", "/v1/nodes/pi/invoke", { token: null, body: {} })).status, 401);
  assert.equal((await send("GET", "/v1/nodes", { token: TOKEN })).status, 401, "the nodes' token opens nothing else");
});

test("a socket becomes a link: hello, list, read, describe, and gone again", async () => {
  const { nodes, clock } = createNodeBench();
  const { shake, send } = createDoor(nodes);
  const { hooks } = await shake("/ws/node?id=pi", bearer(TOKEN));
  const peer = createFakePeer();
  const socket = driveHooks(hooks, peer);
  socket.say(HELLO);
  assert.equal(peer.frames()[0].type, "welcome");
  const { data } = await jsonOf(send("GET", "/v1/nodes"));
  assert.deepEqual(data.map(({ id, connected, address }: Record<string, unknown>) => [id, connected, address]), [
    ["gpu", false, null],
    ["pi", true, "192.0.2.7"],
  ]);
  const describing = send("POST", "/v1/nodes/pi/describe");
  await clock.advance(0);
  assert.deepEqual(peer.frames().at(-1), { type: "describe", id: "1" });
  socket.say({ type: "tools", id: "1", tools: [{ ...ECHO, name: "other" }] });
  const { tools } = await jsonOf(describing);
  assert.deepEqual(tools.map(({ registered_as }: Record<string, unknown>) => registered_as), ["node__pi__other"]);
  socket.leave();
  const gone = await jsonOf(send("GET", "/v1/nodes/pi"));
  assert.deepEqual([gone.connected, gone.tools.length], [false, 1]);
  const away = await send("POST", "/v1/nodes/pi/describe");
  assert.equal(away.status, 503);
  assert.match((await errorOf(away)).message, /not connected/);
});

test("invoke names the node's tool, goes through the door under its registered name, and says what is not there", async () => {
  const bench = createNodeBench();
  bench.connect({ hello: { tools: [{ ...ECHO, name: "read_file" }] } });
  const { send } = createDoor(bench.nodes);
  const unknown = await send("POST", "/v1/nodes/unknown/invoke", { body: { tool: "echo" } });
  assert.equal(unknown.status, 404);
  const { message, param } = await errorOf(await send("POST", "/v1/nodes/pi/invoke", { body: { tool: "echo" } }));
  assert.match(message, /node "pi" does not offer it/);
  assert.equal(param, "tool");
  const never = await errorOf(await send("POST", "/v1/nodes/gpu/invoke", { body: { tool: "echo" } }));
  assert.match(never.message, /has not connected since the gateway started/);
  assert.equal((await send("POST", "/v1/nodes/pi/invoke", { body: {} })).status, 400);
  // The fake door answers with its input
  const made = await jsonOf(
    send("POST", "/v1/nodes/pi/invoke", { body: { tool: "read_file", input: { text: "hi" } } }),
  );
  assert.deepEqual(made, { output: '{"text":"hi"}', is_error: false, data: { length: 13 } });
});
