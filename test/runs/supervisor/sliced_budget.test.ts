import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { TokenReservation } from "../../../lib/agent/token_budget.ts";
import { CancelError } from "../../../lib/base/cancel.ts";
import { HttpError, refuse } from "../../../lib/base/errors.ts";
import type { ClusterNote } from "../../../lib/cluster/cluster_news.ts";
import { DayBudget } from "../../../lib/runs/supervisor/day_budget.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { triesOf } from "../../support/seeded_random.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
const NEVER = new AbortController().signal;

/** A database in memory, with the budgets of the gateways that share it. */
function createBench(tokensPerDay: number) {
  const clock = createFakeClock();
  const memory = createMemoryStore();
  const bench = {
    ...{ writes: 0, reads: 0, failing: undefined as Error | undefined, isMute: false },
    /** Name of the database's history. */
    history: "first",
    /** Receives each record that was read, before it is handed on. */
    onRead: async (_stored: unknown) => {},
    /** Runs after each write. Throws: its answer is lost */
    onWritten: () => {},
  };
  const store: Store = {
    ...memory,
    async get(collection, key) {
      bench.reads++;
      const stored = await memory.get(collection, key);
      await bench.onRead(stored);
      return stored;
    },
    async putIfVersion(...put) {
      bench.writes++;
      if (bench.failing) throw bench.failing;
      const isWritten = await memory.putIfVersion(...put);
      bench.onWritten();
      return isWritten;
    },
  };
  const listeners = new Set<(note: ClusterNote) => void>();
  const join = (limit: () => number = () => tokensPerDay, skewMs = 0) => {
    let isDead = false;
    const bus = {
      tell(kind: ClusterNote["kind"], id: string) {
        if (!bench.isMute) { for (const hear of [...listeners]) hear({ kind, id, seq: 0 }); }
      },
      onNote(hear: (note: ClusterNote) => void) {
        const listener = (note: ClusterNote) => void (isDead || hear(note));
        listeners.add(listener);
        return () => void listeners.delete(listener);
      },
    };
    const budget = new DayBudget(
      { store, clock: { ...clock, now: () => clock.now() + skewMs }, tokensPerDay: limit },
      { keepsSlice: true, bus, history: () => bench.history },
    );
    return {
      budget,
      die: () => void (isDead = true),
      check: (input: number) => budget.check(input),
      reserve: (input: number, output: number, signal = NEVER) => budget.reserve({ input, output, signal }),
    };
  };
  const stored = async (day = new Date(clock.now()).toISOString().slice(0, 10)) =>
    (await memory.get("budget_days", day))?.body as { tokens: number; leased: number } | undefined;
  /** Waits for an answer that needs some time to pass. */
  const pass = async <T>(ms: number, answer: Promise<T>): Promise<T | Error> => {
    const settled = answer.catch((error: Error) => error);
    await clock.advance(ms);
    return await settled;
  };
  return Object.assign(bench, { clock, store, join, stored, pass });
}

const away = () => refuse("storage_unavailable", "away");
const isBudget = (error: unknown) => error instanceof CancelError && error.reason === "budget";

