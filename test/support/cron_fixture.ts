import { type Cron, type CronOptions, CronService, type CronSettings } from "../../lib/automation/cron/cron_service.ts";
import { SCHEDULES } from "../../lib/automation/cron/schedule_record.ts";
import { SCOPES } from "../../lib/base/records/caller.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { lateCron } from "../../lib/automation/automation_services.ts";
import { lazilyStarted } from "../../lib/base/lazily.ts";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";
import type { RunHandle, RunRequest } from "../../lib/runs/run_request.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { ScheduleMaker } from "../../lib/tools/schedule/schedules.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { createScriptedRuns, type ScriptedRuns, type ScriptStep } from "./scripted_runs.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { createToolBench } from "./tool_bench.ts";

export interface CronFixtureOptions {
  readonly store?: Store;
  /** Milliseconds since the epoch. Default: 1 January 2026 */
  readonly now?: number;
  readonly settings?: Partial<CronSettings>;
  /** The steps of each run. Default: it hangs */
  readonly script?: (request: RunRequest) => readonly ScriptStep[];
  readonly refuse?: () => Error | undefined;
  /** Default: every token has all scopes */
  readonly scopesOf?: CronOptions["scopesOf"];
  readonly seed?: number;
}

/** Schedules over a store in memory, scripted runs and a clock that stands still. Nothing fires before `cron.start()`. */
export interface CronFixture {
  readonly cron: Cron;
  readonly store: Store;
  readonly clock: FakeClock;
  readonly runs: ScriptedRuns;
  readonly logged: readonly LogRecord[];
  /** Moves the clock on the wall, and no timer */
  jump(ms: number): void;
  /** Due time, status and run of each firing, the newest first */
  fired(id: string): Promise<readonly string[]>;
}

/** The person at the terminal, who has all tools. */
export const MAKER: ScheduleMaker = {
  caller: { via: "cli", tokenId: null, scopes: ["admin"] },
  tools: undefined,
  taint: [],
};

export function createCronFixture(options: CronFixtureOptions = {}): CronFixture {
  const clock = createFakeClock(options.now);
  let jumped = 0;
  const jumping: Clock = { ...clock, now: () => clock.now() + jumped };
  const store = options.store ?? createMemoryStore();
  const logged: LogRecord[] = [];
  const runs = createScriptedRuns({
    clock: jumping,
    store,
    script: options.script ?? (() => ["hang"]),
    ...(options.refuse === undefined ? {} : { refuse: options.refuse }),
  });
  const { executor } = createToolBench({ root: "/workspace", clock });
  const makeCron = () =>
    new CronService({
      store,
      clock: jumping,
      random: createSeededRandom(options.seed ?? 1),
      log: createLogger({
        level: "debug",
        now: jumping.now,
        sink: (record) => void logged.push(record),
        redact: (text) => text,
      }),
      settings: () => ({ enabled: true, timezone: "Europe/Berlin", maxTasks: 100, ...options.settings }),
      runs: () => ({ ...runs, start: async (request) => played(await runs.start(request)) }),
      scopesOf: options.scopesOf ?? (() => SCOPES),
      tools: () => executor,
    });
  // Loaded at its first use, as in a gateway
  const cron = lateCron(
    lazilyStarted(() => Promise.resolve(makeCron()), async () => await store.count(SCHEDULES.name) > 0),
  );
  return {
    cron,
    store,
    clock,
    runs,
    logged,
    jump: (ms) => void (jumped += ms),
    async fired(id) {
      const { firings } = await cron.history(id, { limit: 100 }) ?? { firings: [] };
      return firings.map(({ time, status, run_id, missed_count, missed_until }) =>
        [time.slice(0, 19), status, run_id, missed_count, missed_until?.slice(0, 19)].filter((part) =>
          part !== null && part !== undefined
        ).join(" ")
      );
    },
  };
}

/** A durable run goes on by itself. */
function played(run: RunHandle): RunHandle {
  Array.fromAsync(run.events()).catch(() => {});
  return run;
}
