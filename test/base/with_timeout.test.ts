import assert from "node:assert/strict";
import { test } from "node:test";
import { withTimeout } from "../../lib/base/with_timeout.ts";
import { createFakeClock } from "../support/fake_clock.ts";

test("withTimeout() gives what the work gives in time, else nothing, and leaves no timer", async () => {
  const clock = createFakeClock();
  assert.equal(await withTimeout(Promise.resolve("done"), { ms: 1000, clock }), "done");
  await assert.rejects(withTimeout(Promise.reject(new TypeError("broken")), { ms: 1000, clock }), TypeError);
  const late = withTimeout(new Promise(() => {}), { ms: 1000, clock });
  await clock.advance(1000);
  assert.equal(await late, undefined);
  assert.equal(clock.pending(), 0);
});
