import type { Clock, Timer } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Fired } from "./fire_schedule.ts";

/** Wakes what is due, by one timer. Times are milliseconds since the epoch. */
export interface Scheduler {
  /** When a schedule is due next; undefined: not any more */
  set(id: string, nextAt: number | undefined): void;
  /** Begins to fire */
  start(): void;
  /** Fires nothing more. Resolves when what is being fired is dealt with */
  stop(): Promise<void>;
}

/** Clock and callbacks of the scheduler. */
export interface SchedulerOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** @param isLast see fireSchedule */
  readonly fire: (id: string, isLast: boolean) => Promise<Fired>;
  /** Called once what was due is dealt with */
  readonly tidy: () => Promise<void>;
  /** The clock was turned back: reckons anew when these are due, and calls `set` */
  readonly realign: (ids: readonly string[]) => Promise<void>;
}

/** Milliseconds after which a clock that slept or was changed is noticed at the latest */
const MAX_SLEEP_MS = 60_000;
/** Milliseconds until a schedule that could not be fired is tried again */
const RETRY_MS = 5_000;
/** Milliseconds of failed tries after which the next try is the last one */
const GIVE_UP_MS = 10 * 60_000;
/** Fired side by side: as many as one commit of the store takes */
const AT_ONCE = 64;
/** Milliseconds that a clock may be set back before due times are calculated again */
const TOLERANCE_MS = 1_000;

interface Entry {
  readonly nextAt: number;
  /** Monotonic time of the first try that failed, and before which there is no other */
  readonly failing?: { readonly since: number; readonly until: number };
}

/**
 * The timer over all schedules: it sleeps until the next one is due, a minute at most, so that a machine that slept or a clock that jumped
 * forward is noticed; by the monotonic clock it notices one that was turned back.
 */
export function createScheduler({ clock, log, fire, tidy, realign }: SchedulerOptions): Scheduler {
  const entries = new Map<string, Entry>();
  let timer: Timer | undefined;
  let working: Promise<void> | undefined;
  let running = false;
  let seen = { now: clock.now(), monotonic: clock.monotonic() };

  const waitOf = ({ nextAt, failing }: Entry) =>
    Math.max(nextAt - clock.now(), failing === undefined ? 0 : failing.until - clock.monotonic());

  const arm = () => {
    timer?.clear();
    timer = undefined;
    if (!running || working !== undefined || entries.size === 0) return;
    let wait = MAX_SLEEP_MS;
    for (const entry of entries.values()) wait = Math.min(wait, waitOf(entry));
    timer = clock.after(Math.max(0, wait), wake);
  };

  const wake = () => {
    timer = undefined;
    working = work().catch((error) => log.error("Schedules could not be fired", { error })).finally(() => {
      working = undefined;
      arm();
    });
  };

  const work = async () => {
    await checkClock();
    for (let fired = false;; fired = true) {
      const due = [...entries].filter(([, entry]) => waitOf(entry) <= 0).map(([id]) => id).slice(0, AT_ONCE);
      if (due.length === 0 || !running) return fired ? await tidy() : undefined;
      await Promise.all(due.map(fireOne));
    }
  };

  const fireOne = async (id: string) => {
    const before = entries.get(id);
    if (before === undefined) return;
    const monotonic = clock.monotonic();
    const since = before.failing?.since ?? monotonic;
    const isLast = monotonic - since >= GIVE_UP_MS;
    try {
      const fired = await fire(id, isLast);
      // Somebody may have changed or removed it meanwhile, and said when it is due
      if (entries.get(id) !== before) return;
      if (fired.kind === "settled") return put(id, fired.nextAt);
    } catch (error) {
      log.error("A schedule could not be fired, and will be tried again", { schedule_id: id, error });
      if (entries.get(id) !== before) return;
    }
    entries.set(id, {
      nextAt: before.nextAt,
      failing: { since, until: clock.monotonic() + (isLast ? MAX_SLEEP_MS : RETRY_MS) },
    });
  };

  const put = (id: string, nextAt: number | undefined) => {
    if (nextAt === undefined) entries.delete(id);
    else entries.set(id, { nextAt });
  };

  const checkClock = async () => {
    const before = seen;
    seen = { now: clock.now(), monotonic: clock.monotonic() };
    const lost = (seen.monotonic - before.monotonic) - (seen.now - before.now);
    if (lost <= TOLERANCE_MS) return;
    log.warn("The clock was turned back: when schedules are due is reckoned anew", { by_ms: Math.round(lost) });
    await realign([...entries.keys()]);
  };

  return {
    set(id, nextAt) {
      put(id, nextAt);
      arm();
    },
    start() {
      running = true;
      seen = { now: clock.now(), monotonic: clock.monotonic() };
      arm();
    },
    async stop() {
      running = false;
      arm();
      await working;
    },
  };
}
