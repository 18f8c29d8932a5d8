import assert from "node:assert/strict";
import { test } from "node:test";
import { type WatchOptions, watchPeer } from "../../../handlers/websocket/sockets.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

function watching(more: Partial<WatchOptions> = {}) {
  const clock = createFakeClock();
  const seen: string[] = [];
  const watch = watchPeer({
    clock,
    heartbeatMs: 30_000,
    pongTimeoutMs: 30_000,
    idleTimeoutMs: 300_000,
    ping: () => void seen.push("ping"),
    busy: () => false,
    onDead: () => void seen.push("dead"),
    onIdle: () => void seen.push("idle"),
    ...more,
  });
  return { clock, seen, watch };
}

test("with a pong time equal to the heartbeat the first ping without an answer is the last", async () => {
  const { clock, seen } = watching();
  await clock.advance(59_999);
  assert.deepEqual(seen, ["ping"]);
  await clock.advance(1);
  assert.deepEqual(seen, ["ping", "dead"]);
});

test("a pong in the last millisecond keeps the socket, and so does anything else that the client says", async () => {
  for (const word of ["alive", "active"] as const) {
    const { clock, seen, watch } = watching();
    await clock.advance(59_999);
    watch[word]();
    await clock.advance(1);
    assert.deepEqual(seen, ["ping", "ping"], word);
    await clock.advance(30_000);
    assert.deepEqual(seen, ["ping", "ping", "dead"], word);
  }
});

test("a socket on which nobody spoke for the idle time is idle, not a moment before, and never while a run is at work", async () => {
  let isBusy = false;
  const { clock, seen, watch } = watching({ ping: undefined, busy: () => isBusy });
  await clock.advance(100_000);
  watch.active();
  await clock.advance(299_999);
  assert.deepEqual(seen, []);
  await clock.advance(1);
  assert.deepEqual(seen, ["idle"]);
  const working = watching({ ping: undefined, busy: () => isBusy });
  isBusy = true;
  await working.clock.advance(900_000);
  assert.deepEqual(working.seen, []);
});

test("a watch that was stopped leaves no timer", async () => {
  const { clock, seen, watch } = watching();
  await clock.advance(30_000);
  watch.stop();
  assert.equal(clock.pending(), 0);
  await clock.advance(900_000);
  assert.deepEqual(seen, ["ping"]);
});
