import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as handlers from "../../handlers/handlers.ts";
import { ROUTE_TABLE, ROUTES } from "../../handlers/routes.ts";
import { connect } from "../../handlers/testing/mod.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { jsonOf } from "../support/json_of.ts";
import { answer, createScriptedRuns } from "../support/scripted_runs.ts";
import { createTestRouter } from "../support/test_router.ts";

const ORIGIN = "http://gateway.test";
const ask = (path: string, init?: RequestInit) => new Request(`${ORIGIN}${path}`, init);
const post = (path: string, value: unknown, headers: Readonly<Record<string, string>> = {}) =>
  ask(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof value === "string" ? value : JSON.stringify(value),
  });
const as = (...scopes: ("admin" | "chat" | "runs" | "tools")[]) => () => ({
  identity: { tokenId: "ann", scopes },
  address: "10.1.2.3",
});
const facts = { health: () => ({ status: "ok" as const, version: "1.2.3", uptime_seconds: 4 }) };

describe("the table of handlers", () => {
  test("every route of the gateway has a handler of its name, which /openapi.json describes, and no handler is without a route", async () => {
    assert.deepEqual(Object.keys(handlers).sort(), Object.keys(ROUTE_TABLE).sort());
    const { paths } = await jsonOf(handlers.openApi({ version: "1.2.3" })(ask("/openapi.json"))) as {
      readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    };
    const described = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`)
    );
    const routed = ROUTES.map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)\+?/g, "{$1}")}`);
    assert.deepEqual(described.sort(), routed.sort());
  });

  test("a handler has at most five parts, `identify` among them", () => {
    const wide = ROUTES.filter(({ access, needs = [] }) => needs.length + (access === "public" ? 0 : 1) > 5);
    assert.deepEqual(wide.map(({ method, path }) => `${method} ${path}`), []);
  });

  test("a handler is not made without a part that it needs", () => {
    for (const [name, route] of Object.entries(ROUTE_TABLE)) {
      const own = (route.needs ?? []).filter((part) => part !== "kit" && part !== "sockets");
      // Whoever calls from JavaScript may leave a part out
      const make = (handlers as unknown as Record<string, (parts: unknown) => unknown>)[name] ?? assert.fail(name);
      for (const left of own) {
        const parts = Object.fromEntries(own.filter((part) => part !== left).map((part) => [part, {}]));
        assert.throws(() => make(parts), new RegExp(`${route.method} .*"${left}"`), name);
      }
      make(Object.fromEntries(own.map((part) => [part, {}])));
    }
  });
});

test("a handler answers a request by its parts alone", async () => {
  const reply = await handlers.health({ facts })(ask("/health"));
  assert.deepEqual([reply.status, await reply.json()], [200, facts.health()]);
  assert.match(reply.headers.get("x-request-id") ?? "", /^req_/);
});

test("HEAD answers as GET, without a body", async () => {
  const head = { method: "HEAD" };
  const reply = await handlers.health({ facts })(ask("/health", head));
  const length = String(JSON.stringify(facts.health()).length);
  assert.deepEqual([reply.status, await reply.text(), reply.headers.get("content-length")], [200, "", length]);
});

test("path parameters, query and body are read from the request, and `identify` says whose it is", async () => {
  const asked: unknown[] = [];
  const tokens = {
    revoke: (...given: readonly unknown[]) => {
      asked.push(given);
      return Promise.resolve(true);
    },
  };
  const revoke = handlers.revokeToken({ tokens, identify: as("admin") });
  assert.deepEqual(await jsonOf(revoke(ask("/v1/tokens/a%20b", { method: "DELETE" }))), { id: "a b", deleted: true });
  assert.deepEqual(asked, [["a b", { via: "http", tokenId: "ann", scopes: ["admin"] }]]);
  const redeemed: unknown[] = [];
  const pairing = {
    redeem(code: string | null, terms: unknown) {
      redeemed.push(code, terms);
      return Promise.reject(new Error("secret"));
    },
  };
  const logged: unknown[] = [];
  const log = { error: (message: string) => void logged.push(message) };
  // The other levels are not used
  const kit = { log: log as unknown as Console & { shows(): boolean; child(): never } };
  const pair = handlers.pair({ pairing, kit, identify: () => ({ address: "10.1.2.3" }) });
  const failed = await pair(post("/pair", { label: "laptop" }, { "x-pairing-code": "GOOD-CODE" }));
  assert.equal(failed.status, 500);
  assert.doesNotMatch(await failed.text(), /secret/);
  assert.deepEqual(redeemed, ["GOOD-CODE", {
    label: "laptop",
    ttlSeconds: undefined,
    idleTtlSeconds: undefined,
    address: "10.1.2.3",
  }]);
  assert.equal(logged.length, 1);
});

test("who is not known, or lacks the scope, is refused, and so is whom `identify` refuses", async () => {
  const tokens = { list: () => Promise.resolve([]) };
  const refusal = async (parts: Parameters<typeof handlers.tokens>[0]) => {
    const reply = await handlers.tokens(parts)(ask("/v1/tokens"));
    return [reply.status, (await jsonOf(reply)).error.code];
  };
  assert.deepEqual(await refusal({ tokens }), [401, "auth_required"]);
  assert.deepEqual(await refusal({ tokens, identify: () => ({ identity: null }) }), [401, "auth_required"]);
  assert.deepEqual(await refusal({ tokens, identify: as("chat") }), [403, "insufficient_scope"]);
  const fails = () => Promise.reject(Object.assign(new Error("the session store is away")));
  const kit = { log: createTestRouter().services.log };
  assert.deepEqual(await refusal({ tokens, identify: fails, kit }), [500, "internal_error"]);
  assert.equal((await handlers.tokens({ tokens, identify: as("admin") })(ask("/v1/tokens"))).status, 200);
});

