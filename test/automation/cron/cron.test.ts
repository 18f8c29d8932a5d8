import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpError, refuse, ToolError } from "../../../lib/base/errors.ts";
import { type Caller, type Scope, SCOPES } from "../../../lib/base/records/caller.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import type { NewSchedule } from "../../../lib/tools/schedule/schedules.ts";
import { createCronFixture, MAKER } from "../../support/cron_fixture.ts";
import { answer } from "../../support/scripted_runs.ts";
import { triesOf } from "../../support/seeded_random.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const PROMPT = { prompt: "Write the report" };

const isError = (code: string, about: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ToolError || error instanceof HttpError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, about);
  return true;
};

test("a schedule fires at its time, as a durable run of its maker, via cron, outside of any conversation", async () => {
  const { cron, clock, runs, fired } = createCronFixture();
  await cron.start();
  const added = await cron.add({ id: "report", schedule: "every day at 9:00", ...PROMPT }, {
    caller: { via: "http", tokenId: "tok_1", scopes: ["chat", "tools"] },
    tools: ["read_file", "cron_*"],
    taint: [],
  });
  assert.deepEqual([added.cron, added.timezone, added.next_at, added.state], [
    "0 9 * * *",
    "Europe/Berlin",
    "2026-01-01T08:00:00.000Z",
    "active",
  ]);
  await clock.advance(8 * HOUR - 1);
  assert.equal(runs.started.length, 0);
  await clock.advance(1);
  const request = runs.started[0]?.request;
  assert.deepEqual([request?.kind, request?.durable, request?.reader, request?.conversationId], [
    "cron",
    true,
    undefined,
    undefined,
  ]);
  assert.deepEqual(request?.by.caller, { via: "cron", tokenId: "tok_1", scopes: ["chat", "tools"] });
  assert.deepEqual([request?.messages, request?.agent?.tools, request?.call], [
    [{ role: "user", content: "Write the report" }],
    ["read_file", "cron_*"],
    undefined,
  ]);
  assert.match(
    request?.agent?.instructions ?? "",
    /schedule "report" \(every day at 9:00\), due at 2026-01-01T08:00:00\.000Z/,
  );
  assert.deepEqual(await fired("report"), ["2026-01-01T08:00:00 started run_1"]);
  const shown = await cron.get("report");
  assert.deepEqual([shown?.next_at, shown?.last?.run_id, shown?.last?.run_status], [
    "2026-01-02T08:00:00.000Z",
    "run_1",
    "running",
  ]);
  await cron.stop();
  assert.equal(clock.pending(), 0);
});

test("a schedule of a tool makes one call of it", async () => {
  const { cron, clock, runs } = createCronFixture();
  await cron.start();
  await cron.add({ id: "list", schedule: "hourly", tool: "glob_search", input: { pattern: "*.md" } }, MAKER);
  await clock.advance(HOUR);
  assert.deepEqual(runs.started[0]?.request.call, { tool: "glob_search", input: '{"pattern":"*.md"}' });
  await cron.stop();
});

test("a schedule with one time fires once, is done, and stays in the history", async () => {
  const { cron, clock, runs, fired } = createCronFixture();
  await cron.start();
  const { kind, next_at } = await cron.add({ id: "call", schedule: "in 2h30m", ...PROMPT }, MAKER);
  assert.deepEqual([kind, next_at], ["once", "2026-01-01T02:30:00.000Z"]);
  await clock.advance(3 * DAY);
  assert.equal(runs.started.length, 1);
  const done = await cron.get("call");
  assert.deepEqual([done?.state, done?.next_at], ["done", null]);
  assert.deepEqual(await fired("call"), ["2026-01-01T02:30:00 started run_1"]);
  assert.deepEqual((await cron.page({ limit: 10 })).schedules, []);
  assert.deepEqual((await cron.page({ limit: 10, state: "done" })).schedules.map(({ id }) => id), ["call"]);
  assert.deepEqual((await cron.list({}, MAKER.caller)).schedules.map(({ id }) => id), ["call"]);
  await assert.rejects(
    cron.update("call", { schedule: "hourly" }, MAKER),
    isError("not_found", /has fired; make a new/),
  );
  await cron.add({ id: "call", schedule: "in 1h", ...PROMPT }, MAKER);
  assert.deepEqual((await cron.list({}, MAKER.caller)).schedules.map(({ state }) => state), ["active"]);
  await cron.stop();
});

