import type { Clock } from "../../base/clock.ts";
import { readable, readRecord, unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { SCHEDULE_LIMITS } from "../../tools/schedule/schedules.ts";
import { type FiringTimes, firingTimes } from "./firing_times.ts";
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
import { startRun, type StartRunOptions } from "./start_run.ts";

/** Clock, store and runs for firing a schedule. */
export interface FireOptions extends StartRunOptions {
  readonly clock: Clock;
}

/** `settled`: dealt with, and due again at `nextAt` (undefined: not any more). `later`: to be tried again. */
export type Fired = { readonly kind: "settled"; readonly nextAt: number | undefined } | { readonly kind: "later" };

/** Missed firings of one schedule that are counted; of more it is only said that there were more */
const MAX_COUNTED = 100;
const PAGE = 20;

/**
 * Fires a schedule that is due: one run for its last time up to now; earlier ones, of a downtime, are recorded as missed.
 *
 * The run, the firing and the schedule's next time are written in one transaction. A time that fired before, as before the clock was
 * turned back, does not fire again.
 * @param isLast a firing that cannot be started now fails, instead of being tried again
 */
export async function fireSchedule(
  id: string,
  { isLast, ...options }: FireOptions & { readonly isLast: boolean },
): Promise<Fired> {
  const { store, clock, log } = options;
  const stored = await unlessUnreadable(readRecord(store, SCHEDULES, id, parseScheduleRecord));
  if (stored === undefined) return { kind: "settled", nextAt: undefined };
  const record = stored.value;
  const now = clock.now();
  const due = record.next_at;
  if (due === null || due > now) return { kind: "settled", nextAt: due ?? undefined };
  const times = firingTimes(record.timing, record.timezone);
  const before = await firedBefore(store, { id, due, now });
  const time = before?.time ?? Math.max(due, times.latest(now) ?? due);
  const nextAt = times.next(time);
  const missed = (firing: FiringRecord) => missedBefore(firing, { due, now, times });
  /** The schedule as it stands after the firing, and what it missed before */
  const writes = (firing: FiringRecord): readonly Write[] => {
    const body: ScheduleRecord = {
      ...record,
      state: nextAt === undefined ? "done" : record.state,
      next_at: nextAt ?? null,
      seen_at: now,
      last: firing,
      last_run_id: firing.run_id ?? record.last_run_id,
    };
    return [
      { op: "putIf", collection: SCHEDULES, key: id, version: stored.version, body },
      ...[missed(firing)].filter((missed) => missed !== undefined).map(noted),
      ...(nextAt === undefined ? moveAway(body) : []),
    ];
  };
  const started = before === undefined
    ? await startRun(record, { time, at: now, trigger: "schedule", isLast, writes }, options)
    : { firing: before, recorded: false };
  if (started === undefined) return { kind: "later" };
  const { firing, recorded } = started;
  // Where another writer changed the schedule meanwhile, it is looked at again
  if (!recorded && !await store.batch([noted(firing), ...writes(firing)])) return { kind: "later" };
  const { status, run_id, reason } = firing;
  const due_at = new Date(firing.time).toISOString();
  log.info("Schedule fired", { schedule_id: id, due_at, status, run_id, reason, missed: missed(firing)?.missed_count });
  if (nextAt !== undefined) await forgetOldFirings(store, id);
  return { kind: "settled", nextAt };
}

/** The newest firing of the schedule itself between two times. */
async function firedBefore(
  store: Store,
  { id, due, now }: { readonly id: string; readonly due: number; readonly now: number },
): Promise<FiringRecord | undefined> {
  const prefix = firingsOf(id);
  for (let after = `${firingKey({ schedule_id: id, time: now, trigger: "schedule" })}~`;;) {
    const page = await store.scan(FIRINGS, { prefix, reverse: true, after, limit: PAGE });
    for (const { value: firing } of readable(store, FIRINGS, page, parseFiring)) {
      if (firing.time < due) return undefined;
      // A missed one stands at the time of the first: its last one fired, or is to fire
      if (firing.trigger === "schedule" && firing.status !== "missed") return firing;
    }
    after = page.at(-1)?.key ?? after;
    if (page.length < PAGE) return undefined;
  }
}

function missedBefore(
  firing: FiringRecord,
  { due, now, times }: { readonly due: number; readonly now: number; readonly times: FiringTimes },
): FiringRecord | undefined {
  if (firing.time <= due) return undefined;
  let count = 1;
  let until = due;
  for (let next = times.next(due); next !== undefined && next < firing.time; next = times.next(next)) {
    until = next;
    if (++count > MAX_COUNTED) break;
  }
  const whole = count <= MAX_COUNTED;
  return {
    ...firing,
    time: due,
    at: now,
    status: "missed",
    run_id: null,
    reason: `The gateway was not at work then; made up for by the firing of ${new Date(firing.time).toISOString()}`,
    missed_count: whole ? count : null,
    missed_until: whole ? until : (times.latest(firing.time - 1) ?? until),
  };
}

function noted(firing: FiringRecord): Write {
  return { op: "put", collection: FIRINGS, key: firingKey(firing), body: firing };
}

function moveAway(record: ScheduleRecord): readonly Write[] {
  const { id: key } = record;
  return [
    { op: "delete", collection: SCHEDULES, key },
    { op: "delete", collection: DONE_SCHEDULES, key },
    { op: "insert", collection: DONE_SCHEDULES, key, body: record },
  ];
}

/** Keeps the newest firings of a schedule. */
export async function forgetOldFirings(store: Store, id: string): Promise<void> {
  const prefix = firingsOf(id);
  const over = await store.count(FIRINGS, prefix) - SCHEDULE_LIMITS.history;
  if (over <= 0) return;
  const oldest = await store.scan(FIRINGS, { prefix, limit: over });
  await store.batch(oldest.map(({ key }) => ({ op: "delete", collection: FIRINGS, key })));
}

/** Keeps the newest one-time tasks that fired, each with its history. */
export async function forgetOldDone(store: Store): Promise<void> {
  const over = await store.count(DONE_SCHEDULES) - SCHEDULE_LIMITS.done;
  if (over <= 0) return;
  for (const { key } of await store.scan(DONE_SCHEDULES, { order: "created", limit: Math.min(over, 1000) })) {
    await store.batch([{ op: "delete", collection: DONE_SCHEDULES, key }, ...await firingDeletes(store, key)]);
  }
}

/** The writes that forget every firing of a schedule. */
export async function firingDeletes(store: Store, id: string): Promise<readonly Write[]> {
  const all = await store.scan(FIRINGS, { prefix: firingsOf(id), limit: 1000 });
  return all.map(({ key }) => ({ op: "delete", collection: FIRINGS, key }));
}
