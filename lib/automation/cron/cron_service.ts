import type { Clock } from "../../base/clock.ts";
import { type HttpError, refuse, ToolError } from "../../base/errors.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import type { Random } from "../../base/random.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Firing, Schedule } from "../../base/records/schedule.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { checkOwner, type ScopedCaller } from "../../tools/runtime/owned_things.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { NewSchedule, ScheduleChanges, ScheduleMaker, Schedules } from "../../tools/schedule/schedules.ts";
import { changedFields, newRecord, nextTime, type ScheduleCheckOptions } from "./check_schedule.ts";
import {
  afterFiring,
  fireSchedule,
  firingDeletes,
  forgetOldDone,
  forgetOldFirings,
  lookAt,
  startFiring,
} from "./fire_schedule.ts";
import { CHANGED, type FireOptions } from "./firing_request.ts";
import {
  type FoundSchedule,
  isScheduleId,
  ScheduleReader,
  toFiring,
  toSchedule,
  type ViewOptions,
} from "./read_schedules.ts";
import { tryChange } from "./try_change.ts";
import { DONE_SCHEDULES, type FiringRecord, type ScheduleRecord, SCHEDULES } from "./schedule_record.ts";
import { Scheduler } from "./scheduler.ts";

/** Schedules, their history, and the part that fires them (docs/design/automation.md "Schedules"). */
export interface Cron extends Schedules, Pick<ScheduleReader, "get" | "page" | "history"> {
  /**
   * Fires a schedule now, whatever its times are, also a paused one. Its run has the rights that both its maker and `by` have.
   * @param claim returns a write for the transaction that accepts the run, see RunRequest
   * @throws {HttpError} 404 `not_found`; 409 `conflict` while the run before is at work, or where `[cron]` is off; 503 as RunSupervisor.start
   */
  run(id: string, by: Caller, claim?: (runId: string) => Write): Promise<Firing>;
  /** Begins to fire, where `[cron] enabled` says so, and catches up after a downtime. Resolves when all schedules are read */
  start(): Promise<void>;
  /** Fires nothing more. Resolves when the firings that have begun are done */
  stop(): Promise<void>;
}

/** Settings of `[cron]`. */
export interface CronSettings {
  readonly enabled: boolean;
  /** IANA name; empty: the machine's */
  readonly timezone: string;
  readonly maxTasks: number;
}

/** Store, clock, runs and settings that the schedules work with. */
export interface CronOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly settings: () => CronSettings;
  /** undefined: there is no agent, or not yet */
  readonly runs: () => RunSupervisor | undefined;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: FireOptions["scopesOf"];
  readonly tools: () => Pick<ToolExecutor, "judge" | "shown">;
  /** Sharing of the schedules in a cluster. Default: nobody else has them */
  readonly sharing?: ScheduleSharing | undefined;
  /** Runs at each start, once the schedules are read. Default: nothing is called */
  readonly onStart?: () => Promise<void>;
}

/** Sharing of schedules with the other gateways that have them. */
export interface ScheduleSharing {
  /** Returns the workspace of this gateway; null: none. */
  readonly workspace: () => string | null;
  /** Makes what follows the changes of other gateways. @param read reads all schedules again; called when others may have changed some */
  readonly follow: (read: () => Promise<void>) => FollowedSchedules;
}

/** Schedules of this gateway among those who may change them too. */
export interface FollowedSchedules {
  /** Reads the schedules, and begins to follow their changes. */
  start(): Promise<void>;
  stop(): void;
  /** Returns the version of all schedules now. Undefined: nobody else changes them */
  version(): Promise<number | undefined>;
  /** Returns the writes that hold only while nobody else changes one schedule. */
  unchanged(id: string): Promise<readonly Write[]>;
  /** Returns the writes that go with each change. @param version of all schedules, where none may have changed since. Default: any */
  writes(version?: number): readonly Write[];
  /** Tells the others of a change that is written. */
  tell(): void;
}

/** Schedules that nobody else has. */
const UNSHARED: ScheduleSharing = {
  workspace: () => null,
  follow: (read) => ({
    start: read,
    stop() {},
    version: () => Promise.resolve(undefined),
    unchanged: () => Promise.resolve([]),
    writes: () => [],
    tell() {},
  }),
};

