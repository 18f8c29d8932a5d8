import { HttpError } from "../../base/errors.ts";
import { isTokenScope } from "../../base/records/caller.ts";
import { isAtWork } from "../../base/records/run.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { SCHEDULE_LIMITS } from "../../tools/schedule/schedules.ts";
import {
  blank,
  canWait,
  CHANGED,
  type Fired,
  type FireOptions,
  isHeld,
  makerScopes,
  type Occasion,
  startFailure,
  toRequest,
} from "./firing_request.ts";
import { type FiringTimes, timesOf } from "./firing_times.ts";
import {
  DONE_SCHEDULES,
  firingKey,
  type FiringRecord,
  FIRINGS,
  firingsOf,
  moveToDone,
  type ScheduleRecord,
  SCHEDULES,
} from "./schedule_record.ts";
import { settleCheck } from "./settle_check.ts";

/** Outcome of a firing. `recorded`: the outcome is on disk. */
export interface StartedFiring {
  readonly firing: FiringRecord;
  readonly recorded: boolean;
}

/** Times that a schedule is read again at once, when another gateway of a cluster fires or changes it at the same moment. */
const MAX_READ = 3;
/** Missed firings of one schedule that are counted. The record of more gives no number */
const MAX_COUNTED = 100;
const PAGE = 20;

/**
 * Fires a schedule that is due: one run for its last time up to now; earlier ones, of a downtime, are recorded as missed.
 *
 * The run, the firing and the schedule's next time are written in one transaction. A time that fired before, as before the clock was
 * turned back, does not fire again.
 * @param isLast a firing that cannot be started now fails, instead of being tried again
 */
export async function fireSchedule(id: string, options: FireOptions & { readonly isLast: boolean }): Promise<Fired> {
  for (let read = 0; read < MAX_READ; read++) {
    const fired = await fireOnce(id, options);
    if (fired !== CHANGED) return fired;
  }
  return { kind: "later" };
}

async function fireOnce(
  id: string,
  { isLast, ...options }: FireOptions & { readonly isLast: boolean },
): Promise<Fired | typeof CHANGED> {
  const { store, clock, log } = options;
  const stored = await SCHEDULES.tryRead(store, id);
  if (stored === undefined) return { kind: "settled", nextAt: undefined };
  const record = stored.value;
  const now = clock.now();
  const settled = await settleCheck(stored, { ...options, isLast });
  if (settled !== undefined) return settled;
  const due = record.next_at;
  if (due === null || due > now) return { kind: "settled", nextAt: lookAt(record, now) };
  const times = timesOf(record);
  const before = await firedBefore(store, { id, due, now });
  const time = before?.time ?? Math.max(due, times.latest(now) ?? due);
  const nextAt = times.next(time);
  const missed = (firing: FiringRecord) => missedBefore(firing, { due, now, times });
  /** Returns the writes of the schedule after the firing, and of the firings that it missed before */
  const writes = (firing: FiringRecord): readonly Write[] => {
    const body = { ...after(firing), next_at: nextAt ?? null, seen_at: now };
    const isOver = nextAt === undefined && (body.checking ?? null) === null;
    return [
      SCHEDULES.putOver(id, stored.version, body),
      ...[missed(firing)].filter((missed) => missed !== undefined).map(firingWrite),
      ...(isOver ? moveToDone({ ...body, state: "done" }) : []),
    ];
  };
  const after = (firing: FiringRecord) => afterFiring(record, firing);
  const started = before === undefined
    ? await startFiring(record, { time, at: now, trigger: "schedule", isLast, writes }, options)
    : { firing: before, recorded: false };
  if (started === CHANGED) return CHANGED;
  if (started === undefined) return { kind: "later" };
  const { firing, recorded } = started;
  if (!recorded && !await store.batch([firingWrite(firing), ...writes(firing)])) return CHANGED;
  const { status, run_id, reason } = firing;
  const due_at = new Date(firing.time).toISOString();
  log.info("Schedule fired", { schedule_id: id, due_at, status, run_id, reason, missed: missed(firing)?.missed_count });
  if (nextAt !== undefined) await forgetOldFirings(store, id);
  return { kind: "settled", nextAt: lookAt({ ...after(firing), next_at: nextAt ?? null }, now) };
}

/** Milliseconds between looks at a precheck that is at work. Each gateway that has the schedule looks, so that none has to stay. */
const LOOK_MS = 5_000;

/** Returns when a schedule is to be looked at next, in milliseconds since the epoch. Undefined: not any more. */
export function lookAt({ checking, next_at }: ScheduleRecord, now: number): number | undefined {
  const due = next_at ?? undefined;
  return (checking ?? null) === null ? due : Math.min(due ?? Infinity, now + LOOK_MS);
}

/** Returns a schedule with its newest firing. @param by who asked for the firing. Default: the schedule itself fired */
export function afterFiring(record: ScheduleRecord, firing: FiringRecord, by?: Occasion["by"]): ScheduleRecord {
  const { check_run_id: runId, time, trigger, status } = firing;
  const fired = { ...record, last: firing, last_run_id: firing.run_id ?? runId ?? record.last_run_id };
  if (status !== "checking" || runId === undefined) return fired;
  const asked = by === undefined ? {} : { by: { token_id: by.tokenId, scopes: by.scopes.filter(isTokenScope) } };
  return { ...fired, checking: { run_id: runId, time, trigger, ...asked } };
}

