import assert from "node:assert/strict";
import { test } from "node:test";
import { withCrashes } from "../support/crash_positions.ts";

test("a crash of the owner before any record leaves each follower with the stored result, wherever it was", async () => {
  await withCrashes(async (strike) => {
    const { records } = await strike({ at: Infinity, when: "before" });
    assert.ok(records >= 8, `${records} records are too few for three turns`);
    let reviews = 0;
    for (let at = 1; at <= records; at++) {
      const crashed = await strike({ at, when: "before" });
      assert.equal(crashed.records, at);
      if (crashed.isReviewed) reviews++;
    }
    assert.ok(reviews > 0, "some crash came in the middle of a call with an effect");
  });
});
