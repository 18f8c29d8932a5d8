import assert from "node:assert/strict";
import { test } from "node:test";
import { RequestDeadline } from "../../../lib/extensions/mcp/request_deadline.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

test("the time of a request stands still in a pause, and progress restarts it up to ten times", async () => {
  const clock = createFakeClock();
  const deadline = new RequestDeadline({ clock, timeoutMs: 1_000 });
  await clock.advance(900);
  const resume = deadline.pause();
  await clock.advance(60_000);
  assert.equal(deadline.isOver, false);
  resume();
  for (let times = 0; times < 9; times++) {
    await clock.advance(900);
    deadline.extend();
  }
  assert.equal(deadline.isOver, false);
  await clock.advance(1_000);
  assert.equal(deadline.isOver, true);
});

test("a request that ends while somebody is asked leaves no timer, whoever answers later", () => {
  const clock = createFakeClock();
  const deadline = new RequestDeadline({ clock, timeoutMs: 1_000 });
  const resume = deadline.pause();
  deadline.clear();
  resume();
  assert.equal(clock.pending(), 0);
});