test("after a downtime a schedule is caught up once, and the others are recorded as missed", async () => {
  const store = createMemoryStore();
  const before = createCronFixture({ store });
  await before.cron.start();
  await before.cron.add({ id: "hourly", schedule: "hourly", ...PROMPT }, MAKER);
  await before.cron.add({ id: "minutes", schedule: "every minute", ...PROMPT }, MAKER);
  await before.cron.add({ id: "once", schedule: "in 1h", ...PROMPT }, MAKER);
  await before.cron.stop();

  const after = createCronFixture({ store, now: Date.UTC(2026, 0, 1, 5, 30) });
  await after.cron.start();
  await after.clock.advance(0);
  assert.equal(after.runs.started.length, 3);
  assert.deepEqual(await after.fired("hourly"), [
    "2026-01-01T05:00:00 started run_1",
    "2026-01-01T01:00:00 missed 4 2026-01-01T04:00:00",
  ]);
  const [caught, missed] = (await after.cron.history("minutes", { limit: 10 }))?.firings ?? [];
  assert.deepEqual([caught?.time, caught?.status, caught?.at], [
    "2026-01-01T05:30:00.000Z",
    "started",
    "2026-01-01T05:30:00.000Z",
  ]);
  assert.deepEqual([missed?.time, missed?.missed_count, missed?.missed_until], [
    "2026-01-01T00:01:00.000Z",
    null,
    "2026-01-01T05:29:00.000Z",
  ], "more than are counted");
  assert.deepEqual((await after.fired("once")).map((line) => line.slice(0, 27)), ["2026-01-01T01:00:00 started"]);
  assert.equal((await after.cron.get("hourly"))?.next_at, "2026-01-01T06:00:00.000Z");
  await after.cron.stop();
});

test("a paused schedule does not fire, and is not caught up", async () => {
  const { cron, clock, runs, fired } = createCronFixture({ script: () => answer("done") });
  await cron.start();
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await cron.add({ id: "late", schedule: "in 2h", ...PROMPT }, MAKER);
  await cron.pause("a", MAKER.caller);
  assert.deepEqual([(await cron.pause("late", MAKER.caller)).state, (await cron.pause("late", MAKER.caller)).next_at], [
    "paused",
    null,
  ]);
  await clock.advance(5 * HOUR + MINUTE);
  assert.equal(runs.started.length, 0);
  await assert.rejects(cron.resume("late", MAKER.caller), isError("conflict", /its time passed while it was paused/));
  assert.equal((await cron.resume("a", MAKER.caller)).next_at, "2026-01-01T06:00:00.000Z");
  await cron.resume("a", MAKER.caller);
  await clock.advance(HOUR);
  assert.deepEqual(await fired("a"), ["2026-01-01T06:00:00 started run_1"]);
  assert.equal((await cron.update("late", { schedule: "in 1h" }, MAKER)).state, "paused");
  assert.equal((await cron.resume("late", MAKER.caller)).state, "active");
  await cron.stop();
});

test("a firing is skipped while the run before is at work, and the reason is kept", async () => {
  let script = () => ["hang"] as const;
  const { cron, clock, runs } = createCronFixture({ script: () => script() });
  await cron.start();
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await clock.advance(2 * HOUR);
  assert.equal(runs.started.length, 1);
  const [skipped] = (await cron.history("a", { limit: 1 }))?.firings ?? [];
  assert.deepEqual([skipped?.status, skipped?.run_id], ["skipped", null]);
  assert.match(skipped?.reason ?? "", /still at work: run_1 \(running\)/);
  await assert.rejects(
    cron.run("a", MAKER.caller),
    isError("conflict", /Cannot run "a": the run of the firing before/),
  );
  script = () => answer("done") as never;
  await cron.stop();
});

test("a firing that cannot be started is tried again for a while, then recorded as failed", async () => {
  let full = true;
  const overloaded = () => full ? refuse("overloaded", "Cannot start the run: the queue is full") : undefined;
  const { cron, clock, runs, fired } = createCronFixture({ refuse: overloaded, script: () => answer("done") });
  await cron.start();
  await cron.add({ id: "once", schedule: "in 1h", ...PROMPT }, MAKER);
  await clock.advance(HOUR + MINUTE);
  assert.deepEqual(await fired("once"), []);
  full = false;
  await clock.advance(5_000);
  assert.deepEqual(await fired("once"), ["2026-01-01T01:00:00 started run_1"]);
  full = true;
  await cron.add({ id: "never", schedule: "in 1h", ...PROMPT }, MAKER);
  await clock.advance(HOUR + 11 * MINUTE);
  const [failed] = (await cron.history("never", { limit: 1 }))?.firings ?? [];
  assert.deepEqual([failed?.status, failed?.reason], ["failed", "Cannot start the run: the queue is full"]);
  assert.equal((await cron.get("never"))?.state, "done");
  assert.equal(runs.started.length, 1);
  await cron.stop();
  assert.equal(clock.pending(), 0);
});

