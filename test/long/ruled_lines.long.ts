import assert from "node:assert/strict";
import { test } from "node:test";
import { runRuled } from "../support/recorded_bash.ts";

test("of 1,000 generated lines bash runs in those that rules allow no command and writes no file that they do not", async (t) => {
  const seed = Date.now() % 1_000_000;
  const { lines, allowed, ran, wider } = await runRuled(1000, seed);
  t.diagnostic(`seed ${seed}: ${allowed} of ${lines} lines were allowed, ${ran} commands ran`);
  assert.deepEqual(wider, [], `seed ${seed}`);
  assert.ok(allowed > 150 && ran > 200, `seed ${seed}: ${allowed} lines were allowed, ${ran} commands ran`);
});
