import assert from "node:assert/strict";
import { test } from "node:test";
import { ServersWatch } from "../../../lib/providers/discovery/watch_servers.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

function watched() {
  const clock = createFakeClock();
  const looks: number[] = [];
  let release: (() => void) | undefined;
  const hold = { next: false };
  const watch = new ServersWatch({
    clock,
    look() {
      looks.push(clock.monotonic());
      return hold.next ? new Promise((resolve) => (release = resolve)) : Promise.resolve();
    },
  });
  return { clock, looks, watch, hold, release: () => release?.() };
}

test("it is looked each 30 s", async () => {
  const { clock, looks, watch } = watched();
  await clock.advance(90_000);
  assert.deepEqual(looks, [30_000, 60_000, 90_000]);
  watch.stop();
  assert.equal(clock.pending(), 0);
});

test("a sign is followed at once, and again after a second at the soonest, however many there are", async () => {
  const { clock, looks, watch } = watched();
  for (let sign = 0; sign < 5; sign++) watch.lookSoon();
  await clock.advance(0);
  assert.deepEqual(looks, [0]);
  for (let sign = 0; sign < 5; sign++) watch.lookSoon();
  await clock.advance(999);
  assert.deepEqual(looks, [0]);
  await clock.advance(1);
  assert.deepEqual(looks, [0, 1000]);
  await clock.advance(30_000);
  assert.deepEqual(looks, [0, 1000, 31_000]);
  watch.stop();
});

test("a sign while it is looked is followed after that, one look at a time", async () => {
  const { clock, looks, watch, hold, release } = watched();
  hold.next = true;
  watch.lookSoon();
  await clock.advance(0);
  watch.lookSoon();
  await clock.advance(60_000);
  assert.deepEqual(looks, [0]);
  hold.next = false;
  release();
  await clock.advance(1000);
  assert.deepEqual(looks, [0, 61_000]);
  watch.stop();
});

test("stop() ends it, also while it is looked", async () => {
  const { clock, looks, watch, hold, release } = watched();
  hold.next = true;
  await clock.advance(30_000);
  watch.stop();
  release();
  watch.lookSoon();
  await clock.advance(90_000);
  assert.deepEqual([looks.length, clock.pending()], [1, 0]);
});
