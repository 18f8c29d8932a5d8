import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { defineRoute } from "../../handlers/define_route.ts";
import type { Route } from "../../handlers/route.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { healthRoute } from "../../handlers/routes/health.ts";
import { trustModelServerRoute } from "../../handlers/routes/models.ts";
import { countQuery } from "../../handlers/wire/lists.ts";
import { emptyReply, jsonReply } from "../../handlers/wire/reply.ts";
import { createTestRouter, errorOf } from "../support/test_router.ts";

const INPUT = {
  params: {},
  body: undefined,
  ignored: [],
  caller: { via: "http", tokenId: null, scopes: [] },
  identity: null,
  address: undefined,
  requestId: "req_1",
  signal: new AbortController().signal,
  controller: new AbortController(),
  confirm: () => Promise.resolve(),
  claim: undefined,
  head: new Request("http://gateway.test/"),
} as const;

test("every route names the services that it needs", () => {
  const silent = ROUTES.filter(({ needs }) => needs === undefined).map(({ method, path }) => `${method} ${path}`);
  assert.deepEqual(silent, []);
});

test("a handler is called with plain values, and returns one", async () => {
  const asked: unknown[] = [];
  const trustModelServer = (...given: readonly unknown[]) => {
    asked.push(given);
    return Promise.resolve({ origin: "http://127.0.0.1:11434", uid: 1000 });
  };
  const input = { ...INPUT, query: {}, body: { address: "127.0.0.1:11434" } };
  const reply = await trustModelServerRoute.handle({ trustModelServer }, input);
  assert.deepEqual(reply, jsonReply(200, { origin: "http://127.0.0.1:11434", uid: 1000 }));
  assert.deepEqual(asked, [["127.0.0.1:11434", INPUT.caller]]);
});

test("a probe asks for nothing but the facts", async () => {
  const facts = {
    health: () => ({ status: "draining" as const, version: "1.2.3", uptime_seconds: 4, reason: 'a "reason"' }),
    status: () => Promise.reject(new TypeError("It is not asked for")),
  };
  const reply = await healthRoute.handle({ facts });
  assert.ok("body" in reply && typeof reply.body === "string");
  assert.deepEqual([reply.status, JSON.parse(reply.body)], [503, facts.health()]);
});

const made: unknown[] = [];
const ROUTE = defineRoute({
  method: "POST",
  path: "/v1/things/:id/of/:owner",
  access: "public",
  needs: [],
  summary: "Thing",
  query: { count: countQuery("How many", { max: 9, usual: 3 }) },
  body: v.object({ name: v.string() }),
  reply: { status: 204 },
  before(_parts, { params }) {
    if (params.id === "none") throw new TypeError("There is none");
  },
  handle(_parts, { params, query, body, ignored, caller, address }) {
    made.push({ id: params.id, owner: params.owner, count: query.count, name: body.name, ignored: [...ignored] });
    made.push({ caller, address });
    return emptyReply();
  },
});

function send(
  path: string,
  init: Parameters<ReturnType<typeof createTestRouter>["send"]>[2] = {},
  route: Route = ROUTE,
) {
  return createTestRouter({ routes: [route], remoteAddress: "10.1.2.3" }).send("POST", path, { token: null, ...init });
}

test("path, query and body are read by what the route declares", async () => {
  made.length = 0;
  const reply = await send("/v1/things/a%20b/of/me?count=4", { body: { name: "x", colour: "red" } });
  assert.equal(reply.status, 204);
  assert.equal(reply.headers.get("content-type"), null);
  assert.equal(reply.headers.get("x-postern-ignored"), "colour");
  assert.deepEqual(made, [
    { id: "a b", owner: "me", count: 4, name: "x", ignored: ["colour"] },
    { caller: { via: "http", tokenId: null, scopes: [] }, address: "10.1.2.3" },
  ]);
});

test("the query is refused before the body is read, and so is what `before` refuses", async () => {
  made.length = 0;
  const unread = () => new ReadableStream({ pull: (controller) => controller.error(new TypeError("It was read")) });
  const wrong = await send("/v1/things/a/of/me?count=10", { body: unread() });
  assert.deepEqual([wrong.status, (await errorOf(wrong)).param], [400, "count"]);
  assert.equal((await send("/v1/things/none/of/me", { body: unread() })).status, 500);
  assert.deepEqual(made, []);
});
