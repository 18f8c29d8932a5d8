import type { Clock, Timer } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Fired } from "./firing_request.ts";

/** Clock and callbacks of the scheduler. */
export interface SchedulerOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** @param isLast see fireSchedule */
  readonly fire: (id: string, isLast: boolean) => Promise<Fired>;
  /** Runs once all due schedules are fired */
  readonly tidy: () => Promise<void>;
  /** Runs when the clock was turned back: calculates again when these schedules are due, and calls `set` */
  readonly realign: (ids: readonly string[]) => Promise<void>;
}

/** Longest sleep in milliseconds, after which a changed clock is noticed */
const MAX_SLEEP_MS = 60_000;
/** Milliseconds until a schedule that could not be fired is tried again */
const RETRY_MS = 5_000;
/** Milliseconds of failed tries after which the next try is the last one */
const GIVE_UP_MS = 10 * 60_000;
/** Schedules that are fired side by side: as many as one commit of the store takes */
const AT_ONCE = 64;
/** Milliseconds that a clock may be set back before due times are calculated again */
const TOLERANCE_MS = 1_000;

interface Entry {
  readonly nextAt: number;
  /** Monotonic times of the first try that failed, and of the next try. Undefined: the last try did not fail */
  readonly failing?: { readonly since: number; readonly until: number };
}

interface ClockReading {
  readonly now: number;
  readonly monotonic: number;
}

/**
 * Fires the schedules that are due, by one timer. Times are milliseconds since the epoch.
 *
 * Sleeps until the next schedule is due, a minute at most: so it notices a machine that slept, and a clock that jumped forward. The
 * monotonic clock shows when the clock was turned back.
 */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #entries = new Map<string, Entry>();
  #isRunning = false;
  #timer: Timer | undefined;
  /** Present while due schedules are fired. */
  #work: Promise<void> | undefined;
  /** Both clocks at the last look. */
  #seen: ClockReading;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#seen = readClock(options.clock);
  }

  /** Sets when a schedule is due next. @param nextAt undefined: not any more */
  set(id: string, nextAt: number | undefined): void {
    this.#put(id, nextAt);
    this.#arm();
  }

  /** Takes the next times of all schedules, as they were read. Those that are not among them are not due any more */
  follow(due: ReadonlyMap<string, number>): void {
    for (const id of this.#entries.keys()) if (!due.has(id)) this.#entries.delete(id);
    for (const [id, nextAt] of due) if (this.#entries.get(id)?.nextAt !== nextAt) this.#put(id, nextAt);
    this.#arm();
  }

  /** Begins to fire */
  start(): void {
    this.#isRunning = true;
    this.#seen = readClock(this.#options.clock);
    this.#arm();
  }

  /** Fires nothing more. Resolves when the firings that have begun are done */
  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#arm();
    await this.#work;
  }

  #put(id: string, nextAt: number | undefined): void {
    if (nextAt === undefined) this.#entries.delete(id);
    else this.#entries.set(id, { nextAt });
  }

  #waitOf({ nextAt, failing }: Entry): number {
    const { clock } = this.#options;
    return Math.max(nextAt - clock.now(), failing === undefined ? 0 : failing.until - clock.monotonic());
  }

  #arm(): void {
    this.#timer?.clear();
    this.#timer = undefined;
    if (!this.#isRunning || this.#work !== undefined || this.#entries.size === 0) return;
    let wait = MAX_SLEEP_MS;
    for (const entry of this.#entries.values()) wait = Math.min(wait, this.#waitOf(entry));
    this.#timer = this.#options.clock.after(Math.max(0, wait), () => this.#wake());
  }

  #wake(): void {
    const { log } = this.#options;
    this.#timer = undefined;
    this.#work = this.#fireDue().catch((error) => log.error("Schedules could not be fired", { error })).finally(() => {
      this.#work = undefined;
      this.#arm();
    });
  }

  async #fireDue(): Promise<void> {
    await this.#checkClock();
    for (let hasFired = false;; hasFired = true) {
      const due = [...this.#entries].filter(([, entry]) => this.#waitOf(entry) <= 0).map(([id]) => id);
      if (due.length === 0 || !this.#isRunning) return hasFired ? await this.#options.tidy() : undefined;
      await Promise.all(due.slice(0, AT_ONCE).map((id) => this.#fireOne(id)));
    }
  }

  async #fireOne(id: string): Promise<void> {
    const { clock, log, fire } = this.#options;
    const before = this.#entries.get(id);
    if (before === undefined) return;
    const monotonic = clock.monotonic();
    const since = before.failing?.since ?? monotonic;
    const isLast = monotonic - since >= GIVE_UP_MS;
    try {
      const fired = await fire(id, isLast);
      // Somebody changed or removed the schedule meanwhile, and has set its next time
      if (this.#entries.get(id) !== before) return;
      if (fired.kind === "settled") return this.#put(id, fired.nextAt);
    } catch (error) {
      log.error("A schedule could not be fired, and will be tried again", { schedule_id: id, error });
      if (this.#entries.get(id) !== before) return;
    }
    const until = clock.monotonic() + (isLast ? MAX_SLEEP_MS : RETRY_MS);
    this.#entries.set(id, { nextAt: before.nextAt, failing: { since, until } });
  }

  /** Calculates the next times again when the clock was turned back. */
  async #checkClock(): Promise<void> {
    const { clock, log, realign } = this.#options;
    const before = this.#seen;
    const seen = this.#seen = readClock(clock);
    const lost = (seen.monotonic - before.monotonic) - (seen.now - before.now);
    if (lost <= TOLERANCE_MS) return;
    log.warn("The clock was turned back: the times of schedules are calculated again", { by_ms: Math.round(lost) });
    await realign([...this.#entries.keys()]);
  }
}

function readClock(clock: Clock): ClockReading {
  return { now: clock.now(), monotonic: clock.monotonic() };
}
