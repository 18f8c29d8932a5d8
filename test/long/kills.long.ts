import assert from "node:assert/strict";
import { test } from "node:test";
import { workThroughKills } from "../support/mixed_work.ts";
import { MIXED_WORK } from "../support/work_kinds.ts";

test("work of every kind survives 300 kills with SIGKILL: nothing is lost, nothing is done twice", async () => {
  const { pieces, effects, reviews } = await workThroughKills({
    kinds: MIXED_WORK,
    kills: 300,
    pieces: 4,
    maxWorkMs: 400,
    seed: 300,
  });
  console.log(`${pieces} pieces of work with ${effects} effects; a person looked after ${reviews} calls`);
  assert.ok(reviews > 0, "no kill came in the middle of an effect");
});
