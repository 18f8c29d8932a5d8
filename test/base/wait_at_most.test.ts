import assert from "node:assert/strict";
import { test } from "node:test";
import { waitAtMost } from "../../lib/base/wait_at_most.ts";
import { createFakeClock } from "../support/fake_clock.ts";

test("waitAtMost() gives what the work gives in time, else nothing, and leaves no timer", async () => {
  const clock = createFakeClock();
  assert.equal(await waitAtMost(Promise.resolve("done"), { ms: 1000, clock }), "done");
  await assert.rejects(waitAtMost(Promise.reject(new TypeError("broken")), { ms: 1000, clock }), TypeError);
  const late = waitAtMost(new Promise(() => {}), { ms: 1000, clock });
  await clock.advance(1000);
  assert.equal(await late, undefined);
  assert.equal(clock.pending(), 0);
});