test("what nothing helps fails at once, and the next firing comes", async () => {
  let broken = true;
  const notFound = () => broken ? refuse("not_found", "Cannot find it") : undefined;
  const { cron, clock, fired } = createCronFixture({ refuse: notFound });
  await cron.start();
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await clock.advance(HOUR);
  broken = false;
  await clock.advance(HOUR);
  assert.deepEqual(await fired("a"), ["2026-01-01T02:00:00 started run_1", "2026-01-01T01:00:00 failed"]);
  await cron.stop();
});

test("schedules that could not be read when they were first asked for are read at the next use", async () => {
  const store = createMemoryStore();
  let broken = true;
  const flaky: Store = {
    ...store,
    scan: (...given) => (broken ? Promise.reject(new Error("The disk is gone")) : store.scan(...given)),
  };
  const { cron, clock, fired } = createCronFixture({ store: flaky });
  await cron.start();
  await assert.rejects(cron.list({}, MAKER.caller), /The disk is gone/);
  broken = false;
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await clock.advance(HOUR);
  assert.deepEqual(await fired("a"), ["2026-01-01T01:00:00 started run_1"]);
  await cron.stop();
});

test("a schedule whose maker's token was revoked fires no more, until somebody makes it theirs", async () => {
  const live = new Set<string | null>(["tok_1", "tok_2"]);
  const { cron, clock, runs, fired } = createCronFixture({
    scopesOf: (tokenId) => (live.has(tokenId) ? SCOPES : undefined),
    script: () => answer("done"),
  });
  await cron.start();
  const by = (tokenId: string, scopes: readonly Scope[]) =>
    ({ caller: { via: "http", tokenId, scopes }, tools: undefined, taint: [] }) as const;
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, by("tok_1", ["tools"]));
  live.delete("tok_1");
  await clock.advance(HOUR);
  assert.deepEqual(await fired("a"), ["2026-01-01T01:00:00 failed"]);
  assert.match((await cron.get("a"))?.last?.reason ?? "", /token .* was revoked .*cron_update/);
  await assert.rejects(
    cron.update("a", { prompt: "Mine now" }, by("tok_2", ["tools"])),
    isError("insufficient_scope", /runs/),
  );
  await cron.update("a", { prompt: "Mine now" }, by("tok_2", ["tools", "runs"]));
  await clock.advance(HOUR);
  assert.equal(runs.started[0]?.request.by.caller.tokenId, "tok_2");
  await cron.stop();
});

test("no schedule gives its maker more than it has: tools, scopes, and work that others made", async () => {
  const { cron, clock, runs } = createCronFixture({ script: () => answer("done") });
  await cron.start();
  const limits = { maxIterations: 3, maxToolCalls: 2, tokensPerRun: 1000 };
  const narrow = {
    caller: { via: "subagent", tokenId: "tok_1", scopes: ["chat"] },
    tools: ["read_file"],
    taint: [],
    limits,
  } as const;
  await assert.rejects(
    cron.add({ id: "a", schedule: "hourly", tool: "shell", input: { command: "ls" } }, narrow),
    isError("invalid_input", /the caller itself has no tool "shell"/),
  );
  const whole = { caller: { via: "http", tokenId: "tok_1", scopes: ["admin"] }, tools: undefined, taint: [] } as const;
  await cron.add({ id: "a", schedule: "hourly", tool: "shell", input: { command: "ls" } }, whole);
  await assert.rejects(
    cron.update("a", { schedule: "every minute" }, narrow),
    isError("invalid_input", /the caller itself has no tool "shell"/),
  );
  await cron.update("a", { prompt: "Do as I say" }, narrow);
  await cron.run("a", { via: "http", tokenId: "tok_2", scopes: ["runs", "chat"] });
  await clock.advance(HOUR);
  const [manual, regular] = runs.started.map(({ request }) => request);
  assert.deepEqual([manual?.by.caller, manual?.agent?.tools], [
    { via: "subagent", tokenId: "tok_2", scopes: ["chat"] },
    ["read_file"],
  ]);
  assert.deepEqual([regular?.agent?.limits, manual?.agent?.limits], [limits, limits]);
  assert.deepEqual([regular?.by.caller, regular?.agent?.tools], [
    { via: "subagent", tokenId: "tok_1", scopes: ["chat"] },
    ["read_file"],
  ]);
  await cron.stop();
});

