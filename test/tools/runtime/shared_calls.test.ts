import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { createLogger, type LogRecord } from "../../../lib/base/telemetry/log.ts";
import { SharedCalls } from "../../../lib/tools/runtime/shared_calls.ts";
import { awayError } from "../../support/clustered.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { toToolCall } from "../../support/tool_call.ts";

function createBench() {
  const clock = createFakeClock();
  const lines: LogRecord[] = [];
  const log = createLogger({ now: clock.now, level: "info", redact: (text) => text, sink: (line) => lines.push(line) });
  const closing = new AbortController();
  let tries = 0;
  const bench = { isAway: true };
  const work = async () => {
    tries++;
    if (bench.isAway) throw awayError();
    return "written";
  };
  const calls = new SharedCalls({ clock, log, closing: closing.signal });
  const after = () => calls.after(toToolCall("t", "{}"), work, () => "later");
  return Object.assign(bench, { clock, lines, closing, after, tries: () => tries });
}

test("a record that nobody waits for is written once the database is back", async () => {
  const bench = createBench();
  assert.equal(await bench.after(), "later");
  await bench.clock.advance(5_500);
  assert.equal(bench.tries(), 7);
  bench.isAway = false;
  await bench.clock.advance(5_000);
  assert.deepEqual([bench.tries(), bench.lines.length, bench.clock.pending()], [8, 0, 0]);
});

test("a record that waits for the database is lost when the gateway closes, and the log says so", async () => {
  const bench = createBench();
  await bench.after();
  await bench.clock.advance(1_500);
  bench.closing.abort(new CancelError("shutdown"));
  await bench.clock.advance(5_000);
  assert.deepEqual([bench.tries(), bench.clock.pending()], [3, 0]);
  assert.deepEqual(bench.lines.map(({ message }) => message), ["Records of a call are lost: the gateway ended first"]);
});
