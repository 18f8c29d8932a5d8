import type { Clock } from "../../base/clock.ts";
import { HttpError, ToolError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Firing } from "../../base/records/schedule.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { isTimezone } from "../../base/zoned_time.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { checkOwner, type ScopedCaller } from "../../tools/runtime/owned_things.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import type { ScheduleMaker, Schedules } from "../../tools/schedule/schedules.ts";
import { type FireOptions, fireSchedule, firingDeletes, forgetOldDone, forgetOldFirings } from "./fire_schedule.ts";
import { firingTimes, toTiming } from "./firing_times.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import { parseSchedule } from "./parse_schedule.ts";
import {
  createScheduleReader,
  type FoundSchedule,
  isScheduleId,
  type ScheduleReader,
  toFiring,
  toSchedule,
  type ViewOptions,
} from "./read_schedules.ts";
import { DONE_SCHEDULES, type FiringRecord, type ScheduleRecord, SCHEDULES, type Timing } from "./schedule_record.ts";
import { checkWork } from "./scheduled_work.ts";
import { createScheduler } from "./scheduler.ts";
import { startRun, type StartRunOptions } from "./start_run.ts";

/** The schedules, their history, and what fires them (docs/design/automation.md "Schedules"). */
export interface Cron extends Schedules, Pick<ScheduleReader, "get" | "page" | "history"> {
  /**
   * Fires a schedule now, whatever its times and also a paused one, with no more rights than both its maker and `by` have.
   * @param claim a record made in the one transaction that accepts the run, see RunRequest
   * @throws {HttpError} 404 `not_found`; 409 `conflict` while the run before is at work, or where `[cron]` is off; 503 as RunSupervisor.start
   */
  run(id: string, by: Caller, claim?: (runId: string) => Write): Promise<Firing>;
  /** Begins to fire, where `[cron] enabled` says so; what a downtime missed is caught up. Resolves when all are known */
  start(): Promise<void>;
  /** Fires nothing more. Resolves when what is being fired is dealt with */
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
  readonly scopesOf: StartRunOptions["scopesOf"];
  readonly tools: () => Pick<ToolExecutor, "explain" | "shown">;
}

/** Key of work that counts all schedules. No id is empty. */
const ALL = "";

