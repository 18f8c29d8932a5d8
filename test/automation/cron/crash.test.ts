import assert from "node:assert/strict";
import { test } from "node:test";
import { CronService } from "../../../lib/automation/cron/cron_service.ts";
import { SCOPES } from "../../../lib/base/records/caller.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import type { Run } from "../../../lib/base/records/run.ts";
import type { RunSupervisor } from "../../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createCrashingStore } from "../../support/crashing_store.ts";
import { MAKER } from "../../support/cron_fixture.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { supervised } from "../../support/supervised.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const MAX_WRITES = 60;
const decision = { kind: "allow", reason: "", rule: "", path: [], change: [] } as const;

/** Starts a supervisor and the schedules over a store, as one life of a gateway. */
function live(store: Store, { now, seed, onChange }: { now: number; seed: number; onChange: () => void }) {
  const clock = createFakeClock(now);
  const change = { name: "change", access: "write", run: () => (onChange(), "changed") } as const;
  const { runs, executor } = supervised([], { store, clock, seed, tools: [change] });
  const cron = new CronService({
    store,
    clock,
    random: createSeededRandom(seed),
    log: SILENT,
    settings: () => ({ enabled: true, timezone: "UTC", maxTasks: 10 }),
    runs: () => runs,
    scopesOf: () => SCOPES,
    // The fake executor judges nothing
    tools: () => ({
      shown: executor.shown,
      judge: () => ({ kind: "judged", decision, access: "write", prepared: undefined }),
    }),
  });
  return { clock, runs, cron };
}

async function cronRuns(supervisor: Pick<RunSupervisor, "list">): Promise<readonly Run[]> {
  return (await supervisor.list({ limit: 100 })).runs.filter(({ kind }) => kind === "cron");
}

for (const when of ["before", "after"] as const) {
  for (const schedule of ["hourly", "in 1h"]) {
    test(`killed ${when} any one write, "${schedule}" fires once, and its run is known to the history`, async () => {
      let writes = 0;
      for (let crashAt = 1; crashAt <= MAX_WRITES; crashAt++) {
        const store = createMemoryStore();
        let changes = 0;
        const onChange = () => void changes++;
        const setUp = live(store, { now: Date.UTC(2026, 0, 1), seed: 1, onChange });
        await setUp.cron.add({ id: "a", schedule, tool: "change", input: {} }, MAKER);

        const dying = createCrashingStore(store, { crashAt, when });
        const first = live(dying, { now: Date.UTC(2026, 0, 1), seed: 2, onChange });
        await first.runs.recover().catch(() => {});
        await first.cron.start().catch(() => {});
        await first.clock.advance(HOUR);
        await first.clock.advance(10_000);
        await first.cron.stop();
        writes = Math.max(writes, dying.writes());

        const second = live(store, { now: Date.UTC(2026, 0, 1, 1, 1), seed: 3, onChange });
        await second.runs.recover();
        await second.cron.start();
        await second.clock.advance(MINUTE);
        const runs = await cronRuns(second.runs);
        const { firings = [] } = await second.cron.history("a", { limit: 10 }) ?? {};
        const shown = `killed ${when} write ${crashAt}`;
        assert.equal(runs.length, 1, shown);
        assert.deepEqual(
          firings.map(({ time, status, run_id }) => [time, status, run_id]),
          [["2026-01-01T01:00:00.000Z", "started", runs[0]?.id]],
          shown,
        );
        assert.ok(changes <= 1, `${shown}: the effect happened ${changes} times`);
        const after = await second.cron.get("a");
        const next = schedule === "hourly" ? ["active", "2026-01-01T02:00:00.000Z"] : ["done", null];
        assert.deepEqual([after?.state, after?.next_at, after?.last?.run_id], [...next, runs[0]?.id], shown);
        await second.cron.stop();
        if (crashAt > writes) break;
      }
      assert.ok(writes >= 3 && writes < MAX_WRITES, `${writes} writes`);
    });
  }
}

test("killed after the acceptance of a catch-up, what was missed before it is still recorded", async () => {
  const store = createMemoryStore();
  const onChange = () => {};
  const setUp = live(store, { now: Date.UTC(2026, 0, 1), seed: 1, onChange });
  await setUp.cron.add({ id: "a", schedule: "hourly", tool: "change" }, MAKER);
  const first = live(createCrashingStore(store, { crashAt: 1, when: "after" }), {
    now: Date.UTC(2026, 0, 1, 4, 30),
    seed: 2,
    onChange,
  });
  await first.cron.start();
  await first.clock.advance(0);
  await first.cron.stop();
  const second = live(store, { now: Date.UTC(2026, 0, 1, 5, 30), seed: 3, onChange });
  await second.runs.recover();
  await second.cron.start();
  await second.clock.advance(0);
  const { firings = [] } = await second.cron.history("a", { limit: 10 }) ?? {};
  assert.deepEqual(
    firings.map(({ time, status, missed_count }) => [time.slice(11, 16), status, missed_count]),
    [["05:00", "started", null], ["04:00", "started", null], ["01:00", "missed", 3]],
  );
  assert.equal((await cronRuns(second.runs)).length, 2);
  await second.cron.stop();
});
