import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { createLogger, type LogRecord } from "../../../lib/base/telemetry/log.ts";
import { EventPacker } from "../../../lib/runs/journal/pack_events.ts";
import { RunEventFeed } from "../../../lib/runs/journal/run_event_feed.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

function setUp(tell: (event: AgentEvent, run: { readonly runId: string }) => unknown, ready = Promise.resolve()) {
  const clock = createFakeClock();
  const lines: LogRecord[] = [];
  const log = createLogger({
    now: clock.now,
    level: "debug",
    redact: (text) => text,
    sink: (line) => void lines.push(line),
  });
  const feed = new RunEventFeed({ tell, ready, clock, log });
  let seq = 0;
  return {
    clock,
    lines,
    feed,
    /** Records texts as events of a run */
    take(runId: string, ...texts: readonly string[]) {
      const packer = new EventPacker();
      packer.add(texts.map((delta) => ({ type: "text_delta", delta, seq: ++seq, time: "2026-01-01T00:00:00.000Z" })));
      feed.take(runId, packer.take());
    },
  };
}

const textOf = (event: AgentEvent) => (event.type === "text_delta" ? event.delta : event.type);

test("events of all runs come in the order of their records, one after the other, and not within take()", async () => {
  const told: string[] = [];
  let working = 0;
  const { take, clock } = setUp(async (event, { runId }) => {
    assert.equal(++working, 1);
    await Promise.resolve();
    told.push(`${runId} ${textOf(event)}`);
    working--;
  });
  take("a", "1", "2");
  take("b", "3");
  take("a", "4");
  assert.deepEqual(told, []);
  await clock.advance(0);
  assert.deepEqual(told, ["a 1", "a 2", "b 3", "a 4"]);
  assert.equal(clock.pending(), 0);
});

test("nothing is told before the program has its gateway", async () => {
  const told: string[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const { take, clock } = setUp((event) => told.push(textOf(event)), promise);
  take("a", "1");
  await clock.advance(10_000);
  assert.deepEqual(told, []);
  resolve();
  await clock.advance(0);
  assert.deepEqual(told, ["1"]);
});

test("errors of every kind are logged once in 10 s with their number, and the next event follows", async () => {
  for (
    const fail of [
      () => {
        throw new Error("no");
      },
      () => Promise.reject(undefined),
      () => ({
        get then() {
          throw new Error("no");
        },
      }),
    ]
  ) {
    let calls = 0;
    const { take, clock, lines } = setUp(() => (calls++, fail()));
    take("a", "1", "2", "3");
    await clock.advance(0);
    await clock.advance(10_000);
    take("a", "4");
    await clock.advance(0);
    assert.equal(calls, 4);
    assert.deepEqual(lines.map(({ message, fields }) => [message, fields["failures"]]), [
      ["onRunEvent failed", 1],
      ["onRunEvent failed", 3],
    ]);
  }
});

test("a hook that hangs is left behind after 5 s for each event", async () => {
  const told: string[] = [];
  const { take, clock, lines } = setUp((event) => {
    told.push(textOf(event));
    return new Promise(() => {});
  });
  take("a", "1", "2");
  await clock.advance(0);
  await clock.advance(4_999);
  assert.deepEqual(told, ["1"]);
  await clock.advance(1);
  assert.deepEqual(told, ["1", "2"]);
  assert.match(JSON.stringify(lines), /longer than 5 s/);
});

test("what waits is bounded: more than 32 MiB are left out, with their number in the log, and the seq shows the gap", async () => {
  const seqs: number[] = [];
  let go = () => {};
  const { take, clock, lines } = setUp((event) => {
    seqs.push(event.seq);
    if (event.seq === 1) return new Promise<void>((resolve) => go = resolve);
    return undefined;
  });
  const big = "x".repeat(10 * 1024 * 1024);
  for (let i = 0; i < 5; i++) take("a", big);
  await clock.advance(0);
  go();
  await clock.advance(0);
  take("a", "small");
  await clock.advance(0);
  assert.deepEqual(seqs, [1, 2, 3, 6]);
  assert.match(lines[0]?.message ?? "", /left out: onRunEvent is too slow/);
});

test("close() tells what waits, for its time alone, and then takes nothing any more", async () => {
  const told: string[] = [];
  const { take, clock, feed, lines } = setUp((event) => {
    told.push(textOf(event));
    return textOf(event) === "hang" ? new Promise(() => {}) : undefined;
  });
  take("a", "1", "hang", "2");
  take("a", "3");
  const closing = feed.close(2_000);
  await clock.advance(0);
  await clock.advance(2_000);
  await closing;
  take("a", "4");
  await clock.advance(10_000);
  assert.deepEqual(told, ["1", "hang"]);
  assert.ok(lines.some(({ message }) => /left out/.test(message)));
});