/** Key under which one schedule is added after the other, since each counts them all. No id is empty. */
const ALL = "";

/** The schedules over a store. Each gateway of a cluster fires them, and the record of a firing decides whose run it is. */
export class CronService implements Cron {
  readonly #options: CronOptions;
  readonly #view: ViewOptions;
  readonly #firing: FireOptions;
  readonly #reader: ScheduleReader;
  readonly #scheduler: Scheduler;
  readonly #sharing: ScheduleSharing;
  readonly #followed: FollowedSchedules;
  /** Changes and firings of one schedule come one after the other. */
  readonly #mutex = createKeyedMutex();

  constructor(options: CronOptions) {
    const { store, clock, log, random, runs, scopesOf, sharing = UNSHARED } = options;
    this.#options = options;
    this.#sharing = sharing;
    this.#followed = sharing.follow(() => this.#readAll());
    this.#view = { runs, shown: (value: unknown) => options.tools().shown(value) };
    this.#firing = { store, clock, log, random, runs, scopesOf };
    this.#reader = new ScheduleReader(store, this.#view);
    this.#scheduler = new Scheduler({
      clock,
      log,
      fire: (id, isLast) => this.#mutex(id, () => fireSchedule(id, { ...this.#firing, isLast })),
      tidy: () => forgetOldDone(store),
      realign: async (ids) => {
        for (const id of ids) await this.#realign(id);
      },
    });
  }

  add({ id = this.#options.random.id("task_"), ...order }: NewSchedule, by: ScheduleMaker): Promise<Schedule> {
    const add = async () => {
      const added = await tryChange(() => this.#add(id, order, by), this.#options);
      if (added === undefined) throw changedByOthers("add", id);
      return added;
    };
    return this.#mutex(ALL, () => this.#mutex(id, add));
  }

  update(id: string, changes: ScheduleChanges, by: ScheduleMaker): Promise<Schedule> {
    return this.#change(
      id,
      { action: "update", caller: by.caller },
      (record) => changedFields(record, changes, this.#checkOptions(by)),
    );
  }

  remove(id: string, caller: ScopedCaller): Promise<void> {
    return this.#mutex(id, async () => {
      const isRemoved = await tryChange(async () => await this.#remove(id, caller) || undefined, this.#options);
      if (isRemoved === undefined) throw changedByOthers("remove", id);
    });
  }

  pause(id: string, caller: ScopedCaller): Promise<Schedule> {
    const paused = () => ({ state: "paused", next_at: null, updated_at: this.#options.clock.now() }) as const;
    return this.#change(id, { action: "pause", caller }, ({ state }) => (state === "paused" ? undefined : paused()));
  }

  resume(id: string, caller: ScopedCaller): Promise<Schedule> {
    return this.#change(id, { action: "resume", caller }, (record) => {
      if (record.state === "active") return undefined;
      const now = this.#options.clock.now();
      const next = nextTime(record, now);
      if (next === null) {
        const reason = "its time passed while it was paused; cron_update gives it another";
        throw new ToolError("conflict", `Cannot resume "${id}": ${reason}`);
      }
      return { state: "active", next_at: next, updated_at: now };
    });
  }

  list(...given: Parameters<Cron["list"]>): ReturnType<Cron["list"]> {
    return this.#reader.list(...given);
  }

  get(...given: Parameters<Cron["get"]>): ReturnType<Cron["get"]> {
    return this.#reader.get(...given);
  }

  page(...given: Parameters<Cron["page"]>): ReturnType<Cron["page"]> {
    return this.#reader.page(...given);
  }

  history(...given: Parameters<Cron["history"]>): ReturnType<Cron["history"]> {
    return this.#reader.history(...given);
  }

  run(id: string, by: Caller, claim?: (runId: string) => Write): Promise<Firing> {
    return this.#mutex(id, async () => {
      const fired = await tryChange(async () => {
        const found = await this.#reader.find(id);
        if (found === undefined) throw refuse("not_found", (await this.#unknown(id, "run")).message);
        if (!this.#options.settings().enabled) throw refused(id, "schedules are off; set [cron] enabled = true");
        return await this.#fireNow(found, by, claim);
      }, this.#options);
      if (fired === undefined) throw overloaded(id);
      return fired;
    });
  }

  async start(): Promise<void> {
    if (!this.#options.settings().enabled) return;
    await this.#followed.start();
    this.#scheduler.start();
    await this.#options.onStart?.();
  }

  stop(): Promise<void> {
    this.#followed.stop();
    return this.#scheduler.stop();
  }

  /** Takes the times of all schedules as they are in the store. */
  async #readAll(): Promise<void> {
    const now = this.#options.clock.now();
    const due = new Map<string, number>();
    const ahead: string[] = [];
    for await (const record of this.#reader.records()) {
      const { id, next_at, seen_at } = record;
      const look = lookAt(record, now);
      if (look !== undefined) due.set(id, look);
      if (next_at !== null && seen_at > now) ahead.push(id);
    }
    this.#scheduler.follow(due);
    for (const id of ahead) await this.#realign(id);
  }

  /** Adds a schedule. @returns undefined when another gateway changed schedules meanwhile: it may have taken the last place */
  async #add(id: string, order: NewSchedule, by: ScheduleMaker): Promise<Schedule | undefined> {
    const version = await this.#followed.version();
    await this.#checkPlace(id, by.caller);
    const workspace = this.#sharing.workspace() ?? undefined;
    const record = {
      ...newRecord(id, order, this.#checkOptions(by)),
      ...(workspace === undefined ? {} : { workspace }),
    };
    const isAdded = await this.#commit([
      SCHEDULES.insert(id, record),
      DONE_SCHEDULES.remove(id),
    ], version);
    if (!isAdded) return undefined;
    this.#scheduler.set(id, record.next_at ?? undefined);
    return await toSchedule(record, this.#view);
  }

  /** Removes a schedule with its history. @returns false when another gateway fired or changed it meanwhile */
  async #remove(id: string, caller: ScopedCaller): Promise<boolean> {
    const { store } = this.#options;
    const unchanged = await this.#followed.unchanged(id);
    if (!await this.#isKnown(id)) throw await this.#unknown(id, "remove");
    checkOwner("schedule", { action: "remove", id }, { owner: await this.#reader.ownerOf(id), caller });
    const isRemoved = await this.#commit([
      ...unchanged,
      SCHEDULES.remove(id),
      DONE_SCHEDULES.remove(id),
      ...await firingDeletes(store, id),
    ]);
    if (isRemoved) this.#scheduler.set(id, undefined);
    return isRemoved;
  }

  /**
   * Writes a change of schedules, and tells the other gateways of a cluster.
   * @param version of all schedules, where none may have changed since. Default: any
   * @returns false when a precondition did not hold
   */
  async #commit(writes: readonly Write[], version?: number): Promise<boolean> {
    const isWritten = await this.#options.store.batch([...writes, ...this.#followed.writes(version)]);
    if (isWritten) this.#followed.tell();
    return isWritten;
  }

  /** Checks that the caller may give a new schedule this id, and that there is room for the schedule. */
  async #checkPlace(id: string, caller: Caller): Promise<void> {
    if (!isScheduleId(id)) {
      throw new ToolError(
        "invalid_input",
        'Cannot use this "id": it must be 1-64 letters, digits, ".", "_" or "-", a letter or digit first',
      );
    }
    const { store, settings } = this.#options;
    const { maxTasks } = settings();
    // A new schedule takes the place of a done one
    if (await this.#isKnown(id)) {
      checkOwner("schedule", { action: "replace", id }, { owner: await this.#reader.ownerOf(id), caller });
    }
    if (await this.#reader.find(id) !== undefined) {
      throw new ToolError("conflict", `Cannot add "${id}": there is one with this id; cron_update changes it`);
    }
    if (await store.count(SCHEDULES.name) < maxTasks) return;
    const reason = `there are ${maxTasks} already, as [cron] max_tasks allows; remove one with cron_remove`;
    throw new ToolError("too_many_schedules", `Cannot add "${id}": ${reason}`);
  }

  #checkOptions(by: ScheduleMaker): ScheduleCheckOptions {
    const { clock, settings, tools } = this.#options;
    return { by, tools: tools(), timezone: settings().timezone, now: clock.now() };
  }

  /** Changes a schedule. @throws {ToolError} `not_found`; `insufficient_scope` for a schedule of another token */
  #change(
    id: string,
    { action, caller }: { readonly action: string; readonly caller: ScopedCaller },
    to: (record: ScheduleRecord) => Partial<ScheduleRecord> | undefined,
  ): Promise<Schedule> {
    return this.#mutex(id, async () => {
      const record = await tryChange(async () => {
        const found = await this.#reader.find(id);
        if (found === undefined) throw await this.#unknown(id, action);
        checkOwner("schedule", { action, id }, { owner: found.record.caller.token_id, caller });
        const changes = to(found.record);
        return changes === undefined ? found.record : await this.#write(found, changes);
      }, this.#options);
      if (record === undefined) throw changedByOthers("change", id);
      return await toSchedule(record, this.#view);
    });
  }

  /** Writes a change of one schedule. @returns undefined when another gateway fired or changed it meanwhile */
  async #write(
    { record, version }: FoundSchedule,
    changes: Partial<ScheduleRecord>,
  ): Promise<ScheduleRecord | undefined> {
    const next = { ...record, ...changes, seen_at: this.#options.clock.now() };
    if (!await this.#commit([SCHEDULES.putOver(record.id, version, next)])) return undefined;
    this.#scheduler.set(record.id, lookAt(next, next.seen_at));
    return next;
  }

  /** Sets an earlier next time, where a clock that was turned back left a later one, and an earlier look at a precheck at work. */
  #realign(id: string): Promise<void> {
    return this.#mutex(id, async () => {
      const found = await unlessUnreadable(this.#reader.find(id));
      if (found === undefined) return;
      const { record } = found;
      const now = this.#options.clock.now();
      const next = record.next_at === null ? null : nextTime(record, now);
      if (next !== null && next < (record.next_at ?? 0)) await this.#write(found, { next_at: next });
      else if ((record.checking ?? null) !== null) this.#scheduler.set(id, lookAt(record, now));
    });
  }

  /** Fires a schedule now. @returns undefined when another gateway fired or changed it meanwhile */
  async #fireNow(
    { record, version }: FoundSchedule,
    by: Caller,
    claim?: (runId: string) => Write,
  ): Promise<Firing | undefined> {
    const { store, clock } = this.#options;
    const { id } = record;
    const now = clock.now();
    const writes = (made: FiringRecord): readonly Write[] => {
      const body = { ...afterFiring(record, made, by), seen_at: now };
      const runId = made.run_id ?? made.check_run_id;
      const held = claim === undefined || runId === undefined ? [] : [claim(runId)];
      return [SCHEDULES.putOver(id, version, body), ...held];
    };
    const occasion = { time: now, at: now, trigger: "manual", by, isLast: false, writes } as const;
    const started = await startFiring(record, occasion, this.#firing);
    if (started === CHANGED) return undefined;
    if (started === undefined) throw overloaded(id);
    const { status, reason } = started.firing;
    if (status !== "started" && status !== "checking") throw refused(id, lowered(reason ?? "it could not be started"));
    this.#scheduler.set(id, lookAt(afterFiring(record, started.firing), now));
    await forgetOldFirings(store, id);
    return await toFiring(started.firing, this.#view);
  }

  /** Tells whether there is a schedule with this id, be it active, paused, done or unreadable. */
  async #isKnown(id: string): Promise<boolean> {
    return await this.#reader.isThere(id) || await this.#reader.isDone(id);
  }

  async #unknown(id: string, action: string): Promise<ToolError> {
    const why = await this.#reader.isDone(id)
      ? "it was a schedule with one time and has fired; make a new one"
      : "there is no schedule with this id; cron_list shows those there are";
    return new ToolError("not_found", `Cannot ${action} ${JSON.stringify(id.slice(0, 64))}: ${why}`);
  }
}

function changedByOthers(action: string, id: string): ToolError {
  const message = `Cannot ${action} "${id}": other gateways change schedules in the same moments; try again`;
  return new ToolError("conflict", message);
}

function refused(id: string, reason: string): HttpError {
  return refuse("conflict", `Cannot run "${id}": ${reason}`);
}

function overloaded(id: string): HttpError {
  return refuse("overloaded", `Cannot run "${id}": the gateway has no room for its run now; try again`, {
    headers: { "retry-after": "5" },
  });
}

function lowered(sentence: string): string {
  return `${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`;
}
