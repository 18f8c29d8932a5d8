import fc from "fast-check";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Poller } from "../../lib/base/poller.ts";
import { createFakeClock } from "../support/fake_clock.ts";

const EVERY_MS = 1_000;

/** Looks that end when the test says so. */
function heldLooks() {
  const open: PromiseWithResolvers<void>[] = [];
  const state = { begun: 0, most: 0 };
  const look = async () => {
    state.begun++;
    const held = Promise.withResolvers<void>();
    state.most = Math.max(state.most, open.push(held));
    await held.promise.finally(() => open.splice(open.indexOf(held), 1));
  };
  return { state, look, open };
}

test("a poller looks at its interval alone until there is news", async () => {
  const clock = createFakeClock();
  let looks = 0;
  const poller = new Poller(async () => void looks++);
  poller.start(clock, EVERY_MS);
  await clock.advance(EVERY_MS - 1);
  assert.equal(looks, 0);
  await clock.advance(1);
  assert.equal(looks, 1);
  await poller.look();
  assert.equal(looks, 2);
  await poller.stop();
  assert.equal(clock.pending(), 0);
});

test("a place that says what an interval is for is told of each, also of one that passes during a look", async () => {
  const clock = createFakeClock();
  const { state, look, open } = heldLooks();
  const poller: Poller = new Poller(look);
  let told = 0;
  poller.start(clock, EVERY_MS, () => {
    told++;
    void poller.look();
  });
  await clock.advance(2 * EVERY_MS);
  assert.deepEqual([told, state.begun], [2, 1]);
  open[0]?.resolve();
  await clock.advance(0);
  assert.deepEqual(
    [told, state.begun, state.most],
    [2, 2, 1],
    "the second interval has its look right after the first",
  );
  open[0]?.resolve();
  await poller.stop();
  await clock.advance(EVERY_MS);
  assert.equal(told, 2, "stop() ends the intervals");
});

test("look() begins in the same step, and resolves when the look has ended that covers it", async () => {
  const { state, look, open } = heldLooks();
  const poller = new Poller(look);
  const first = poller.look();
  assert.equal(state.begun, 1);
  let isCovered = false;
  const second = poller.look().then(() => isCovered = true);
  open[0]?.resolve();
  await first;
  assert.deepEqual([state.begun, isCovered], [2, false]);
  open[0]?.resolve();
  await second;
  assert.equal(state.begun, 2);
});

test("a look that asks for another one gets it after itself, also in its first step", async () => {
  let [looks, atWork, most] = [0, 0, 0];
  const poller: Poller = new Poller(async () => {
    most = Math.max(most, ++atWork);
    if (++looks < 3) void poller.look();
    await Promise.resolve();
    atWork--;
  });
  await poller.look();
  await poller.stop();
  assert.equal(most, 1);
});

test("stop() waits for the look at work, begins none that was asked for, and lets nobody wait for it", async () => {
  const clock = createFakeClock();
  const { state, look, open } = heldLooks();
  const poller = new Poller(look);
  poller.start(clock, EVERY_MS);
  const first = poller.look();
  const second = poller.look();
  let hasStopped = false;
  const stopping = poller.stop().then(() => hasStopped = true);
  await second;
  await clock.advance(5 * EVERY_MS);
  assert.deepEqual([hasStopped, clock.pending()], [false, 0]);
  open[0]?.resolve();
  await Promise.all([first, stopping, poller.look()]);
  assert.equal(state.begun, 1);
});

test("a poller that was stopped starts again", async () => {
  const clock = createFakeClock();
  let looks = 0;
  const poller = new Poller(async () => void looks++);
  poller.start(clock, EVERY_MS);
  await poller.stop();
  poller.start(clock, EVERY_MS);
  await clock.advance(EVERY_MS);
  assert.equal(looks, 1);
  await poller.stop();
});

test("failures in a row are told once, and again after a look that succeeded", async () => {
  const outcomes = [true, false, false, true, false];
  const told: unknown[] = [];
  const poller = new Poller(async () => {
    const at = outcomes.length;
    if (outcomes.shift() === false) throw at;
  }, (error) => told.push(error));
  const failing: boolean[] = [];
  while (outcomes.length > 0) {
    await poller.look();
    failing.push(poller.isFailing());
  }
  assert.deepEqual(told, [4, 1]);
  assert.deepEqual(failing, [false, true, true, false, true]);
});

test("at most one look is at work, news during a look causes exactly one more, and none begins after stop()", async () => {
  const step = fc.constantFrom("news", "end", "fail", "tick", "stop", "start");
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const clock = createFakeClock();
      const { state, look, open } = heldLooks();
      const poller = new Poller(look);
      poller.start(clock, EVERY_MS);
      // The model counts looks begun, whether one is at work, and whether one more is due
      let [begun, isAtWork, isDue, isStopped] = [0, false, false, false];
      const begin = () => [begun, isAtWork, isDue] = [begun + 1, true, false];
      for (const each of steps) {
        if (each === "news") void poller.look();
        if (each === "end") open[0]?.resolve();
        if (each === "fail") open[0]?.reject(new Error("away"));
        if (each === "stop") void poller.stop();
        if (each === "start") poller.start(clock, EVERY_MS);
        await clock.advance(each === "tick" ? EVERY_MS : 0);
        if (each === "stop") [isStopped, isDue] = [true, false];
        if (each === "start") isStopped = false;
        if (each === "end" || each === "fail") isAtWork = false;
        if (each === "news" && !isStopped) isDue = true;
        if (each === "tick" && !isStopped && !isAtWork) isDue = true;
        if (isDue && !isAtWork) begin();
        assert.equal(state.begun, begun);
        assert.ok(state.most <= 1);
      }
      const stopping = poller.stop();
      open[0]?.resolve();
      await stopping;
      assert.deepEqual([state.begun, clock.pending()], [begun, 0]);
    }),
    { numRuns: 200 },
  );
});
