import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { RATE_WINDOWS } from "../../lib/access/rate_records.ts";
import { SharedWindows } from "../../lib/access/shared_windows.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { triesOf } from "../support/seeded_random.ts";

const WINDOW_MS = 59_000;

async function createBench(count: number, max: number) {
  const clock = createFakeClock();
  const memory = createMemoryStore();
  const bench = { calls: 0, isAway: false };
  const guarded = <A extends unknown[], R>(work: (...given: A) => Promise<R>) => async (...given: A): Promise<R> => {
    bench.calls++;
    if (bench.isAway) throw new Error("away");
    return await work(...given);
  };
  const store: Store = { ...memory, scan: guarded(memory.scan), batch: guarded(memory.batch) };
  const gateways = Array.from({ length: count }, (_, index) => {
    const shared = new SharedWindows({
      ...{ store, clock, log: SILENT, gateway: `gw_${index}` },
      gateways: () => Promise.resolve(count),
    });
    const window = shared.window("callers", { max, windowMs: WINDOW_MS });
    const take = (key = "tok_1") => {
      const isUsedUp = window.isUsedUp(key, clock.monotonic());
      const state = window.take(key, clock.monotonic());
      assert.equal(state.allowed, !isUsedUp, "a look says what a request hears");
      return state;
    };
    return { shared, take };
  });
  await clock.advance(1);
  return Object.assign(bench, { clock, memory, gateways });
}

