import fc from "fast-check";
import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentKeys, slidingWindow } from "../../lib/access/sliding_window.ts";

test("600 requests pass, the next is refused and told when to come again", () => {
  const window = slidingWindow({ max: 600, windowMs: 60_000 });
  for (let index = 0; index < 600; index++) {
    const state = window.take("a", 1000 + index);
    assert.deepEqual([state.allowed, state.limit, state.remaining], [true, 600, 599 - index]);
  }
  const refused = window.take("a", 1600);
  assert.deepEqual([refused.allowed, refused.remaining], [false, 0]);
  assert.ok(refused.resetMs > 59_000 && refused.resetMs <= 61_100, String(refused.resetMs));
  assert.equal(window.take("a", 1600 + refused.resetMs - 1).allowed, false);
  assert.equal(window.take("a", 1600 + refused.resetMs + 0.001).allowed, true);
});

test("keys do not share a window, and a refused request takes no slot", () => {
  const window = slidingWindow({ max: 1, windowMs: 1000 });
  assert.equal(window.take("a", 0).allowed, true);
  for (let now = 1; now < 1000; now++) assert.equal(window.take("a", now).allowed, false);
  assert.equal(window.take("b", 500).allowed, true);
  assert.equal(window.take("a", 1018).allowed, true);
});

test("isUsedUp() says what take() would say, takes no slot and keeps no key", () => {
  const step = fc.record({
    key: fc.constantFrom("a", "b", "c"),
    ms: fc.constantFrom(0, 1, 17, 400, 1_100),
    looks: fc.nat(3),
  });
  fc.assert(fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    const window = slidingWindow({ max: 2, windowMs: 1000, maxKeys: 2 });
    let now = 0;
    for (const { key, ms, looks } of steps) {
      now += ms;
      for (let look = 0; look < looks; look++) window.isUsedUp("c", now);
      const isUsedUp = window.isUsedUp(key, now);
      assert.equal(window.take(key, now).allowed, !isUsedUp);
    }
  }));
});

test("the oldest bucket counts until its youngest request is a whole window old", () => {
  const window = slidingWindow({ max: 1, windowMs: 1000 });
  assert.equal(window.take("a", 15).allowed, true);
  // 15 and 1005 lie 59 buckets apart, and 990 ms
  assert.equal(window.take("a", 1005).allowed, false);
  assert.equal(window.take("a", 1014.9).allowed, false);
  assert.equal(window.take("a", 1017).allowed, true);
});

test("an allowed request is told when the window is empty again", () => {
  const window = slidingWindow({ max: 2, windowMs: 1000 });
  const { resetMs } = window.take("a", 100);
  assert.ok(resetMs >= 1000 && resetMs <= 1017, String(resetMs));
  assert.equal(window.take("a", 100 + resetMs + 0.001).remaining, 1);
});

test("never more than max in any span of the window, and never fewer than a span one 59th longer allows", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 1, max: 2000 }),
      fc.double({ min: 0, max: 1e9, noNaN: true }),
      fc.array(fc.double({ min: 0, max: 700, noNaN: true }), { minLength: 1, maxLength: 120 }),
      (max, windowMs, start, steps) => {
        const window = slidingWindow({ max, windowMs });
        const allowedAt: number[] = [];
        let now = start;
        for (const step of steps) {
          now += step;
          const within = (ms: number) => allowedAt.filter((at) => now - at < ms).length;
          const { allowed, remaining } = window.take("k", now);
          if (allowed) assert.ok(within(windowMs - 1e-6) < max, "too many");
          else assert.ok(within(windowMs * (60 / 59) + 1e-6) >= max, "too strict");
          if (allowed) allowedAt.push(now);
          assert.ok(remaining >= 0 && remaining <= max);
        }
      },
    ),
    { numRuns: 200 },
  );
});

test("memory is bounded: beyond maxKeys the key used longest ago is forgotten", () => {
  const window = slidingWindow({ max: 1, windowMs: 1000, maxKeys: 2 });
  window.take("a", 0);
  window.take("b", 1);
  window.take("a", 2);
  window.take("c", 3);
  assert.equal(window.take("a", 4).allowed, false);
  assert.equal(window.take("b", 5).allowed, true);
});

test("a clock that steps back or jumps far ahead breaks nothing", () => {
  const window = slidingWindow({ max: 1, windowMs: 1000 });
  assert.equal(window.take("a", 5000).allowed, true);
  assert.equal(window.take("a", 4000).allowed, false);
  assert.equal(window.take("a", 1e12).allowed, true);
});

test("a limit that allows nothing is refused", () => {
  for (const bad of [0, -1, NaN, Infinity, 0.5, 1.5]) {
    assert.throws(() => slidingWindow({ max: bad, windowMs: 1000 }), RangeError);
    assert.throws(() => slidingWindow({ max: 1, windowMs: bad }), RangeError);
    assert.throws(() => slidingWindow({ max: 1, windowMs: 1000, maxKeys: bad }), RangeError);
  }
});

test("RecentKeys keeps the keys used last, as a plain list of them would", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 5 }),
      fc.array(fc.constantFrom(..."abcdefgh"), { maxLength: 60 }),
      (maxKeys, uses) => {
        const recent = new RecentKeys({
          maxKeys,
          create: () => ({ count: 0 }),
          reset: (value) => void (value.count = 0),
        });
        let reference: { key: string; count: number }[] = [];
        for (const key of uses) {
          const count = (reference.find((item) => item.key === key)?.count ?? 0) + 1;
          reference = [{ key, count }, ...reference.filter((item) => item.key !== key)].slice(0, maxKeys);
          assert.equal(++recent.use(key).count, count);
        }
      },
    ),
    { numRuns: 200 },
  );
});
