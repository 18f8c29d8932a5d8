import type { Firing, Schedule } from "../../base/records/schedule.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import { readable, readRecord, readRecords, unlessUnreadable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { onlyReached } from "../../tools/runtime/owned_things.ts";
import type { Schedules } from "../../tools/schedule/schedules.ts";
import {
  DONE_SCHEDULES,
  firingKey,
  type FiringRecord,
  FIRINGS,
  firingsOf,
  parseFiring,
  parseScheduleRecord,
  type ScheduleRecord,
  SCHEDULES,
} from "./schedule_record.ts";

const SCHEDULE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const DONE_SHOWN = 20;

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

/** Schedules and their firings, as they are shown and as they lie in the store. */
export interface ScheduleReader extends Pick<Schedules, "list"> {
  /** undefined for an unknown id */
  get(id: string): Promise<Schedule | undefined>;
  /** Newest first; one-time tasks that fired only when `state` asks for them */
  page(query: ScheduleQuery): Promise<{ readonly schedules: readonly Schedule[]; readonly hasMore: boolean }>;
  /** The newest first. @param options.after older than this firing. @returns undefined for an unknown id */
  history(
    id: string,
    options: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<{ readonly firings: readonly Firing[]; readonly hasMore: boolean } | undefined>;
  /** Finds a schedule that is active or paused */
  find(id: string): Promise<FoundSchedule | undefined>;
  /** Tells whether the id belongs to a one-time schedule that has fired */
  isDone(id: string): Promise<boolean>;
  /** Tells whether there is a record, readable or not, of a schedule that is active or paused */
  isThere(id: string): Promise<boolean>;
  /** Returns the id of the token whose rights a schedule or a task that fired has; undefined where no record says it */
  ownerOf(id: string): Promise<string | null | undefined>;
  /** All that are active or paused, by id */
  records(): AsyncGenerator<ScheduleRecord>;
}

/** Tells whether a text may be the id of a schedule. */
export function isScheduleId(id: string): boolean {
  return SCHEDULE_ID.test(id);
}

/** Creates a reader of the schedules in a store. */
export function createScheduleReader(store: Store, view: ViewOptions): ScheduleReader {
  const getFrom = async (collection: string, id: string) =>
    isScheduleId(id) ? await readRecord(store, collection, id, parseScheduleRecord) : undefined;

  async function* records(): AsyncGenerator<ScheduleRecord> {
    for await (const { value } of readRecords(store, SCHEDULES, parseScheduleRecord)) yield value;
  }

  const get: ScheduleReader["get"] = async (id) => {
    const stored = await getFrom(SCHEDULES, id) ?? await getFrom(DONE_SCHEDULES, id);
    return stored === undefined ? undefined : await toSchedule(stored.value, view);
  };

  return {
    records,
    get,

    async find(id) {
      const stored = await getFrom(SCHEDULES, id);
      return stored === undefined ? undefined : { record: stored.value, version: stored.version };
    },

    isDone: async (id) => isScheduleId(id) && await store.get(DONE_SCHEDULES, id) !== undefined,
    isThere: async (id) => isScheduleId(id) && await store.get(SCHEDULES, id) !== undefined,

    async ownerOf(id) {
      const found = await unlessUnreadable(getFrom(SCHEDULES, id)) ??
        await unlessUnreadable(getFrom(DONE_SCHEDULES, id));
      return found?.value.caller.token_id;
    },

    async list({ state }, caller) {
      const all = await Array.fromAsync(records());
      const newest = { order: "created", reverse: true } as const;
      for await (const { value } of readRecords(store, DONE_SCHEDULES, parseScheduleRecord, newest)) all.push(value);
      const asked = state === undefined ? all : all.filter((record) => record.state === state);
      const { reached, hidden } = onlyReached(asked, caller, (record) => record.caller.token_id);
      const open = reached.filter((record) => record.state !== "done");
      const done = reached.filter((record) => record.state === "done").slice(0, DONE_SHOWN);
      return { schedules: await Promise.all([...open, ...done].map((record) => toSchedule(record, view))), hidden };
    },

    async page({ state, limit, after }) {
      const found: ScheduleRecord[] = [];
      const collection = state === "done" ? DONE_SCHEDULES : SCHEDULES;
      const options = { order: "created", reverse: true, after } as const;
      for await (const { value: record } of readRecords(store, collection, parseScheduleRecord, options)) {
        if (state === undefined || record.state === state) found.push(record);
        if (found.length > limit) break;
      }
      const schedules = await Promise.all(found.slice(0, limit).map((record) => toSchedule(record, view)));
      return { schedules, hasMore: found.length > limit };
    },

    async history(id, { limit, after }) {
      if (await get(id) === undefined) return undefined;
      const prefix = firingsOf(id);
      const page = await store.scan(FIRINGS, {
        prefix,
        reverse: true,
        limit: Math.min(limit + 1, 1000),
        ...(after === undefined ? {} : { after: `${prefix}${after}` }),
      });
      const found = readable(store, FIRINGS, page.slice(0, limit), parseFiring);
      const firings = await Promise.all(found.map(({ value }) => toFiring(value, view)));
      return { firings, hasMore: page.length > limit };
    },
  };
}

/** Runs and masking for showing schedules. */
export interface ViewOptions {
  readonly runs: () => RunSupervisor | undefined;
  /** Masks known secrets in a value */
  readonly shown: (value: unknown) => unknown;
}

/** A schedule as it is shown: times as text, secrets masked, with what became of its newest run. */
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
  };
}

/** A firing as it is shown, with what became of its run. */
export async function toFiring(record: FiringRecord, { runs, shown }: ViewOptions): Promise<Firing> {
  const { schedule_id, time, at, trigger, status, run_id, reason, missed_count, missed_until } = record;
  const run = run_id === null ? undefined : await unlessUnreadable(runs()?.get(run_id));
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
  };
}

function iso(at: number): string {
  return new Date(at).toISOString();
}