test("a firing has no scope that its token has lost since", async () => {
  let now: readonly Scope[] = ["chat", "runs", "tools"];
  const { cron, clock, runs } = createCronFixture({ script: () => answer("done"), scopesOf: () => now });
  await cron.start();
  const maker = { via: "http", tokenId: "tok_1", scopes: ["chat", "runs"] } as const;
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, { caller: maker, tools: undefined, taint: [] });
  await clock.advance(HOUR);
  now = ["chat"];
  await clock.advance(HOUR);
  await cron.run("a", MAKER.caller);
  assert.deepEqual(runs.started.map(({ request }) => request.by.caller.scopes), [["chat", "runs"], ["chat"], ["chat"]]);
  await cron.stop();
});

test("a done schedule of another token is shown, replaced and removed only with the scope runs", async () => {
  const { cron, clock } = createCronFixture({ script: () => answer("done") });
  await cron.start();
  const [owner, other] = ["tok_1", "tok_2"].map((tokenId) => ({ via: "http", tokenId, scopes: ["chat"] }) as const);
  assert.ok(owner !== undefined && other !== undefined);
  await cron.add({ id: "once", schedule: "in 1h", ...PROMPT }, { caller: owner, tools: undefined, taint: [] });
  await clock.advance(HOUR);
  const listed = async (caller: Caller, state?: "active" | "done") => {
    const { schedules, hidden } = await cron.list({ state }, caller);
    return [...schedules.map(({ id }) => id), hidden];
  };
  assert.deepEqual(await listed(other), [1]);
  assert.deepEqual(await listed(other, "active"), [0]);
  const again = { id: "once", schedule: "in 1h", ...PROMPT };
  await assert.rejects(
    cron.add(again, { caller: other, tools: undefined, taint: [] }),
    isError("insufficient_scope", /^Cannot replace the schedule "once": another token began it/),
  );
  await assert.rejects(cron.remove("once", other), isError("insufficient_scope", /another token began it/));
  assert.deepEqual(await listed(owner), ["once", 0]);
  await cron.add(again, { caller: owner, tools: undefined, taint: [] });
  await cron.remove("once", { tokenId: "tok_3", scopes: ["runs"] });
  assert.deepEqual(await listed(MAKER.caller), [0]);
  await cron.stop();
});

test("a person may run a schedule now; its times stay as they are", async () => {
  const { cron, clock, fired } = createCronFixture({ script: () => answer("done") });
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  const firing = await cron.run("a", MAKER.caller);
  assert.deepEqual([firing.trigger, firing.status, firing.run_id], ["manual", "started", "run_1"]);
  await clock.advance(MINUTE);
  await cron.pause("a", MAKER.caller);
  await cron.run("a", MAKER.caller);
  assert.equal((await fired("a")).length, 2);
  await assert.rejects(cron.run("b", MAKER.caller), isError("not_found", /cron_list/));
  const off = createCronFixture({ settings: { enabled: false } });
  await off.cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await assert.rejects(off.cron.run("a", MAKER.caller), isError("conflict", /\[cron\] enabled = true/));
});

test("while [cron] is off nothing fires", async () => {
  const { cron, clock, runs } = createCronFixture({ settings: { enabled: false } });
  await cron.start();
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await clock.advance(3 * HOUR);
  assert.equal(runs.started.length, 0);
  await cron.stop();
});

test("a clock that jumps forward is as a downtime, noticed within a minute", async () => {
  const { cron, clock, jump, fired } = createCronFixture();
  await cron.start();
  await cron.add({ id: "a", schedule: "every day at 9:00", ...PROMPT }, MAKER);
  jump(3 * DAY);
  await clock.advance(MINUTE);
  assert.deepEqual(await fired("a"), [
    "2026-01-03T08:00:00 started run_1",
    "2026-01-01T08:00:00 missed 2 2026-01-02T08:00:00",
  ]);
  await cron.stop();
});

