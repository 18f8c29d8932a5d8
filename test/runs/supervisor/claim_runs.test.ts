import assert from "node:assert/strict";
import { test } from "node:test";
import { HttpError } from "../../../lib/base/errors.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { POLL_MS } from "../../../lib/cluster/cluster_news.ts";
import { RunClaimer, type RunClaimerOptions } from "../../../lib/runs/supervisor/claim_runs.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** Claims after which a test ends a circle: it would stop the event loop. */
const ENOUGH = 50;

test("a run that cannot be taken up while the database is down is claimed once a second, not in a circle", async () => {
  const clock = createFakeClock();
  const run = { id: "run_1", conversationId: null, parentId: null, workspace: null };
  let claims = 0;
  const ownership = {
    leaseMs: 10 * POLL_MS,
    onLost() {},
    queue: () => ({ waiting: 1, hasAbandoned: false }),
    signals: () => Promise.resolve([]),
    adopt: () => Promise.resolve(0),
    claim: () => Promise.resolve(++claims > ENOUGH ? [] : [run]),
    isLost: () => false,
    // The slot of the run becomes free, which is news
    forget: () => claimer.lookForWaiting(),
    stranded: () => [],
  };
  const away = new HttpError("storage_unavailable", "away", { status: 503, type: "api_error" });
  // As much of the parts as claims need
  const claimer: RunClaimer = new RunClaimer({
    cluster: { ownership, onTakeover() {}, clock, workspaceWaitMs: 1 },
    runs: { get: () => Promise.reject(away) },
    active: { find: () => undefined },
    queue: { freeSlots: () => 1 },
    clock,
    log: SILENT,
  } as unknown as RunClaimerOptions);
  await claimer.start();
  await clock.advance(POLL_MS - 1);
  assert.equal(claims, 1);
  await clock.advance(1);
  assert.equal(claims, 2);
  await claimer.stop();
  assert.equal(clock.pending(), 0);
});