/** Requests that are refused in the same words with and without the router, by the name of their handler. */
const REFUSED: readonly (readonly [name: string, request: () => Request])[] = [
  ["pair", () => post("/pair", { other: 1 }, { "x-pairing-code": "x" })],
  ["pair", () => post("/pair", "{", { "x-pairing-code": "x" })],
  ["pair", () => post("/pair", `{"label":"${"x".repeat(5000)}"}`, { "x-pairing-code": "x" })],
  ["tokens", () => ask("/v1/tokens?limit=5")],
  ["token", () => ask("/v1/tokens/none")],
  ["token", () => ask("/v1/tokens/%FF")],
  ["createToken", () => post("/v1/tokens", { scopes: ["root"] })],
  ["createToken", () => post("/v1/tokens", "scopes", { "content-type": "text/plain" })],
  ["createToken", () => post("/v1/tokens", {}, { "content-encoding": "gzip, gzip, gzip" })],
  ["createToken", () => post("/v1/tokens", {}, { "content-encoding": "br" })],
  ["chatCompletions", () => post("/v1/chat/completions", { messages: [] })],
  ["messages", () => post("/v1/messages", {})],
  ["ping", () => ask("/v1/ping")],
];

test("a refusal has the words of the gateway's own", async () => {
  const { router, services } = createTestRouter();
  const identify = () => ({ identity: { tokenId: "admin", scopes: ["admin"] as const } });
  for (const [name, request] of REFUSED) {
    // Each gets more than its own parts
    const make = (handlers as unknown as Record<string, (parts: unknown) => (request: Request) => Promise<Response>>)[
      name
    ] ?? assert.fail(name);
    const alone = await make({ ...services, identify })(request());
    const whole = request();
    whole.headers.set("authorization", "Bearer token_admin");
    const routed = await router.fetch(whole);
    const told = async (reply: Response) => {
      const { request_id: _, ...body } = await jsonOf(reply);
      return { status: reply.status, allow: reply.headers.get("allow"), ...body };
    };
    assert.deepEqual(await told(alone), await told(routed), `${name} ${request().url}`);
  }
});

test("a completion streams by runs alone, and ends with its client", async () => {
  const clock = createFakeClock();
  const runs = createScriptedRuns({ clock, script: () => answer("Hello there") });
  const complete = handlers.chatCompletions({ agent: { runs }, tools: {}, identify: as("chat"), kit: { clock } });
  const body = { messages: [{ role: "user", content: "Hi" }], stream: true };
  const reply = await complete(post("/v1/chat/completions", body));
  assert.match(await reply.text(), /"Hello "[^]*"there"[^]*\[DONE\]/);
  const gone = new AbortController();
  const hung = createScriptedRuns({ clock, script: () => ["hang"] });
  const waits = handlers.chatCompletions({ agent: { runs: hung }, tools: {}, identify: as("chat"), kit: { clock } });
  const request = new Request(post("/v1/chat/completions", { ...body, stream: false }), { signal: gone.signal });
  const waiting = waits(request);
  await clock.advance(1);
  gone.abort();
  await waiting;
  assert.deepEqual(hung.started[0]?.cancelled, ["client_gone"]);
});

test("a socket's handler takes a handshake and gives hooks, also for a peer with nothing but send and close", async () => {
  const clock = createFakeClock();
  const runs = createScriptedRuns({ clock, script: () => answer("Hello there") });
  const chat = handlers.chatSocket({ agent: { runs }, approvals: {}, identify: as("chat"), kit: { clock } });
  const socket = await connect(chat);
  socket.send("Hi");
  await clock.advance(0);
  assert.deepEqual(await socket.next(), { type: "delta", delta: "Hello " });
  assert.deepEqual(runs.started[0]?.request.by.caller, { via: "websocket", tokenId: "ann", scopes: ["chat"] });
  const refused = handlers.chatSocket({ agent: undefined, approvals: {}, identify: as("chat") });
  await assert.rejects(connect(refused), { status: 503, code: "agent_unavailable" });
  await assert.rejects(connect(handlers.chatSocket({ agent: { runs }, approvals: {} })), { status: 401 });
  const hooks = chat(ask("/ws/chat"));
  const sent: string[] = [];
  // A peer as small as it can be
  const peer = { send: (text: string) => void sent.push(text), close() {} } as unknown as Parameters<
    NonNullable<typeof hooks.open>
  >[0];
  await hooks.upgrade?.(ask("/ws/chat") as Parameters<NonNullable<typeof hooks.upgrade>>[0]);
  await hooks.open?.(peer);
  await hooks.message?.(peer, { rawData: "Hi" } as Parameters<NonNullable<typeof hooks.message>>[1]);
  await clock.advance(0);
  assert.deepEqual(sent.map((text) => JSON.parse(text).type), ["delta", "delta", "done"]);
});