test("a clock that is turned back fires nothing twice, and nothing waits for the time that was wrong", async () => {
  const { cron, clock, jump, fired, logged } = createCronFixture({ script: () => answer("done") });
  await cron.start();
  await cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await clock.advance(2 * HOUR);
  jump(-90 * MINUTE);
  await clock.advance(2 * HOUR);
  assert.deepEqual((await fired("a")).map((line) => line.slice(11, 27)), ["02:00:00 started", "01:00:00 started"]);
  await clock.advance(HOUR);
  assert.equal((await fired("a")).length, 3);
  jump(1000 * DAY);
  await clock.advance(MINUTE);
  assert.match((await fired("a"))[0] ?? "", /^2028-09-27/);
  jump(-1000 * DAY);
  await clock.advance(MINUTE);
  assert.match((await cron.get("a"))?.next_at ?? "", /^2026-01-01T04/);
  assert.ok(logged.some(({ message }) => message.startsWith("The clock was turned back")));
  await cron.stop();
});

test("a clock that was turned back while no gateway ran is noticed at the start", async () => {
  const store = createMemoryStore();
  const wrong = createCronFixture({ store, now: Date.UTC(2030, 0, 1), script: () => answer("done") });
  await wrong.cron.start();
  await wrong.cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER);
  await wrong.clock.advance(HOUR);
  await wrong.cron.stop();
  const right = createCronFixture({ store, script: () => answer("done") });
  await right.cron.start();
  assert.equal((await right.cron.get("a"))?.next_at, "2026-01-01T01:00:00.000Z");
  await right.clock.advance(HOUR);
  assert.equal(right.runs.started.length, 1);
  await right.cron.stop();
});

test("changes keep what they do not name, and an id is used once", async () => {
  const { cron, clock } = createCronFixture();
  await cron.add({ id: "a", schedule: "every day at 9:00", timezone: "America/New_York", ...PROMPT }, MAKER);
  await assert.rejects(cron.add({ id: "a", schedule: "hourly", ...PROMPT }, MAKER), isError("conflict", /cron_update/));
  await clock.advance(MINUTE);
  const moved = await cron.update("a", { timezone: "Europe/Berlin" }, MAKER);
  assert.deepEqual([moved.next_at, moved.prompt, moved.schedule, moved.updated_at], [
    "2026-01-01T08:00:00.000Z",
    "Write the report",
    "every day at 9:00",
    "2026-01-01T00:01:00.000Z",
  ]);
  const called = await cron.update("a", { tool: "read_file", input: { path: "a.txt" } }, MAKER);
  assert.deepEqual([called.prompt, called.tool, called.input], [null, "read_file", { path: "a.txt" }]);
  assert.deepEqual((await cron.update("a", { input: { path: "b.txt" } }, MAKER)).input, { path: "b.txt" });
  assert.deepEqual((await cron.update("a", { schedule: "hourly" }, MAKER)).input, { path: "b.txt" });
  await assert.rejects(cron.update("a", {}, MAKER), isError("invalid_input", /what is to change/));
  await cron.remove("a", MAKER.caller);
  for (
    const gone of [
      cron.remove("a", MAKER.caller),
      cron.pause("a", MAKER.caller),
      cron.resume("../x", MAKER.caller),
      cron.update("", { prompt: "x" }, MAKER),
    ]
  ) {
    await assert.rejects(gone, isError("not_found", /no schedule with this id; cron_list shows/));
  }
});

test("bad work, zones, ids and too many schedules are refused, saying what helps", async () => {
  const { cron } = createCronFixture({ settings: { maxTasks: 1 } });
  const add = (more: Partial<NewSchedule>) => cron.add({ schedule: "hourly", ...more }, MAKER);
  const rows: readonly (readonly [more: Partial<NewSchedule>, code: string, about: RegExp])[] = [
    [{}, "invalid_input", /either "prompt" or "tool", and there is neither/],
    [{ prompt: "x", tool: "shell" }, "invalid_input", /there are both: leave out "prompt", or "tool" and "input"$/],
    [{ prompt: " " }, "invalid_input", /must not be blank/],
    [{ prompt: "x", input: {} }, "invalid_input", /"input" goes with "tool"/],
    [{ tool: "explode" }, "invalid_input", /no tool "explode"/],
    [{ tool: "read_file", input: { colour: 1 } }, "invalid_input", /"colour" is not one of its fields/],
    [{ tool: "read_file", input: { path: "x".repeat(70_000) } }, "invalid_input", /at most 65536 characters/],
    [{ ...PROMPT, timezone: "Moon/Base" }, "invalid_input", /IANA name/],
    [{ ...PROMPT, id: "a/b" }, "invalid_input", /1-64 letters/],
    [{ ...PROMPT, id: "__proto__" }, "invalid_input", /1-64 letters/],
    [{ ...PROMPT, schedule: "0 0 30 2 *" }, "invalid_schedule", /never fires/],
  ];
  for (const [more, code, about] of rows) await assert.rejects(add(more), isError(code, about));
  const results = await Promise.allSettled([add(PROMPT), add(PROMPT), add(PROMPT)]);
  assert.deepEqual(results.map(({ status }) => status).sort(), ["fulfilled", "rejected", "rejected"]);
  await assert.rejects(add(PROMPT), isError("too_many_schedules", /\[cron\] max_tasks.*cron_remove/));
});

