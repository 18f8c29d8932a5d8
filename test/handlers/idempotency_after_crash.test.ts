import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_RECORDED_BYTES } from "../../handlers/middleware/reply_store.ts";
import type { Handler, RepeatHandler, Route } from "../../handlers/route.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { requireAgent } from "../../handlers/wire/agent_runs.ts";
import { sendJson, sendReply, streamReply } from "../../handlers/wire/reply.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { RunStatus } from "../../lib/base/records/run.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { RunSupervisor } from "../../lib/runs/run_request.ts";
import { newApproval } from "../support/new_approval.ts";
import type { FakeServices } from "../support/fake_services.ts";
import { jsonOf } from "../support/json_of.ts";
import { createTestRouter, errorOf, type SendInit } from "../support/test_router.ts";
import { until } from "../support/until.ts";

const KEYED: SendInit = { headers: { "idempotency-key": "k" }, body: { a: 1 } };

const post = (more: Partial<Route>): Route => ({
  method: "POST",
  path: "/work",
  access: "chat",
  summary: "",
  reply: { status: 200, type: "application/json" },
  idempotency: "honoured",
  handler: () => new Promise(() => {}),
  ...more,
});

/** A router that has never heard of the requests before it, over the services they left: as after a crash. */
const restart = (services: FakeServices, ...routes: readonly Route[]) =>
  createTestRouter({
    services: { ...services, metrics: createMetrics() },
    routes: routes.length === 0 ? ROUTES : routes,
  });

/** Begins the request with a router that never ends it. */
async function crashDuring(route: Route, init: SendInit = KEYED, services?: FakeServices): Promise<FakeServices> {
  const reached = Promise.withResolvers<void>();
  const handler: Handler = async (request, context) => {
    await Promise.race([route.handler(request, context), new Promise((resolve) => setImmediate(resolve))]);
    reached.resolve();
    return await new Promise(() => {});
  };
  const router = restart(services ?? createTestRouter().services, { ...route, handler });
  void router.send("POST", route.path, init);
  await reached.promise;
  return router.services;
}

test("a repeat of a request that a crash cut off is 409 conflict, not to be retried, and nothing is done again", async () => {
  const services = await crashDuring(post({}));
  let calls = 0;
  const { send } = restart(
    services,
    post({ handler: (_request, context) => sendJson(context, 200, { calls: ++calls }) }),
  );
  for (let i = 0; i < 3; i++) {
    const reply = await send("POST", "/work", KEYED);
    assert.deepEqual([reply.status, reply.headers.get("x-should-retry")], [409, "false"]);
    const { code, message } = await errorOf(reply);
    assert.equal(code, "conflict");
    assert.match(message, /whether it took effect is unknown/);
  }
  const other = await send("POST", "/work", { ...KEYED, body: { a: 2 } });
  assert.equal((await errorOf(other)).code, "idempotency_conflict");
  assert.equal(calls, 0);
  await services.clock.advance(24 * 3_600_000);
  assert.equal((await send("POST", "/work", KEYED)).status, 200);
});

test("what is harmless is simply done again", async () => {
  const services = await crashDuring(post({ idempotency: "harmless" }));
  const { send } = restart(services, post({ handler: (_request, context) => sendJson(context, 200, {}) }));
  assert.equal((await send("POST", "/work", KEYED)).status, 200);
});

test("a route that can tell what came of the first answers its repeats, once", async () => {
  const services = await crashDuring(post({}));
  let calls = 0;
  const repeat: RepeatHandler = (_request, context, runId) => sendJson(context, 200, { runId, calls: ++calls });
  const { send } = restart(services, post({ repeat }));
  const replies = await Promise.all(Array.from({ length: 20 }, () => send("POST", "/work", KEYED)));
  for (const reply of [...replies, await send("POST", "/work", KEYED)]) {
    assert.equal(reply.headers.get("idempotency-replayed"), "true");
    assert.deepEqual(await reply.json(), { runId: null, calls: 1 });
  }
});

test("a request that was refused before its effect leaves no claim", async () => {
  let calls = 0;
  const handler: Handler = (_request, context) => {
    if (calls++ === 0) throw refuse("invalid_request", "Bad");
    return sendJson(context, 200, { calls });
  };
  const { services } = createTestRouter();
  const { send } = restart(services, post({ handler }));
  assert.equal((await send("POST", "/work", KEYED)).status, 400);
  const { send: later } = restart(services, post({ handler }));
  assert.deepEqual(await jsonOf(later("POST", "/work", { ...KEYED, body: { a: 2 } })), { calls: 2 });
});