describe("the day's budget in a cluster", () => {
  test("asks the database once for a slice of a twentieth, and then for nothing", async () => {
    const bench = createBench(100_000);
    const gateway = bench.join();
    for (let call = 0; call < 20; call++) (await gateway.reserve(100, 400)).settle(200);
    assert.deepEqual([bench.reads, bench.writes], [1, 1]);
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 5_000, leased: 5_000 });
    await gateway.check(100);
    assert.equal(bench.reads, 1);
  });

  test("gives back on a drain what is not used", async () => {
    const bench = createBench(100_000);
    const gateway = bench.join();
    (await gateway.reserve(100, 400)).settle(200);
    await gateway.budget.close();
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 200, leased: 0 });
    await gateway.budget.close();
    assert.equal(bench.clock.pending(), 0);
  });

  test("keeps no more than a slice: what a large call did not use goes back", async () => {
    const bench = createBench(100_000);
    const gateway = bench.join();
    const call = await gateway.reserve(40_000, 4_000);
    assert.equal((await bench.stored())?.tokens, 44_000);
    call.settle(1_000);
    await bench.clock.advance(0);
    assert.equal((await bench.stored())?.tokens, 6_000);
  });

  test("counts the slice of a gateway that died as spent until the day ends", async () => {
    const bench = createBench(1_000);
    const gone = bench.join();
    await gone.reserve(1, 1);
    gone.die();
    const other = bench.join();
    const calls: TokenReservation[] = [];
    for (let call = 0; call < 95; call++) calls.push(await other.reserve(1, 9));
    const refusal = other.reserve(1, 9).catch((error: unknown) => error);
    await bench.clock.advance(6_000);
    assert.ok(isBudget(await refusal));
    assert.equal((await bench.stored())?.tokens, 1_000);
    await bench.clock.advance(DAY_MS);
    assert.equal((await other.reserve(100, 100)).output, 100);
  });

  test("neither uses nor gives back a slice whose commit another history of the database lacks", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    const before = await gateway.reserve(10, 10);
    const other = await gateway.reserve(5, 5);
    const key = new Date(bench.clock.now()).toISOString().slice(0, 10);
    assert.equal((await bench.stored())?.tokens, 50);
    await bench.store.batch([{ op: "put", collection: "budget_days", key, body: { v: 1, tokens: 7, leased: 0 } }]);
    bench.history = "second";
    other.settle(3);
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 7, leased: 0 }, "nothing of the slice is given back");
    const after = await gateway.reserve(5, 5);
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 57, leased: 50 }, "a slice of the record as it is now");
    before.settle(1);
    after.settle(4);
    await gateway.budget.close();
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 11, leased: 0 });
  });

  test("drops what it leases while the history of the database changes", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    bench.onWritten = () => {
      bench.history = "second";
      bench.onWritten = () => {};
    };
    const call = await gateway.reserve(10, 10);
    assert.equal((await bench.stored())?.tokens, 100, "nobody knows which history has the first slice");
    call.settle(20);
    await gateway.budget.close();
    assert.equal((await bench.stored())?.tokens, 70);
  });

  test("never writes a record below zero, also before it knows of another history", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    (await gateway.reserve(10, 10)).settle(20);
    const key = new Date(bench.clock.now()).toISOString().slice(0, 10);
    await bench.store.batch([{ op: "delete", collection: "budget_days", key }]);
    await gateway.budget.close();
    await gateway.budget.close();
    assert.ok((await bench.stored() ?? { tokens: 0 }).tokens >= 0);
  });

  test("asks the others for what they do not use before it refuses", async () => {
    const bench = createBench(1_000);
    const [a, b] = [bench.join(), bench.join()];
    (await a.reserve(10, 10)).settle(5);
    const call = await bench.pass(300, b.reserve(100, 10_000));
    assert.ok("output" in call);
    assert.equal(call.output, 895, "all but the 5 that the other has used");
    call.settle(995);
    const refusal = await bench.pass(0, b.reserve(1, 1));
    assert.ok(isBudget(refusal));
    assert.match(
      String(refusal),
      /of the day's budget of 1000 tokens 0 are left, and the call may need 2; raise tokens_per_day/,
    );
  });

  test("says that others have leased what is left, when nobody gives it back within a second", async () => {
    const bench = createBench(1_000);
    const [a, b] = [bench.join(), bench.join()];
    (await a.reserve(10, 10)).settle(5);
    (await b.reserve(100, 850)).settle(950);
    bench.isMute = true;
    let refusal: unknown;
    const refused = b.reserve(20, 30).catch((error: unknown) => void (refusal = error));
    await bench.clock.advance(900);
    assert.equal(refusal, undefined);
    await bench.clock.advance(400);
    await refused;
    assert.ok(isBudget(refusal));
    assert.match(
      String(refusal),
      /0 are left, and 50 more are leased to other gateways, .*; try again in 5 s, raise tokens_per_day/,
    );
    const reads = bench.reads;
    assert.ok(isBudget(await bench.pass(0, b.reserve(20, 30))), "and asks no more for a while");
    assert.ok(bench.reads - reads <= 2);
    await a.budget.close();
    const last = await bench.pass(0, b.reserve(20, 30));
    assert.ok("output" in last);
    assert.equal(last.output, 25, "once they have come back, they are there");
    assert.equal(bench.clock.pending(), 0);
  });

  test("waits for calls at work here, as a gateway alone does", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    const first = await gateway.reserve(100, 900);
    const waiting = gateway.reserve(100, 200);
    await bench.clock.advance(1_000);
    first.settle(150);
    assert.equal((await waiting).output, 200);
    const late = gateway.reserve(700, 200).catch((error: unknown) => error);
    await bench.clock.advance(5_300);
    assert.ok(isBudget(await late));
    assert.match(String(await late), /\(300 more are set aside for calls at work\)/);
  });

  test("takes an abort while it waits", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    const held = await gateway.reserve(100, 900);
    const controller = new AbortController();
    const waiting = gateway.reserve(100, 200, controller.signal);
    controller.abort(new CancelError("client_gone"));
    await assert.rejects(waiting, (error) => error instanceof CancelError && error.reason === "client_gone");
    held.settle(0);
    await gateway.budget.close();
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 0, leased: 0 });
    assert.equal(bench.clock.pending(), 0);
  });

  test("a gateway that is in the day before for a moment spends of that day, and forgets none of it", async () => {
    const bench = createBench(1_000);
    await bench.clock.advance(DAY_MS - (bench.clock.now() % DAY_MS) - 1);
    const day = new Date(bench.clock.now()).toISOString().slice(0, 10);
    const [ahead, behind] = [bench.join(), bench.join(undefined, -500)];
    const old = await behind.reserve(100, 800);
    await bench.clock.advance(10);
    (await ahead.reserve(1, 1)).settle(2);
    assert.equal((await bench.stored(day))?.tokens, 900, "the record of yesterday stays for a day");
    assert.equal((await behind.reserve(50, 50)).output, 50);
    assert.equal((await bench.stored(day))?.tokens, 1_000);
    await bench.clock.advance(1_000);
    old.settle(1);
    assert.equal((await behind.reserve(100, 100)).output, 100);
    assert.ok(((await bench.stored())?.tokens ?? 0) < 1_000);
  });

  test("a limit that was lowered counts at once for what is leased already", async () => {
    const bench = createBench(0);
    let limit = 100_000;
    const gateway = bench.join(() => limit);
    (await gateway.reserve(100, 400)).settle(500);
    limit = 400;
    await assert.rejects(gateway.reserve(10, 10), isBudget);
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 500, leased: 0 });
    limit = 1_000;
    assert.equal((await gateway.reserve(10, 100)).output, 100);
  });

  test("check() asks nothing while there is a slice, and refuses with the seconds until midnight when all is spent", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    await gateway.check(500);
    (await gateway.reserve(100, 850)).settle(950);
    await gateway.check(49);
    const refusal = await gateway.check(50).catch((error: unknown) => error);
    assert.ok(refusal instanceof HttpError);
    assert.deepEqual([refusal.status, refusal.code], [429, "rate_limited"]);
    assert.ok(Number(refusal.headers?.["retry-after"]) > 0);
    // Tokens that another gateway has leased may come back
    await bench.join().reserve(1, 1);
    await gateway.check(1);
  });

  test("refuses while the database is down and the slice is used up, and goes on after", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    (await gateway.reserve(10, 10)).settle(20);
    bench.failing = away();
    assert.equal((await gateway.reserve(10, 10)).output, 10, "of its slice");
    await assert.rejects(gateway.reserve(100, 100), (error) => error instanceof HttpError);
    bench.failing = undefined;
    assert.equal((await gateway.reserve(100, 100)).output, 100);
  });

  test("what a call used beyond its reservation is written down once the database is back", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    const call = await gateway.reserve(10, 40);
    bench.failing = away();
    call.settle(90);
    await bench.clock.advance(0);
    bench.failing = undefined;
    (await gateway.reserve(10, 10)).settle(20);
    await gateway.budget.close();
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 110, leased: 0 });
  });

  test("an answer that was lost gives nothing back twice, and takes nothing away from what was used", async () => {
    for (const used of [0, 300, 460]) {
      const bench = createBench(1_000);
      const gateway = bench.join();
      const call = await gateway.reserve(100, 300);
      let isLost = false;
      bench.onWritten = () => {
        if (isLost) return;
        isLost = true;
        throw new Error("The connection is lost");
      };
      call.settle(used);
      await bench.clock.advance(0);
      (await gateway.reserve(10, 10)).settle(20);
      await gateway.budget.close();
      const { tokens = 0 } = await bench.stored() ?? {};
      assert.ok(isLost && tokens >= used + 20 && tokens <= used + 20 + 60, `${tokens} for ${used}`);
    }
  });

  test("a reading of yesterday that comes late does not count for today", async () => {
    const bench = createBench(10_000);
    const other = bench.join();
    const gateway = bench.join();
    const midnight = () => bench.clock.advance(DAY_MS - (bench.clock.now() % DAY_MS));
    (await other.reserve(1, 1)).settle(2);
    const late = Promise.withResolvers<void>();
    bench.onRead = () => late.promise;
    const waiting = gateway.reserve(1, 1);
    await bench.clock.advance(0);
    bench.onRead = async () => {};
    await midnight();
    // Today's record gets the version of yesterday's
    await other.reserve(3_000, 3_000);
    assert.equal(gateway.budget.isSet(), true);
    await Promise.all([gateway.check(20_000).catch(() => {}), bench.clock.advance(0)]);
    late.resolve();
    await waiting;
    const { tokens = 0 } = await bench.stored() ?? {};
    assert.ok(tokens >= 6_000, `${tokens} are left of what the other gateway has leased today`);
  });

  test("a call that waits goes on when the limit is taken away", async () => {
    const bench = createBench(0);
    let limit = 1_000;
    const gateway = bench.join(() => limit);
    const held = await gateway.reserve(100, 900);
    const waiting = bench.pass(300, gateway.reserve(10, 200));
    limit = 0;
    const given = await waiting;
    assert.ok("output" in given, String(given));
    assert.equal(given.output, 200);
    held.settle(1_000);
    given.settle(210);
    limit = 1_000;
    await gateway.budget.close();
    assert.equal((await bench.stored())?.tokens, 1_000);
  });

  test("a call that ends after a drain gives all back that it did not use", async () => {
    const bench = createBench(1_000);
    const gateway = bench.join();
    const call = await gateway.reserve(10, 30);
    await gateway.budget.close();
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 40, leased: 40 });
    call.settle(25);
    await bench.clock.advance(0);
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 25, leased: 0 });
  });

  test("a call that no day has the tokens for takes nothing from the others", async () => {
    const bench = createBench(1_000);
    const [a, b] = [bench.join(), bench.join()];
    await b.reserve(1, 1);
    assert.ok(isBudget(await bench.pass(0, a.reserve(1_000, 1))));
    assert.deepEqual(await bench.stored(), { v: 1, tokens: 50, leased: 50 });
  });

  test("is never overspent, whatever gateways reserve, use, drain and lose, in and after an outage", async () => {
    const step = fc.oneof(
      {
        weight: 5,
        arbitrary: fc.record({
          do: fc.constant("reserve" as const),
          at: fc.nat(2),
          input: fc.nat(90),
          output: fc.integer({ min: 1, max: 200 }),
        }),
      },
      {
        weight: 4,
        arbitrary: fc.record({ do: fc.constant("settle" as const), share: fc.integer({ min: 0, max: 100 }) }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("die" as const, "drain" as const), at: fc.nat(2) }) },
      { weight: 1, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.constantFrom(0, 300, 6_000) }) },
      {
        weight: 1,
        arbitrary: fc.record({
          do: fc.constant("fail" as const),
          how: fc.constantFrom("away" as const, "lost" as const, "back" as const, "midnight" as const),
        }),
      },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const bench = createBench(1_000);
        const gateways = [bench.join(), bench.join(), bench.join()];
        const calls: {
          readonly at: number;
          readonly day: string;
          readonly reserved: number;
          readonly reservation: TokenReservation;
        }[] = [];
        // A call counts for the day in which it got its tokens
        const spent = new Map<string, number>();
        const today = () => new Date(bench.clock.now()).toISOString().slice(0, 10);
        const spend = (day: string, tokens: number) => void spent.set(day, (spent.get(day) ?? 0) + tokens);
        for (const each of steps) {
          if (each.do === "reserve") {
            const { at, input, output } = each;
            const asked = gateways[at]?.reserve(input, output).then((reservation) => {
              calls.push({ at, day: today(), reserved: input + reservation.output, reservation });
            }, () => {});
            await bench.clock.advance(0);
            void asked;
          } else if (each.do === "settle") {
            const call = calls.shift();
            if (call === undefined) continue;
            const used = Math.floor(call.reserved * each.share / 100);
            spend(call.day, used);
            call.reservation.settle(used);
            await bench.clock.advance(0);
          } else if (each.do === "wait") await bench.clock.advance(each.ms);
          else if (each.do === "fail") {
            if (each.how === "midnight") await bench.clock.advance(DAY_MS - (bench.clock.now() % DAY_MS));
            bench.failing = each.how === "away" ? away() : undefined;
            bench.onWritten = () => {
              if (each.how === "lost") throw away();
            };
          } else {
            const lost = calls.filter(({ at }) => at === each.at);
            // Their providers may have counted all of it
            for (const { day, reserved } of lost) spend(day, reserved);
            calls.splice(0, calls.length, ...calls.filter(({ at }) => at !== each.at));
            if (each.do === "drain") {
              for (const { reservation } of lost) reservation.forfeit();
              await gateways[each.at]?.budget.close();
            }
            gateways[each.at] = bench.join();
          }
          for (const day of new Set([today(), ...calls.map((call) => call.day), ...spent.keys()])) {
            const held = calls.reduce((sum, call) => sum + (call.day === day ? call.reserved : 0), 0);
            assert.ok((spent.get(day) ?? 0) + held <= 1_000, `${spent.get(day)} spent, ${held} held on ${day}`);
            assert.ok(((await bench.stored(day))?.tokens ?? 0) <= 1_000);
          }
        }
      }),
      { numRuns: triesOf(40) },
    );
  });
});
