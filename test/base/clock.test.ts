import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError, cancelReason } from "../../lib/base/cancel.ts";
import { type Clock, systemClock, withTimeout } from "../../lib/base/clock.ts";
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