/** The schedules over a store. One gateway owns a store's schedules. */
export function createCron(options: CronOptions): Cron {
  const { store, clock, random, log } = options;
  const mutex = createKeyedMutex();
  const view: ViewOptions = { runs: options.runs, shown: (value: unknown) => options.tools().shown(value) };
  const reader = createScheduleReader(store, view);
  const { find } = reader;
  const firing: FireOptions = { store, clock, log, runs: options.runs, scopesOf: options.scopesOf };
  const scheduler = createScheduler({
    clock,
    log,
    fire: (id, isLast) => mutex(id, () => fireSchedule(id, { ...firing, isLast })),
    tidy: () => forgetOldDone(store),
    async realign(ids) {
      for (const id of ids) await mutex(id, async () => await realignOne(await unlessUnreadable(find(id))));
    },
  });

  const write = async (
    { record, version }: FoundSchedule,
    changes: Partial<ScheduleRecord>,
  ): Promise<ScheduleRecord> => {
    const next = { ...record, ...changes, seen_at: clock.now() };
    const written = await store.batch([{ op: "putIf", collection: SCHEDULES, key: record.id, version, body: next }]);
    if (!written) throw new ToolError("conflict", `Cannot change "${record.id}": it was changed by others; try again`);
    scheduler.set(record.id, next.next_at ?? undefined);
    return next;
  };

  /** Sets the next time of a schedule whose own may lie behind a clock that was turned back. */
  const realignOne = async (found: FoundSchedule | undefined): Promise<void> => {
    if (found === undefined || found.record.next_at === null) return;
    const { record } = found;
    const next = firingTimes(record.timing, record.timezone).next(clock.now());
    if (next !== undefined && next < (record.next_at ?? next)) await write(found, { next_at: next });
  };

  /** Changes a schedule, one change after the other. @throws {ToolError} `not_found`; `insufficient_scope` for another token's */
  const change = (
    id: string,
    { action, caller }: { readonly action: string; readonly caller: ScopedCaller },
    to: (record: ScheduleRecord) => Partial<ScheduleRecord> | undefined,
  ) =>
    mutex(id, async () => {
      const found = await find(id);
      if (found === undefined) throw await unknown(id, action);
      checkOwner("schedule", { action, id }, { owner: found.record.caller.token_id, caller });
      const changes = to(found.record);
      return await toSchedule(changes === undefined ? found.record : await write(found, changes), view);
    });

  const unknown = async (id: string, what: string): Promise<ToolError> => {
    const why = await reader.isDone(id)
      ? "it was a one-time task and has fired; make a new one"
      : "there is no schedule with this id; cron_list shows those there are";
    return new ToolError("not_found", `Cannot ${what} ${JSON.stringify(id.slice(0, 64))}: ${why}`);
  };

  const zoneOf = (given: string | undefined): string => {
    const zone = given ?? options.settings().timezone;
    if (zone === "") return Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (isTimezone(zone)) return zone;
    const shown = JSON.stringify(zone.slice(0, 64));
    throw new ToolError(
      "invalid_input",
      `Cannot use the "timezone" ${shown}: it must be an IANA name, as Europe/Zurich`,
    );
  };

  const toTimes = (schedule: string, timezone: string): Timing =>
    toTiming(parseSchedule(schedule), { given: schedule, timezone, now: clock.now() });

  const nextOf = (timing: Timing, timezone: string) => firingTimes(timing, timezone).next(clock.now()) ?? null;

  return {
    add: ({ id = random.id("task_"), schedule, timezone, ...work }, by) =>
      mutex(ALL, () =>
        mutex(id, async () => {
          if (!isScheduleId(id)) {
            throw new ToolError(
              "invalid_input",
              'Cannot use this "id": it must be 1-64 letters, digits, ".", "_" or "-", a letter or digit first',
            );
          }
          const { maxTasks } = options.settings();
          // A new schedule takes the place of a task that fired
          if (await reader.isThere(id) || await reader.isDone(id)) {
            checkOwner("schedule", { action: "replace", id }, { owner: await reader.ownerOf(id), caller: by.caller });
          }
          if (await find(id) !== undefined) {
            throw new ToolError("conflict", `Cannot add "${id}": there is one with this id; cron_update changes it`);
          }
          if (await store.count(SCHEDULES) >= maxTasks) {
            const reason = `there are ${maxTasks} already, as [cron] max_tasks allows; remove one with cron_remove`;
            throw new ToolError("too_many_schedules", `Cannot add "${id}": ${reason}`);
          }
          const checked = checkWork(work, { tools: options.tools(), allowed: by.tools });
          const zone = zoneOf(timezone);
          const timing = toTimes(schedule, zone);
          const now = clock.now();
          const record: ScheduleRecord = {
            v: 1,
            id,
            state: "active",
            schedule: schedule.trim(),
            timing,
            timezone: zone,
            ...checked,
            ...toMaker(by),
            next_at: nextOf(timing, zone),
            created_at: now,
            updated_at: now,
            seen_at: now,
            last: null,
            last_run_id: null,
          };
          await store.batch([
            { op: "insert", collection: SCHEDULES, key: id, body: record },
            { op: "delete", collection: DONE_SCHEDULES, key: id },
          ]);
          scheduler.set(id, record.next_at ?? undefined);
          return await toSchedule(record, view);
        })),

    update: (id, { schedule, timezone, ...work }, by) =>
      change(id, { action: "update", caller: by.caller }, (record) => {
        const works = Object.values(work).some((value) => value !== undefined);
        if (schedule === undefined && timezone === undefined && !works) {
          throw new ToolError("invalid_input", `Cannot update "${id}": give what is to change`);
        }
        const zone = timezone === undefined ? record.timezone : zoneOf(timezone);
        const isRetimed = schedule !== undefined || (timezone !== undefined && record.timing.kind === "cron");
        const timing = isRetimed ? toTimes(schedule ?? record.schedule, zone) : record.timing;
        const earlier = { prompt: record.prompt ?? undefined, ...record.call };
        const given = !works
          ? earlier
          : work.prompt === undefined && work.tool === undefined
          ? { ...record.call, input: work.input }
          : work;
        return {
          schedule: schedule?.trim() ?? record.schedule,
          timing,
          timezone: zone,
          ...checkWork(given, { tools: options.tools(), allowed: by.tools }),
          ...toMaker(by),
          next_at: record.state === "active" ? nextOf(timing, zone) : null,
          updated_at: clock.now(),
        };
      }),

    remove: (id, caller) =>
      mutex(id, async () => {
        if (!await reader.isThere(id) && !await reader.isDone(id)) throw await unknown(id, "remove");
        checkOwner("schedule", { action: "remove", id }, { owner: await reader.ownerOf(id), caller });
        await store.batch([
          { op: "delete", collection: SCHEDULES, key: id },
          { op: "delete", collection: DONE_SCHEDULES, key: id },
          ...await firingDeletes(store, id),
        ]);
        scheduler.set(id, undefined);
      }),

    pause: (id, caller) =>
      change(
        id,
        { action: "pause", caller },
        ({ state }) => (state === "paused" ? undefined : { state: "paused", next_at: null, updated_at: clock.now() }),
      ),

    resume: (id, caller) =>
      change(id, { action: "resume", caller }, ({ state, timing, timezone }) => {
        if (state === "active") return undefined;
        const next = nextOf(timing, timezone);
        if (next === null) {
          const reason = "its time passed while it was paused; cron_update gives it another";
          throw new ToolError("conflict", `Cannot resume "${id}": ${reason}`);
        }
        return { state: "active", next_at: next, updated_at: clock.now() };
      }),

    list: reader.list,
    get: reader.get,
    page: reader.page,
    history: reader.history,

    run: (id, by, claim) =>
      mutex(id, async () => {
        const found = await find(id);
        if (found === undefined) throw await toHttp(unknown(id, "run"));
        if (!options.settings().enabled) throw refused(id, "schedules are off; set [cron] enabled = true");
        const { record, version } = found;
        const now = clock.now();
        const writes = (made: FiringRecord): readonly Write[] => {
          const body = { ...record, last: made, last_run_id: made.run_id, seen_at: now };
          const held = claim === undefined || made.run_id === null ? [] : [claim(made.run_id)];
          return [{ op: "putIf", collection: SCHEDULES, key: id, version, body }, ...held];
        };
        const occasion = { time: now, at: now, trigger: "manual", by, isLast: false, writes } as const;
        const started = await startRun(record, occasion, firing);
        if (started === undefined) {
          throw new HttpError("overloaded", `Cannot run "${id}": the gateway has no room for its run now; try again`, {
            status: 503,
            type: "api_error",
            headers: { "retry-after": "5" },
          });
        }
        const { status, reason } = started.firing;
        if (status !== "started") throw refused(id, lowered(reason ?? "it could not be started"));
        await forgetOldFirings(store, id);
        return await toFiring(started.firing, view);
      }),

    async start() {
      if (!options.settings().enabled) return;
      const now = clock.now();
      for await (const { id, next_at, seen_at } of reader.records()) {
        if (next_at === null) continue;
        scheduler.set(id, next_at);
        if (seen_at > now) await mutex(id, async () => await realignOne(await unlessUnreadable(find(id))));
      }
      scheduler.start();
    },

    stop: scheduler.stop,
  };
}

function toMaker({ caller, tools, limits }: ScheduleMaker): Pick<ScheduleRecord, "caller" | "tools" | "limits"> {
  return {
    caller: {
      token_id: caller.tokenId,
      scopes: [...caller.scopes],
      ...(caller.via === "subagent" ? { via: caller.via } : {}),
    },
    tools: tools === undefined ? null : [...tools],
    limits: limits === undefined ? null : { ...limits },
  };
}

function refused(id: string, reason: string): HttpError {
  return new HttpError("conflict", `Cannot run "${id}": ${reason}`, { status: 409, type: "invalid_request_error" });
}

async function toHttp(error: Promise<ToolError>): Promise<HttpError> {
  return new HttpError("not_found", (await error).message, { status: 404, type: "invalid_request_error" });
}

function lowered(sentence: string): string {
  return `${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`;
}
