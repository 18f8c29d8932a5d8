import type { Firing, Schedule } from "../../base/records/schedule.ts";
import { taintField, UNTAINTED } from "../../base/taint.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import { type ReadRecord, unlessUnreadable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { onlyReached, type ScopedCaller } from "../../tools/runtime/owned_things.ts";
import type { Schedules } from "../../tools/schedule/schedules.ts";
import {
  DONE_SCHEDULES,
  firingKey,
  type FiringRecord,
  FIRINGS,
  firingsOf,
  type ScheduleRecord,
  SCHEDULES,
} from "./schedule_record.ts";

const SCHEDULE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** Done schedules that a list shows */
const DONE_SHOWN = 20;
const NEWEST_FIRST = { order: "created", reverse: true } as const;

/** A schedule as it lies in the store. */
export interface FoundSchedule {
  readonly record: ScheduleRecord;
  readonly version: number;
}

/** Selection of the schedules that one page shows. */
export interface ScheduleQuery {
  /** Default: those that are active or paused */
  readonly state?: Schedule["state"] | undefined;
  /** 1-1000 */
  readonly limit: number;
  /** Only those made before this one */
  readonly after?: string | undefined;
}

/** Runs and masking for showing schedules. */
export interface ViewOptions {
  readonly runs: () => RunSupervisor | undefined;
  /** Masks known secrets in a value */
  readonly shown: (value: unknown) => unknown;
}

/** Tells whether a text may be the id of a schedule. */
export function isScheduleId(id: string): boolean {
  return SCHEDULE_ID.test(id);
}

/** Schedules and their firings, as they are shown and as they lie in the store. */
export class ScheduleReader implements Pick<Schedules, "list"> {
  readonly #store: Store;
  readonly #view: ViewOptions;

  constructor(store: Store, view: ViewOptions) {
    this.#store = store;
    this.#view = view;
  }

