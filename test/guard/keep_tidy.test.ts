import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { keepTidy } from "../../lib/guard/approvals.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { newApproval } from "../support/new_approval.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const DAY_MS = 86_400_000;

test("old approvals are forgotten at the start and once a day, by the days of that moment, whatever failed before", async () => {
  const clock = createFakeClock();
  const store = createMemoryStore();
  const logged: string[] = [];
  const log = createLogger({
    level: "debug",
    now: clock.now,
    sink: (line) => void logged.push(line.message),
    redact: String,
  });
  const { append: audit } = createFakeAudit(store);
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSeededRandom(),
    log,
    metrics: createMetrics(),
    audit,
  });
  const askAndCancel = async () => {
    const asked = await approvals.ask(newApproval());
    await approvals.cancel(asked?.id ?? "");
  };
  await askAndCancel();
  await clock.advance(3 * DAY_MS);
  let days = 2;
  let fails = false;
  const failing = {
    tidy: (kept: number) => fails ? Promise.reject(new Error("EIO")) : approvals.tidy(kept),
  };
  const stop = await keepTidy(failing, { clock, log, days: () => days });
  assert.equal(await store.count("approvals"), 0);
  await askAndCancel();
  await clock.advance(DAY_MS);
  assert.equal(await store.count("approvals"), 1);
  days = 1;
  fails = true;
  await clock.advance(DAY_MS);
  assert.ok(logged.includes("Old approvals could not be forgotten"));
  assert.equal(await store.count("approvals"), 1);
  fails = false;
  await clock.advance(DAY_MS);
  assert.equal(await store.count("approvals"), 0);
  stop();
  assert.equal(clock.pending(), 0);
});