/** A supervisor with one run, `run_1`, of which only its state is known. A run that failed did so for its provider. */
function withRun() {
  const seen = { status: "running" as RunStatus };
  const run = () => ({
    id: "run_1",
    status: seen.status,
    error: seen.status === "failed" ? { code: "provider_error", message: "" } : null,
  });
  const runs = {
    get: (id: string) => Promise.resolve(id === "run_1" ? run() : undefined),
  } as unknown as RunSupervisor;
  const { services } = createTestRouter({ agent: { runs, providers: undefined as never } });
  return { seen, services };
}

/** Starts `run_1` under the request's claim. */
const startRun: Handler = async (_request, context) => {
  const { claim, parts } = context;
  assert.ok(claim !== undefined && await parts.store.batch([claim.write("run_1")]));
  return sendJson(context, 200, { answer: "first" });
};

test("a repeat gets the run that was accepted, and its reply is kept once the run has ended", async () => {
  const { seen, services } = withRun();
  await crashDuring(post({ idempotency: "by_run", handler: startRun }), KEYED, services);
  let calls = 0;
  const repeat: RepeatHandler = (_request, context, runId) => {
    if (seen.status === "completed") context.claim?.shows(undefined);
    return sendJson(context, 200, { runId, calls: ++calls });
  };
  const { send } = restart(services, post({ idempotency: "by_run", repeat }));
  const again = async () => await jsonOf(send("POST", "/work", KEYED));
  assert.deepEqual([await again(), await again()], [{ runId: "run_1", calls: 1 }, { runId: "run_1", calls: 2 }]);
  seen.status = "needs_review";
  assert.deepEqual(await again(), { runId: "run_1", calls: 3 });
  seen.status = "completed";
  assert.deepEqual([await again(), await again()], [{ runId: "run_1", calls: 4 }, { runId: "run_1", calls: 4 }]);
  const { send: later } = restart(services, post({ idempotency: "by_run", repeat }));
  assert.deepEqual(await jsonOf(later("POST", "/work", KEYED)), { runId: "run_1", calls: 4 });
  assert.equal((await later("POST", "/work", { ...KEYED, body: {} })).status, 409);
});

test("text that went out counts as told for later requests, not for the stream that it is in", async () => {
  const { services } = withRun();
  const found: (boolean | undefined)[] = [];
  const tell: Handler = async (request, context) => {
    await startRun(request, context);
    await context.claim?.tell(2);
    found.push(context.claim?.wasTold(2));
    return sendJson(context, 200, {});
  };
  await crashDuring(post({ idempotency: "by_run", handler: tell }), KEYED, services);
  await until(() => found.length === 1);
  const repeat: RepeatHandler = (_request, context) => {
    found.push(context.claim?.wasTold(1), context.claim?.wasTold(2));
    return sendJson(context, 200, {});
  };
  await restart(services, post({ idempotency: "by_run", repeat })).send("POST", "/work", KEYED);
  assert.deepEqual(found, [false, false, true]);
});

test("the reply of work that has just begun is kept at once", async () => {
  const { services } = withRun();
  const accept: Handler = async (request, context) => {
    await startRun(request, context);
    return sendJson(context, 202, { accepted: true });
  };
  const route = post({ idempotency: "by_run", handler: accept, repeat: () => assert.fail("not asked") });
  const { send } = restart(services, route);
  assert.equal((await send("POST", "/work", KEYED)).status, 202);
  const again = await restart(services, route).send("POST", "/work", KEYED);
  assert.deepEqual([again.status, again.headers.get("idempotency-replayed")], [202, "true"]);
});

test("a run that failed may be tried again under the same key, one that goes on is found again", async () => {
  const { seen, services } = withRun();
  const fail: Handler = async (request, context) => {
    await startRun(request, context);
    throw refuse("shutting_down", "Cannot finish");
  };
  let repeats = 0;
  const repeat: RepeatHandler = (_request, context) => {
    if (++repeats < 3) throw refuse("storage_unavailable", "Cannot read the run");
    context.claim?.shows("provider_error");
    throw refuse("provider_error", "It failed");
  };
  const route = post({ idempotency: "by_run", handler: fail, repeat });
  const { send } = restart(services, route);
  const statuses: number[] = [];
  const again = async () => void statuses.push((await send("POST", "/work", KEYED)).status);
  await again();
  await again();
  seen.status = "failed";
  // A repeat that fails by itself says nothing about the run
  await again();
  await again();
  await again();
  assert.deepEqual([statuses, repeats], [[503, 503, 503, 502, 503], 3]);
});

test("a reply that shows another end than its run has come to is not kept: its repeat reads the run", async () => {
  const { seen, services } = withRun();
  const handler: Handler = async (request, context) => {
    await startRun(request, context);
    context.claim?.shows("cancelled");
    return sendJson(context, 500, {}, { "x-should-retry": "false" });
  };
  const repeat: RepeatHandler = (_request, context, runId) => sendJson(context, 200, { runId });
  for (const status of ["failed", "completed"] as const) {
    seen.status = status;
    const { send } = restart(services, post({ idempotency: "by_run", handler, repeat, path: `/${status}` }));
    assert.equal((await send("POST", `/${status}`, KEYED)).status, 500);
    assert.deepEqual(await jsonOf(send("POST", `/${status}`, KEYED)), { runId: "run_1" });
  }
});