  /** Returns a schedule in any state; undefined for an unknown id */
  async get(id: string): Promise<Schedule | undefined> {
    const stored = await this.#getFrom(SCHEDULES, id) ?? await this.#getFrom(DONE_SCHEDULES, id);
    return stored === undefined ? undefined : await toSchedule(stored.value, this.#view);
  }

  /** Returns a schedule that is active or paused */
  async find(id: string): Promise<FoundSchedule | undefined> {
    const stored = await this.#getFrom(SCHEDULES, id);
    return stored === undefined ? undefined : { record: stored.value, version: stored.version };
  }

  /** Tells whether the id belongs to a schedule with one time that has fired */
  async isDone(id: string): Promise<boolean> {
    return isScheduleId(id) && await DONE_SCHEDULES.versionOf(this.#store, id) > 0;
  }

  /** Tells whether there is a record, readable or not, of a schedule that is active or paused */
  async isThere(id: string): Promise<boolean> {
    return isScheduleId(id) && await SCHEDULES.versionOf(this.#store, id) > 0;
  }

  /** Returns the id of the token whose rights a schedule has, be it active, paused or done. Undefined: no record says it */
  async ownerOf(id: string): Promise<string | null | undefined> {
    const found = await unlessUnreadable(this.#getFrom(SCHEDULES, id)) ??
      await unlessUnreadable(this.#getFrom(DONE_SCHEDULES, id));
    return found?.value.caller.token_id;
  }

  /** Returns all schedules that are active or paused, by id */
  async *records(): AsyncGenerator<ScheduleRecord> {
    for await (const { value } of SCHEDULES.all(this.#store)) yield value;
  }

  async list(
    { state }: { readonly state?: Schedule["state"] | undefined },
    caller: ScopedCaller,
  ): ReturnType<Schedules["list"]> {
    const all = await Array.fromAsync(this.records());
    for await (const { value } of DONE_SCHEDULES.all(this.#store, NEWEST_FIRST)) all.push(value);
    const asked = state === undefined ? all : all.filter((record) => record.state === state);
    const { reached, hidden } = onlyReached(asked, caller, (record) => record.caller.token_id);
    const open = reached.filter((record) => record.state !== "done");
    const done = reached.filter((record) => record.state === "done").slice(0, DONE_SHOWN);
    return { schedules: await this.#shown([...open, ...done]), hidden };
  }

  /** Returns the newest first. Done schedules are left out unless `state` asks for them */
  async page(
    { state, limit, after }: ScheduleQuery,
  ): Promise<{ readonly schedules: readonly Schedule[]; readonly hasMore: boolean }> {
    const found: ScheduleRecord[] = [];
    const collection = state === "done" ? DONE_SCHEDULES : SCHEDULES;
    for await (const { value: record } of collection.all(this.#store, { ...NEWEST_FIRST, after })) {
      if (state === undefined || record.state === state) found.push(record);
      if (found.length > limit) break;
    }
    return { schedules: await this.#shown(found.slice(0, limit)), hasMore: found.length > limit };
  }

  /** Returns the firings, the newest first. @param options.after older than this firing. @returns undefined for an unknown id */
  async history(
    id: string,
    { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<{ readonly firings: readonly Firing[]; readonly hasMore: boolean } | undefined> {
    if (await this.get(id) === undefined) return undefined;
    const prefix = firingsOf(id);
    const page = await this.#store.scan(FIRINGS.name, {
      prefix,
      reverse: true,
      limit: Math.min(limit + 1, 1000),
      ...(after === undefined ? {} : { after: `${prefix}${after}` }),
    });
    const found = FIRINGS.readable(this.#store, page.slice(0, limit));
    const firings = await Promise.all(found.map(({ value }) => toFiring(value, this.#view)));
    return { firings, hasMore: page.length > limit };
  }

  async #getFrom(collection: typeof SCHEDULES, id: string): Promise<ReadRecord<ScheduleRecord> | undefined> {
    return isScheduleId(id) ? await collection.read(this.#store, id) : undefined;
  }

  async #shown(records: readonly ScheduleRecord[]): Promise<readonly Schedule[]> {
    return await Promise.all(records.map((record) => toSchedule(record, this.#view)));
  }
}

/** Returns a schedule as it is shown: times as text, secrets masked, with the outcome of its newest run. */
export async function toSchedule(record: ScheduleRecord, options: ViewOptions): Promise<Schedule> {
  const { id, state, timing, timezone, prompt, call, next_at, created_at, updated_at, caller, last } = record;
  const shown = (text: string) => String(options.shown(text));
  return {
    id,
    object: "schedule",
    state,
    kind: timing.kind,
    schedule: record.schedule,
    cron: timing.kind === "cron" ? timing.expression : null,
    timezone,
    prompt: prompt === null ? null : shown(prompt),
    tool: call === null ? null : call.tool,
    // Masking keeps the shape
    input: call === null ? null : options.shown(call.input) as Schedule["input"],
    next_at: next_at === null ? null : iso(next_at),
    created_at: iso(created_at),
    updated_at: iso(updated_at),
    created_by: caller.token_id,
    last: last === null ? null : await toFiring(last, options),
    ...taintField(record.taint ?? UNTAINTED),
    ...checkFields(record, options),
  };
}

function checkFields(
  { jitter_secs = 0, ...record }: ScheduleRecord,
  { shown }: ViewOptions,
): Pick<Schedule, "jitter_secs" | "precheck" | "checked"> {
  const precheck = record.precheck ?? undefined;
  const checked = record.checked ?? undefined;
  return {
    ...(jitter_secs === 0 ? {} : { jitter_secs }),
    ...(precheck === undefined ? {} : {
      precheck: {
        tool: precheck.tool,
        // Masking keeps the shape
        input: shown(precheck.input) as NonNullable<Schedule["precheck"]>["input"],
        only_when_changed: precheck.only_when_changed,
      },
    }),
    ...(checked === undefined ? {} : {
      checked: {
        at: iso(checked.at),
        outcome: checked.outcome,
        since: iso(checked.since),
        reason: checked.reason === null ? null : String(shown(checked.reason)),
      },
    }),
  };
}

/** Returns a firing as it is shown, with the outcome of its run. */
export async function toFiring(record: FiringRecord, { runs, shown }: ViewOptions): Promise<Firing> {
  const { schedule_id, time, at, trigger, status, run_id, reason, missed_count, missed_until, check_run_id } = record;
  const runId = run_id ?? check_run_id;
  const run = runId === undefined ? undefined : await unlessUnreadable(runs()?.get(runId));
  return {
    id: firingKey(record).slice(firingsOf(schedule_id).length),
    object: "schedule_firing",
    schedule_id,
    time: iso(time),
    at: iso(at),
    trigger,
    status,
    run_id,
    reason: reason === null ? null : String(shown(reason)),
    missed_count,
    missed_until: missed_until === null ? null : iso(missed_until),
    run_status: run?.status ?? null,
    run_error: run?.error ?? null,
    ...(check_run_id === undefined ? {} : { check_run_id }),
  };
}

function iso(at: number): string {
  return new Date(at).toISOString();
}