test("the history is bounded, and is forgotten with its schedule", async () => {
  const { cron, clock, store } = createCronFixture({ script: () => answer("done") });
  await cron.start();
  await cron.add({ id: "a", schedule: "every minute", ...PROMPT }, MAKER);
  await cron.add({ id: "a2", schedule: "hourly", ...PROMPT }, MAKER);
  await clock.advance(3 * HOUR);
  const first = await cron.history("a", { limit: 60 });
  assert.deepEqual([first?.firings.length, first?.hasMore, first?.firings[0]?.time], [
    60,
    true,
    "2026-01-01T03:00:00.000Z",
  ]);
  const rest = await cron.history("a", { limit: 60, after: first?.firings.at(-1)?.id });
  assert.deepEqual([rest?.firings.length, rest?.hasMore, rest?.firings.at(-1)?.time], [
    40,
    false,
    "2026-01-01T01:21:00.000Z",
  ]);
  await cron.remove("a", MAKER.caller);
  assert.equal(await cron.history("a", { limit: 10 }), undefined);
  assert.equal(await store.count("schedule_firings"), 3, "those of the other one stay");
  await cron.stop();
});

test("done schedules are forgotten with their history, the oldest first", async () => {
  const { cron, clock, store } = createCronFixture({ settings: { maxTasks: 1000 }, script: () => answer("done") });
  await cron.start();
  for (let index = 0; index < 230; index++) await cron.add({ id: `t${index}`, schedule: "in 1h", ...PROMPT }, MAKER);
  await clock.advance(HOUR);
  for (let turn = 0; turn < 50; turn++) await clock.advance(0);
  assert.equal((await cron.page({ state: "done", limit: 1000 })).schedules.length, 200);
  assert.equal(await store.count("schedule_firings"), 200);
  await cron.stop();
});

test("lists come in pages, the newest first", async () => {
  const { cron, clock } = createCronFixture({ settings: { maxTasks: 1000 } });
  for (let index = 0; index < 250; index++) await cron.add({ id: `t${index}`, schedule: "hourly", ...PROMPT }, MAKER);
  await cron.pause("t3", MAKER.caller);
  const first = await cron.page({ limit: 200 });
  assert.deepEqual([first.schedules.length, first.hasMore, first.schedules[0]?.id], [200, true, "t249"]);
  const rest = await cron.page({ limit: 200, after: first.schedules.at(-1)?.id });
  assert.deepEqual([rest.schedules.length, rest.hasMore, rest.schedules.at(-1)?.id], [50, false, "t0"]);
  assert.deepEqual((await cron.page({ limit: 5, state: "paused" })).schedules.map(({ id }) => id), ["t3"]);
  assert.equal((await cron.list({}, MAKER.caller)).schedules.length, 250);
  assert.equal(clock.pending(), 0);
});

test("many schedules that are due together each fire once, by one timer", async () => {
  const count = triesOf(100);
  const { cron, clock, runs } = createCronFixture({ settings: { maxTasks: count }, script: () => answer("done") });
  await cron.start();
  for (let index = 0; index < count; index++) {
    await cron.add({ id: `t${index}`, schedule: "every day at 9:00", ...PROMPT }, MAKER);
  }
  assert.equal(clock.pending(), 1);
  await clock.advance(8 * HOUR);
  for (let turn = 0; turn < 50 && runs.started.length < count; turn++) await clock.advance(0);
  assert.equal(runs.started.length, count);
  assert.equal(new Set(runs.started.map(({ request }) => request.agent?.instructions)).size, count);
  await clock.advance(HOUR);
  assert.equal(runs.started.length, count);
  await cron.stop();
});