/**
 * Starts the run of one firing, at most once for its time: the transaction that accepts the run records the firing and the writes of
 * `occasion`.
 *
 * The firing is skipped while the run before is queued, is at work or waits for a person. A run that needs review does not hold it up.
 * @returns undefined: the firing can be tried again later; `CHANGED`: the schedule is to be read again
 */
export async function startFiring(
  record: ScheduleRecord,
  occasion: Occasion,
  { store, runs, log, scopesOf }: Omit<FireOptions, "random" | "clock">,
): Promise<StartedFiring | typeof CHANGED | undefined> {
  const supervisor = runs();
  const { id, precheck } = record;
  const firing = (more: Partial<FiringRecord>): FiringRecord => ({ ...blank(id, occasion), ...more });
  const without = (status: FiringRecord["status"], reason: string) => ({
    firing: firing({ status, reason }),
    recorded: false,
  });
  if (supervisor === undefined) return without("failed", "There is no agent: [provider] kind is none");
  const scopesNow = await makerScopes(record, { scopesOf });
  if (typeof scopesNow === "string") return without("failed", scopesNow);
  const before = record.last_run_id === null ? undefined : await unlessUnreadable(supervisor.get(record.last_run_id));
  if (before !== undefined && isAtWork(before.status)) {
    return without("skipped", `The run of the firing before is still at work: ${before.id} (${before.status})`);
  }
  // The precheck of the firing before has ended, and nothing was made of its output yet
  if ((record.checking ?? null) !== null) {
    return without("skipped", "The precheck of the firing before is still at work");
  }
  const started = (runId: string) =>
    (precheck ?? null) === null
      ? firing({ status: "started", run_id: runId })
      : firing({ status: "checking", check_run_id: runId });
  const claim = (runId: string): readonly Write[] => {
    const body = started(runId);
    return [FIRINGS.insert(firingKey(body), body), ...occasion.writes(body)];
  };
  try {
    const run = await supervisor.start({ ...toRequest(record, occasion, { scopesNow }), claim });
    return { firing: started(run.id), recorded: true };
  } catch (error) {
    const isChanged = error instanceof HttpError && error.code === "conflict";
    if (isChanged && occasion.trigger === "manual") return CHANGED;
    // The time has a firing already: from before the clock was turned back, of another gateway, or from this start, whose answer was lost
    const stored = await store.get(FIRINGS.name, firingKey(firing({})));
    if (stored !== undefined) {
      const found = FIRINGS.parsed(store, stored);
      return found === undefined ? without("failed", FIRED_BEFORE) : { firing: found.value, recorded: false };
    }
    if (isChanged) return CHANGED;
    if (isHeld(error) && occasion.trigger === "manual") throw error;
    if (isHeld(error)) return undefined;
    if (canWait(error) && !occasion.isLast) {
      log.warn("A schedule cannot fire now, and will be tried again", { schedule_id: id, error });
      return undefined;
    }
    log.error("A schedule could not fire", { schedule_id: id, error });
    return without("failed", startFailure(error));
  }
}

/** Keeps the newest firings of a schedule. */
export async function forgetOldFirings(store: Store, id: string): Promise<void> {
  const prefix = firingsOf(id);
  const over = await store.count(FIRINGS.name, prefix) - SCHEDULE_LIMITS.history;
  if (over <= 0) return;
  const oldest = await store.scan(FIRINGS.name, { prefix, limit: over });
  await store.batch(oldest.map(({ key }) => FIRINGS.remove(key)));
}

/** Keeps the newest done schedules, each with its history. */
export async function forgetOldDone(store: Store): Promise<void> {
  const over = await store.count(DONE_SCHEDULES.name) - SCHEDULE_LIMITS.done;
  if (over <= 0) return;
  for (const { key } of await store.scan(DONE_SCHEDULES.name, { order: "created", limit: Math.min(over, 1000) })) {
    await store.batch([DONE_SCHEDULES.remove(key), ...await firingDeletes(store, key)]);
  }
}

/** Returns the writes that forget every firing of a schedule. */
export async function firingDeletes(store: Store, id: string): Promise<readonly Write[]> {
  const all = await store.scan(FIRINGS.name, { prefix: firingsOf(id), limit: 1000 });
  return all.map(({ key }) => FIRINGS.remove(key));
}

/** Returns the newest firing from `due` to `now` that the schedule began by itself, and did not miss. */
async function firedBefore(
  store: Store,
  { id, due, now }: { readonly id: string; readonly due: number; readonly now: number },
): Promise<FiringRecord | undefined> {
  const prefix = firingsOf(id);
  for (let after = `${firingKey({ schedule_id: id, time: now, trigger: "schedule" })}~`;;) {
    const page = await store.scan(FIRINGS.name, { prefix, reverse: true, after, limit: PAGE });
    for (const { value: firing } of FIRINGS.readable(store, page)) {
      if (firing.time < due) return undefined;
      // A missed firing stands for several, up to one that fired or is to fire
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

function firingWrite(firing: FiringRecord): Write {
  return FIRINGS.put(firingKey(firing), firing);
}

const FIRED_BEFORE = "It had fired at this time before, and the record of what came of it was damaged";