describe("windows that gateways share", () => {
  test("let in no more than the limit when requests come to one gateway after the other", async () => {
    const { clock, gateways } = await createBench(3, 10);
    let allowed = 0;
    for (let at = 0; at < 20; at++) {
      const { allowed: isAllowed, resetMs, remaining, limit } = gateways[at % 3]?.take() ?? assert.fail();
      if (isAllowed) allowed++;
      else assert.ok(resetMs > 0 && remaining === 0 && limit === 10);
      await clock.advance(2_000);
    }
    assert.equal(allowed, 10);
    const other = gateways[0]?.take("tok_2");
    assert.equal(other?.allowed, true, "another token has a window of its own");
  });

  test("let in all of the limit at one gateway, whose share is renewed before it is used up", async () => {
    const { clock, gateways } = await createBench(3, 600);
    let allowed = 0;
    for (let at = 0; at < 700; at++) {
      if (gateways[0]?.take().allowed) allowed++;
      await clock.advance(5);
    }
    assert.equal(allowed, 600);
  });

  test("let in at most twice the limit, and that only at once at all gateways, whatever comes where and when", async () => {
    const step = fc.oneof(
      { weight: 8, arbitrary: fc.record({ at: fc.nat(3), count: fc.integer({ min: 1, max: 40 }) }) },
      { weight: 3, arbitrary: fc.record({ ms: fc.constantFrom(1, 60, 1_000, 2_000) }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), fc.integer({ min: 1, max: 60 }), async (steps, max) => {
        const { clock, gateways } = await createBench(4, max);
        let allowed = 0;
        for (const each of steps) {
          if ("ms" in each) await clock.advance(each.ms);
          else for (let n = 0; n < each.count; n++) if (gateways[each.at]?.take().allowed) allowed++;
        }
        // All of it lies within one window
        assert.ok(clock.monotonic() < WINDOW_MS);
        assert.ok(allowed <= 2 * max + 4, `${allowed} of ${max}`);
      }),
      { numRuns: triesOf(60) },
    );
  });

  test("a sender who goes on when the limit is used up costs the database no more than one at rest", async () => {
    const bench = await createBench(2, 10);
    const { clock, gateways } = bench;
    for (let n = 0; n < 30; n++) {
      gateways[0]?.take();
      await clock.advance(100);
    }
    bench.calls = 0;
    for (let n = 0; n < 200; n++) {
      for (const { take } of gateways) assert.equal(take().allowed, false);
      await clock.advance(10);
    }
    // Two gateways, two seconds, a write and a reading each
    assert.ok(bench.calls <= 8, `${bench.calls} calls`);
  });

  test("a record that says what no gateway would is set aside, or counts for a window at most", async () => {
    const { clock, gateways, memory } = await createBench(1, 10);
    const bucket = Math.floor(clock.now() / 1_000);
    const of = (keys: unknown, newest: unknown = bucket, window_ms: unknown = WINDOW_MS) => ({
      ...{ v: 1, at: clock.now() + 1e12, windows: { callers: { window_ms, newest, keys } } },
    });
    const bodies = [
      of({ tok_1: [0, 1e9] }, 1e12),
      of({ tok_1: [0, 1e9] }, 1e300),
      of({ tok_1: [0, -5] }),
      of({ tok_1: [0, 1e300] }),
      of(Object.fromEntries(Array.from({ length: 1_001 }, (_, index) => [`k${index}`, [0, 10]]))),
      of({ ["k".repeat(10_000)]: [0, 1] }),
      {
        ...of({}),
        windows: Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`w${index}`, of({}).windows.callers])),
      },
    ];
    await memory.batch(bodies.map((body, index) => ({
      ...{ op: "put", collection: RATE_WINDOWS.name, key: `gw_bad_${index}` } as const,
      body,
    })));
    await clock.advance(2_000);
    const named = [...memory.unreadable.list()].map(({ key }) => key).sort();
    assert.deepEqual(named, [1, 2, 3, 4, 5, 6].map((index) => `gw_bad_${index}`));
    await clock.advance(WINDOW_MS + 2_000);
    assert.equal(gateways[0]?.take().allowed, true);
  });

  test("free their slots when the window has passed, and then say nothing more", async () => {
    const bench = await createBench(2, 10);
    const { clock, gateways, memory } = bench;
    for (let n = 0; n < 5; n++) gateways[0]?.take();
    await clock.advance(1_000);
    for (let n = 0; n < 5; n++) {
      assert.equal(gateways[1]?.take().allowed, true);
      await clock.advance(100);
    }
    const refused = gateways[1]?.take();
    assert.equal(refused?.allowed, false);
    await clock.advance(refused?.resetMs ?? 0);
    assert.equal(gateways[1]?.take().allowed, true, "when the reply said");
    await clock.advance(3 * WINDOW_MS);
    assert.equal(await memory.count(RATE_WINDOWS.name), 0);
    bench.calls = 0;
    await clock.advance(10_000);
    assert.equal(bench.calls, 20, "a gateway at rest reads once a second and writes nothing");
    for (const { shared } of gateways) await shared.close();
    assert.equal(clock.pending(), 0);
  });

  test("let in a part of the limit at each gateway while the database is down, so that nobody is locked out", async () => {
    const bench = await createBench(3, 30);
    bench.isAway = true;
    let allowed = 0;
    for (let at = 0; at < 120; at++) {
      if (bench.gateways[at % 3]?.take().allowed) allowed++;
      await bench.clock.advance(100);
    }
    assert.equal(allowed, 30);
    assert.equal(bench.gateways[0]?.take("tok_2").allowed, true);
    bench.isAway = false;
    await bench.clock.advance(2_000);
    assert.equal(bench.gateways[0]?.take().allowed, false, "what was let in meanwhile counts");
  });

  test("a sender who was silent for a window during an outage is let in again after it", async () => {
    const bench = await createBench(3, 60);
    const { clock, gateways } = bench;
    bench.isAway = true;
    await clock.advance(5_000);
    let allowed = 0;
    for (let n = 0; n < 30; n++) if (gateways[0]?.take().allowed) allowed++;
    assert.equal(allowed, 20);
    await clock.advance(3 * WINDOW_MS);
    bench.isAway = false;
    await clock.advance(2_000);
    for (let n = 0; n < 100; n++) {
      assert.equal(gateways[0]?.take().allowed, true, `request ${n}`);
      await clock.advance(5_000);
    }
  });

  test("a sender of whom the others are not told has its part of the limit in each window, however long strangers go on", async () => {
    const { clock, gateways } = await createBench(3, 60);
    for (let window = 0; window < 5; window++) {
      for (let n = 0; n < 200; n++) gateways[0]?.take(`2001:db8::${n}`);
      for (let n = 0; n < 18; n++) {
        assert.equal(gateways[0]?.take("tok_1").allowed, true, `request ${n} of window ${window}`);
        await clock.advance(WINDOW_MS / 18);
      }
    }
    for (let n = 0; n < 200; n++) gateways[0]?.take(`2001:db8::${n}`);
    await clock.advance(1);
    let allowed = 0;
    for (let n = 0; n < 90; n++) if (gateways[1]?.take("tok_1").allowed) allowed++;
    assert.ok(allowed <= 60, `${allowed} are let in elsewhere`);
  });

  test("a flood of addresses is bounded, and leaves the windows of others alone", async () => {
    const { clock, gateways, memory } = await createBench(2, 10);
    for (let n = 0; n < 10; n++) gateways[0]?.take("tok_1");
    for (let n = 0; n < 5_000; n++) gateways[0]?.take(`10.0.${n >> 8}.${n & 255}`);
    await clock.advance(1_000);
    const [record] = await memory.scan(RATE_WINDOWS.name, { limit: 10 });
    assert.ok(JSON.stringify(record?.body).length < 10_000);
    assert.equal(gateways[1]?.take("10.0.0.1").allowed, true);
  });

  test("the counts of a gateway that died count until they leave the window, and are taken away after", async () => {
    const { clock, gateways, memory } = await createBench(2, 10);
    for (let n = 0; n < 5; n++) gateways[0]?.take();
    await clock.advance(1_000);
    const record = await memory.get(RATE_WINDOWS.name, "gw_0");
    await gateways[0]?.shared.close();
    await memory.batch([{ op: "put", collection: RATE_WINDOWS.name, key: "gw_gone", body: record?.body }]);
    let allowed = 0;
    for (let n = 0; n < 20; n++) {
      if (gateways[1]?.take().allowed) allowed++;
      await clock.advance(100);
    }
    assert.equal(allowed, 5);
    for (let second = 0; second < 130; second++) {
      gateways[1]?.take();
      await clock.advance(1_000);
    }
    assert.equal(await memory.get(RATE_WINDOWS.name, "gw_gone"), undefined);
  });
});
