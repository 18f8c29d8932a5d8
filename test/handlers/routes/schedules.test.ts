import assert from "node:assert/strict";
import { test } from "node:test";
import type { Store } from "../../../lib/storage/store.ts";
import { MAKER } from "../../support/cron_fixture.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createScriptedRuns, type ScriptedRuns } from "../../support/scripted_runs.ts";
import { createTestRouter, type SendInit } from "../../support/test_router.ts";

function setUp({ agent = true } = {}) {
  const runs: ScriptedRuns = createScriptedRuns({
    clock: createFakeClock(),
    get store(): Store {
      return services.store;
    },
    script: () => ["hang"],
  });
  const { services, send } = createTestRouter(agent ? { agent: { runs, providers: {} as never } } : {});
  // deno-lint-ignore no-explicit-any -- replies are asserted, not used
  const json = async (method: string, path: string, init?: SendInit): Promise<any> => {
    const reply = await send(method, path, init);
    return { status: reply.status, ...JSON.parse(await reply.text()) };
  };
  const add = (id: string) => services.cron.add({ id, schedule: "hourly", prompt: "Look" }, MAKER);
  return { services, runs, json, add };
}

test("schedules are listed, shown, run now, and their firings listed", async () => {
  const { json, add, runs } = setUp();
  await add("a");
  await add("b");
  const list = await json("GET", "/v1/schedules?limit=1", { token: "token_runs" });
  assert.deepEqual([list.data.map(({ id }: { id: string }) => id), list.has_more, list.last_id], [["b"], true, "b"]);
  assert.deepEqual((await json("GET", "/v1/schedules?after=b")).data[0].id, "a");
  const shown = await json("GET", "/v1/schedules/a");
  assert.deepEqual([shown.state, shown.cron, shown.next_at], ["active", "0 * * * *", "2026-01-01T01:00:00.000Z"]);
  const fired = await json("POST", "/v1/schedules/a/run", { token: "token_runs" });
  assert.deepEqual([fired.status, fired.schedule_id, fired.trigger, fired.run_id], ["started", "a", "manual", "run_1"]);
  assert.deepEqual(runs.started[0]?.request.by.caller, { via: "cron", tokenId: "runs", scopes: ["runs"] });
  const history = await json("GET", "/v1/schedules/a/history?limit=5");
  assert.deepEqual([history.data.length, history.data[0].run_status, history.last_id], [
    1,
    "running",
    history.data[0].id,
  ]);
  assert.deepEqual(
    (await json("GET", `/v1/schedules/a/history?after=${encodeURIComponent(history.last_id)}`)).data,
    [],
  );
  assert.deepEqual((await json("POST", "/v1/schedules/a/run")).error.code, "conflict");
});

test("under an Idempotency-Key a schedule is run once, also by a repeat after a crash", async () => {
  const { services, runs, json, add } = setUp();
  await add("a");
  const keyed = { headers: { "idempotency-key": "k1" } };
  const first = await json("POST", "/v1/schedules/a/run", keyed);
  assert.equal((await json("POST", "/v1/schedules/a/run", keyed)).run_id, first.run_id);
  // A crash before the reply was kept leaves the run's claim alone
  const [kept] = await services.store.scan("idempotent_replies", { limit: 1 });
  const { fingerprint, expires_at } = kept?.body as { fingerprint: string; expires_at: number };
  const body = { record_version: 2, fingerprint, run_id: first.run_id, told: [], expires_at };
  await services.store.batch([{ op: "put", collection: "idempotent_replies", key: kept?.key ?? "", body }]);
  const repeat = await json("POST", "/v1/schedules/a/run", keyed);
  assert.deepEqual([repeat.run_id, repeat.trigger, runs.started.length], [first.run_id, "manual", 1]);
});

test("bad questions are refused, and a token without the scope", async () => {
  const { json, add } = setUp();
  await add("a");
  const rows: readonly (readonly [method: string, path: string, status: number, param: string | null])[] = [
    ["GET", "/v1/schedules?state=busy", 400, "state"],
    ["GET", "/v1/schedules?limit=0", 400, "limit"],
    ["GET", "/v1/schedules/unknown", 404, null],
    ["GET", "/v1/schedules/..%2Fa", 404, null],
    ["GET", "/v1/schedules/unknown/history", 404, null],
    ["POST", "/v1/schedules/unknown/run", 404, null],
  ];
  for (const [method, path, status, param] of rows) {
    const { status: seen, error } = await json(method, path);
    assert.deepEqual([seen, error.param], [status, param], path);
  }
  for (
    const [method, path] of [["GET", "/v1/schedules"], ["GET", "/v1/schedules/a"], [
      "POST",
      "/v1/schedules/a/run",
    ]] as const
  ) {
    assert.equal((await json(method, path, { token: "token_tools" })).error.code, "insufficient_scope");
  }
});

test("without an agent schedules are shown, and none is run", async () => {
  const { json, add } = setUp({ agent: false });
  await add("a");
  assert.equal((await json("GET", "/v1/schedules")).data.length, 1);
  assert.equal((await json("POST", "/v1/schedules/a/run")).error.code, "agent_unavailable");
});
