import assert from "node:assert/strict";
import { test } from "node:test";
import { workThroughKills } from "../support/mixed_work.ts";
import { MIXED_WORK } from "../support/work_kinds.ts";

/** `test:long` has 300 kills */
const KILLS = 6;

test(`work of every kind survives ${KILLS} kills with SIGKILL: nothing is lost, nothing is done twice`, async () => {
  const done = await workThroughKills({ kinds: MIXED_WORK, kills: KILLS, pieces: 3, maxWorkMs: 200, seed: 11 });
  assert.equal(done.pieces, KILLS * 3);
});
