import assert from "node:assert/strict";
import { test } from "node:test";
import { runRecorded } from "../support/recorded_bash.ts";

test("of 1,000 generated lines bash runs no command and writes no file that the parts do not name", async () => {
  const seed = Date.now() % 1_000_000;
  const { lines, judged, ran, wider } = await runRecorded(1000, seed);
  assert.deepEqual(wider, [], `seed ${seed}`);
  assert.equal(lines, 1000);
  assert.ok(judged > 300 && ran > 400, `seed ${seed}: ${judged} lines were judged, ${ran} commands ran`);
});
