import fc from "fast-check";
import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError, cancelReason } from "../../lib/base/cancel.ts";
import { Backoff, type Clock, systemClock, withTimeout } from "../../lib/base/clock.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";

const CLOCKS: readonly (readonly [name: string, clock: Clock, pass: (ms: number) => Promise<void>])[] = (() => {
  const fake = createFakeClock();
  return [
    ["systemClock", systemClock, (ms) => systemClock.sleep(ms + 5)],
    ["fake clock", fake, (ms) => fake.advance(ms)],
  ];
})();

for (const [name, clock, pass] of CLOCKS) {
  test(`${name}: sleep() rejects with the reason of its signal`, async () => {
    const controller = new AbortController();
    const sleeping = clock.sleep(60_000, controller.signal);
    controller.abort(new CancelError("shutdown"));
    await assert.rejects(sleeping, (error) => error instanceof CancelError && error.reason === "shutdown");
    await assert.rejects(clock.sleep(1, controller.signal), CancelError);
  });

  test(`${name}: timeoutSignal() aborts with reason timeout, and not when cleared`, async () => {
    const one = clock.timeoutSignal(10);
    const two = clock.timeoutSignal(10);
    two.clear();
    await pass(20);
    assert.equal(one.signal.aborted && cancelReason(one.signal), "timeout");
    assert.equal(two.signal.aborted, false);
  });

  test(`${name}: every() fires until cleared, after() once`, async () => {
    let ticks = 0;
    let once = 0;
    const timer = clock.every(5, () => ticks++);
    clock.after(5, () => once++);
    await until(async () => {
      await pass(5);
      return ticks >= 2 && once > 0;
    });
    timer.clear();
    const seen = ticks;
    await pass(20);
    assert.equal(ticks, seen);
    assert.equal(once, 1);
  });
}

test("withTimeout() gives what the work gives in time, else nothing, and leaves no timer", async () => {
  const clock = createFakeClock();
  assert.equal(await withTimeout(Promise.resolve("done"), { ms: 1000, clock }), "done");
  await assert.rejects(withTimeout(Promise.reject(new TypeError("broken")), { ms: 1000, clock }), TypeError);
  const late = withTimeout(new Promise(() => {}), { ms: 1000, clock });
  await clock.advance(1000);
  assert.equal(await late, undefined);
  assert.equal(clock.pending(), 0);
});

test("a backoff doubles its waits up to the bound, and begins again after a reset", () => {
  const backoff = new Backoff({ firstMs: 100, mostMs: 500 });
  assert.deepEqual([1, 2, 3, 4, 5].map(() => backoff.next()), [100, 200, 400, 500, 500]);
  backoff.reset();
  assert.equal(backoff.next(), 100);
});

test("each wait of a backoff is within half of its bound and the bound, and all of that is used", () => {
  const bounds = fc.record({ firstMs: fc.integer({ min: 2, max: 60_000 }), times: fc.integer({ min: 1, max: 1_000 }) });
  const steps = fc.array(fc.record({ byte: fc.nat(255), resets: fc.boolean() }), { maxLength: 40 });
  fc.assert(fc.property(bounds, steps, ({ firstMs, times }, tries) => {
    let byte = 0;
    const random = { bytes: () => Uint8Array.of(byte), id: (prefix: string) => prefix };
    const mostMs = firstMs * times;
    const backoff = new Backoff({ firstMs, mostMs }, random);
    let since = 0;
    for (const each of tries) {
      if (each.resets) {
        backoff.reset();
        since = 0;
      }
      byte = each.byte;
      const whole = Math.min(firstMs * 2 ** since++, mostMs);
      const ms = backoff.next();
      assert.ok(ms >= Math.round(whole / 2) && ms <= whole && ms >= 1, `${ms} of ${whole}`);
      if (byte === 255) assert.equal(ms, whole);
      if (byte === 0) assert.equal(ms, Math.round(whole / 2));
    }
  }));
});
