import assert from "node:assert/strict";
import { test } from "node:test";
import { runRuled } from "../support/recorded_bash.ts";

test("of 100 generated lines bash runs in those that rules allow no command and writes no file that they do not", async () => {
  const seed = Date.now() % 1_000_000;
  const { lines, allowed, ran, wider } = await runRuled(100, seed);
  assert.deepEqual(wider, [], `seed ${seed}`);
  assert.equal(lines, 100);
  assert.ok(allowed > 10 && ran > 10, `seed ${seed}: ${allowed} lines were allowed, ${ran} commands ran`);
});
