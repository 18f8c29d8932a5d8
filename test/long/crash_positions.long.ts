import assert from "node:assert/strict";
import { test } from "node:test";
import { withCrashes } from "../support/crash_positions.ts";

test("crashes of the owner at any record, and of the next owner at any of its own, leave each follower with the stored result", async (context) => {
  await withCrashes(async (strike) => {
    const { records } = await strike({ at: Infinity, when: "before" });
    let [crashes, followers] = [0, 0];
    for (let at = 1; at <= records; at++) {
      for (const when of ["before", "after"] as const) {
        const { later } = await strike({ at, when });
        assert.ok(later > 0 || (at === records && when === "after"), `nobody went on after record ${at}`);
        for (let again = 1; again <= later; again++) {
          const { places } = await strike({ at, when, again });
          crashes++;
          followers += places;
        }
      }
    }
    assert.ok(crashes > 40, `${crashes} pairs of crashes are too few`);
    context.diagnostic(`${crashes} pairs of crashes, ${followers} places of followers`);
  });
});
