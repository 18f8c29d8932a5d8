import assert from "node:assert/strict";
import { test } from "node:test";
import { OutputBrake } from "../../../lib/extensions/mcp/output_brake.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

test("a stream that brings too much stands still for 100 ms, and then flows again", async () => {
  const clock = createFakeClock();
  const seen: string[] = [];
  const stream = { pause: () => seen.push("pause"), resume: () => seen.push("resume") };
  const brake = new OutputBrake(stream, { clock, most: 10 });
  brake.take(10);
  assert.deepEqual(seen, []);
  for (const amount of [1, 5]) brake.take(amount);
  assert.deepEqual(seen, ["pause"]);
  await clock.advance(100);
  assert.deepEqual(seen, ["pause", "resume"]);
  brake.take(10);
  await clock.advance(100);
  brake.take(10);
  assert.deepEqual(seen, ["pause", "resume"], "each window counts for itself");
  brake.take(1);
  brake.release();
  assert.deepEqual(seen, ["pause", "resume", "pause", "resume"]);
  assert.equal(clock.pending(), 0);
});
