import assert from "node:assert/strict";
import { test } from "node:test";
import { executeThroughKills } from "../support/killed_procedure.ts";

test("a procedure of 50 steps that is killed 40 times with SIGKILL is finished, and each step took effect once", async () => {
  const reviews = await executeThroughKills({ steps: 50, kills: 40, seed: 7 });
  assert.ok(reviews > 0, "no kill came in the middle of an effect");
});