test("a repeat at a gateway without an agent leaves the run its claim", async () => {
  const { services } = withRun();
  const route = post({
    idempotency: "by_run",
    handler: startRun,
    repeat: (_request, context, runId) => sendJson(context, 200, { runId }),
  });
  await crashDuring(route, KEYED, services);
  const repeat: RepeatHandler = (_request, { parts }) => {
    requireAgent(parts);
    assert.fail("there is an agent");
  };
  const { agent: _agent, ...others } = services;
  const without = { ...others, agent: undefined, storedRuns: services.agent?.runs } as FakeServices;
  assert.equal((await restart(without, { ...route, repeat }).send("POST", "/work", KEYED)).status, 503);
  assert.deepEqual(await jsonOf(restart(services, route).send("POST", "/work", KEYED)), { runId: "run_1" });
});

test("a stream that every reader left leads its repeat to the run", async () => {
  const { services } = withRun();
  const handler: Handler = async (request, context) => {
    await startRun(request, context);
    return sendReply(context, streamReply(endless()));
  };
  const repeat: RepeatHandler = (_request, context, runId) => sendJson(context, 200, { runId });
  const { send } = restart(services, post({ idempotency: "by_run", handler, repeat }));
  const first = await send("POST", "/work", KEYED);
  await first.body?.cancel();
  await services.clock.advance(0);
  assert.deepEqual(await jsonOf(send("POST", "/work", KEYED)), { runId: "run_1" });
});

test("a reply too long to keep is read from its run again", async () => {
  const { seen, services } = withRun();
  seen.status = "completed";
  let calls = 0;
  const long: Handler = async (request, context) => {
    await startRun(request, context);
    return sendJson(context, 200, { text: "x".repeat(MAX_RECORDED_BYTES) });
  };
  const repeat: RepeatHandler = (_request, context, runId) => sendJson(context, 200, { runId, calls: ++calls });
  const { send } = restart(services, post({ idempotency: "by_run", handler: long, repeat }));
  await (await send("POST", "/work", KEYED)).text();
  await services.clock.advance(0);
  assert.deepEqual(await jsonOf(send("POST", "/work", KEYED)), { runId: "run_1", calls: 1 });
});

async function* endless(): AsyncGenerator<Uint8Array> {
  for (;;) yield new TextEncoder().encode(": x\n\n");
}

const routeOf = (path: string) =>
  ROUTES.find((route) => route.method === "POST" && route.path === path) ?? assert.fail();

test("a tool call that only reads is made again, any other is 409 conflict", async () => {
  const route = { ...routeOf("/v1/tools/:name/call"), handler: () => new Promise<Response>(() => {}) };
  for (
    const [access, status] of [["read", 200], [undefined, 200], ["write", 409], ["state", 409], [
      "network",
      409,
    ]] as const
  ) {
    const { services } = createTestRouter();
    const init = { headers: { "idempotency-key": "k" }, body: { input: { path: "a" } } };
    const path = "/v1/tools/read_file/call";
    const { send: crashing } = restart(services, route);
    void crashing("POST", path, init);
    await until(async () => await services.store.count("idempotent_replies") > 0);
    const { send } = restart({ ...services, tools: { ...services.tools, accessOf: () => access } });
    assert.equal((await send("POST", path, init)).status, status, access);
  }
});

test("an answer to a question is told by the question itself", async () => {
  const route = routeOf("/v1/approvals/:id");
  const answerOnce = async (crash: "before" | "after", decision: string) => {
    const { services } = createTestRouter();
    const asked = await services.approvals.ask(newApproval({}));
    const path = `/v1/approvals/${asked?.id}`;
    const init = { headers: { "idempotency-key": "k" }, body: { decision, remember: "always" } };
    const hung: Handler = async (request, context) => {
      if (crash === "after") await route.handler(request, context);
      await services.store.insertOnce("test", "reached", {});
      return await new Promise<Response>(() => {});
    };
    void restart(services, { ...route, handler: hung }).send("POST", path, init);
    await until(async () => await services.store.get("test", "reached") !== undefined);
    const { send } = restart(services);
    const reply = await jsonOf(send("POST", path, init));
    return [reply.status, reply.stored_rule?.decision, (await services.approvals.rules()).length];
  };
  assert.deepEqual(await answerOnce("before", "approve"), ["approved", "approve", 1]);
  assert.deepEqual(await answerOnce("after", "approve"), ["approved", "approve", 1]);
});
