import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { HttpError } from "../../../lib/base/errors.ts";
import { createRunBudget } from "../../../lib/agent/token_budget.ts";
import { DayBudget } from "../../../lib/runs/supervisor/day_budget.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
const NEVER = new AbortController().signal;

function setUp(tokensPerDay: number, options: { readonly store?: Store; readonly clock?: FakeClock } = {}) {
  const store = options.store ?? createMemoryStore();
  const clock = options.clock ?? createFakeClock();
  const budget = new DayBudget({ store, clock, tokensPerDay: () => tokensPerDay });
  const reserve = (input: number, output: number, signal = NEVER) => budget.reserve({ input, output, signal });
  const stored = async () => {
    const day = await store.get("budget_days", new Date(clock.now()).toISOString().slice(0, 10));
    return day && { key: day.key, ...(day.body as { tokens: number }) };
  };
  return { store, clock, budget, reserve, stored };
}

const isBudget = (error: unknown) => error instanceof CancelError && error.reason === "budget";

describe("the day's budget", () => {
  test("writes a reservation down before it is granted, and the rest is given back when it is settled", async () => {
    const { reserve, stored, clock } = setUp(1000);
    const call = await reserve(100, 400);
    assert.equal(call.output, 400);
    assert.deepEqual(await stored(), { key: "2026-01-01", v: 1, tokens: 500 }, "no slice is kept, and none is told of");
    call.settle(120);
    await clock.advance(0);
    assert.equal((await stored())?.tokens, 120);
  });

  test("grants the output that is left, and refuses by name when the input alone does not fit", async () => {
    const { reserve } = setUp(1000);
    const first = await reserve(100, 4000);
    assert.equal(first.output, 900);
    first.settle(950);
    const refusal = await reserve(60, 10).catch((error) => error);
    assert.ok(isBudget(refusal));
    assert.match(
      refusal.message,
      /budget of 1000 tokens 50 are left, and the call may need 61; raise tokens_per_day in \[budget\]/,
    );
  });

  test("refuses an input that is all that is left: nothing would remain for the answer", async () => {
    const { reserve } = setUp(1000);
    (await reserve(100, 400)).settle(500);
    await assert.rejects(reserve(500, 10), isBudget);
    assert.equal((await reserve(499, 10)).output, 1);
  });

  test("lets a call wait for those at work, and refuses it when it still does not fit", async () => {
    const { reserve, clock } = setUp(1000);
    const first = await reserve(100, 800);
    const waiting = reserve(100, 200);
    first.settle(150);
    assert.equal((await waiting).output, 200);
    const late = reserve(600, 200).catch((error) => error);
    await clock.advance(5000);
    const refusal = await late;
    assert.ok(isBudget(refusal));
    assert.match(refusal.message, /\(300 more are set aside for calls at work\)/);
  });

  test("refuses at once what no day could hold", async () => {
    const { reserve } = setUp(1000);
    await reserve(100, 100);
    await assert.rejects(reserve(1000, 1), isBudget);
  });

  test("counts what was never settled as spent, also for the next start", async () => {
    const { reserve, store, clock } = setUp(1000);
    await reserve(100, 400);
    const next = setUp(1000, { store, clock });
    assert.equal((await next.reserve(100, 4000)).output, 400);
    await assert.rejects(setUp(1000, { store, clock }).reserve(1, 1), isBudget);
  });

  test("counts a call that broke off in full", async () => {
    const { reserve, stored, clock } = setUp(1000);
    (await reserve(100, 400)).forfeit();
    await clock.advance(0);
    assert.equal((await stored())?.tokens, 500);
  });

  test("takes an abort while it waits, and gives back what was granted to nobody", async () => {
    const { reserve, stored, clock } = setUp(1000);
    const held = await reserve(100, 800);
    const controller = new AbortController();
    const waiting = reserve(100, 200, controller.signal);
    controller.abort(new CancelError("client_gone"));
    await assert.rejects(waiting, (error) => error instanceof CancelError && error.reason === "client_gone");
    const leaving = new AbortController();
    const granted = reserve(10, 20, leaving.signal);
    leaving.abort(new CancelError("client_gone"));
    await assert.rejects(granted);
    held.settle(0);
    await clock.advance(0);
    assert.equal((await stored())?.tokens, 0);
  });

  test("starts over at midnight UTC, and a call of yesterday costs today nothing", async () => {
    const { reserve, stored, clock } = setUp(1000);
    const old = await reserve(100, 900);
    await clock.advance(DAY_MS);
    const call = await reserve(100, 400);
    old.settle(100_000);
    call.settle(200);
    await clock.advance(0);
    assert.equal((await stored())?.tokens, 200);
    assert.equal((await stored())?.key, new Date(clock.now()).toISOString().slice(0, 10));
  });

  test("is shared by gateways on one store", async () => {
    const store = createMemoryStore();
    const clock = createFakeClock();
    const gateways = [setUp(10_000, { store, clock }), setUp(10_000, { store, clock })];
    const calls = await Promise.allSettled(
      Array.from({ length: 40 }, (_, i) => gateways[i % 2]?.reserve(100, 400) ?? Promise.reject()),
    );
    const granted = calls.flatMap((call) => (call.status === "fulfilled" ? [call.value.output] : []));
    assert.ok(granted.reduce((sum, output) => sum + 100 + output, 0) <= 10_000);
    assert.equal((await gateways[0]?.stored())?.tokens, 10_000);
  });

  test("check() refuses when all is used, not when it is only set aside, with the time until midnight", async () => {
    const { budget, reserve, clock } = setUp(1000);
    await clock.advance(DAY_MS - clock.now() % DAY_MS - 3_600_000);
    const call = await reserve(100, 900);
    await budget.check(500);
    call.settle(900);
    await budget.check(99);
    const refusal = await budget.check(100).catch((error) => error);
    assert.ok(refusal instanceof HttpError);
    assert.match(refusal.message, /100 are left, and the call may need 101; .* or wait 1 h for the next day \(UTC\)$/);
    assert.deepEqual([refusal.status, refusal.code], [429, "rate_limited"]);
    assert.deepEqual(refusal.headers, { "retry-after": "3600", "x-should-retry": "false" });
    await clock.advance(1000);
    const later = await budget.check(100).catch((error) => error);
    assert.match(later.message, / or wait 60 min for the next day \(UTC\)$/);
    assert.equal(later.headers["retry-after"], "3599");
  });

  test("writes nothing without a limit", async () => {
    const { reserve, stored, budget } = setUp(0);
    assert.equal(budget.isSet(), false);
    await budget.check(1_000_000);
    (await reserve(100, 400)).settle(500);
    assert.equal(await stored(), undefined);
  });

  test("is counted in together with a run's own limit, whichever is lower", async () => {
    const { budget, stored, clock } = setUp(1000);
    const run = createRunBudget({ tokensPerRun: 600, used: 100, within: budget });
    const first = await run.reserve({ input: 100, output: 4000, signal: NEVER });
    assert.equal(first.output, 400);
    first.settle(300);
    await clock.advance(0);
    assert.equal((await stored())?.tokens, 300);
    await assert.rejects(run.reserve({ input: 250, output: 1, signal: NEVER }), /budget of 600 tokens 200 are left/);
    const child = createRunBudget({ tokensPerRun: 10_000, used: 0, within: run });
    const handedDown = await child.reserve({ input: 50, output: 4000, signal: NEVER });
    assert.equal(handedDown.output, 150);
  });
});
