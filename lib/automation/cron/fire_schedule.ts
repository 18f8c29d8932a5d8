import type { Clock } from "../../base/clock.ts";
import { HttpError, ProviderError } from "../../base/errors.ts";
import { type Caller, commonScopes, type Scope } from "../../base/records/caller.ts";
import { isAtWork } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { RunRequest, RunSupervisor } from "../../runs/run_request.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { SCHEDULE_LIMITS } from "../../tools/schedule/schedules.ts";
import { type FiringTimes, firingTimes } from "./firing_times.ts";
import {
  DONE_SCHEDULES,
  firingKey,
  type FiringRecord,
  FIRINGS,
  firingsOf,
  type ScheduleRecord,
  SCHEDULES,
} from "./schedule_record.ts";

/** Clock, store and runs for firing a schedule. */
export interface FireOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  /** undefined: there is no agent, or not yet */
  readonly runs: () => RunSupervisor | undefined;
  /** Scopes that a token has now. undefined: the token does not count any more */
  readonly scopesOf: (tokenId: string | null) => readonly Scope[] | undefined | Promise<readonly Scope[] | undefined>;
}

/** `settled`: dealt with, and due again at `nextAt` (undefined: not any more). `later`: to be tried again. */
export type Fired = { readonly kind: "settled"; readonly nextAt: number | undefined } | { readonly kind: "later" };

/** Time of a firing and the caller who asked for it. */
export interface Occasion {
  /** Due time, in milliseconds since the epoch */
  readonly time: number;
  /** Now, in milliseconds since the epoch */
  readonly at: number;
  readonly trigger: "schedule" | "manual";
  /** Caller that asked for the firing. Undefined: the schedule itself fires */
  readonly by?: Caller | undefined;
  /** A firing that cannot start now fails, instead of being tried again */
  readonly isLast: boolean;
  /** Returns the writes that belong into the same transaction as the firing */
  readonly writes: (firing: FiringRecord) => readonly Write[];
}

/** Says that others changed the schedule while it fired: it is to be read again. */
export const CHANGED = "changed";

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
  const stored = await unlessUnreadable(SCHEDULES.read(store, id));
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
  /** Returns the writes of the schedule after the firing, and of the firings that it missed before */
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
      SCHEDULES.putOver(id, stored.version, body),
      ...[missed(firing)].filter((missed) => missed !== undefined).map(firingWrite),
      ...(nextAt === undefined ? moveToDone(body) : []),
    ];
  };
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
  return { kind: "settled", nextAt };
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
  { store, runs, log, scopesOf }: FireOptions,
): Promise<StartedFiring | typeof CHANGED | undefined> {
  const supervisor = runs();
  const { caller, id } = record;
  const firing = (more: Partial<FiringRecord>): FiringRecord => ({ ...blank(id, occasion), ...more });
  const without = (status: FiringRecord["status"], reason: string) => ({
    firing: firing({ status, reason }),
    recorded: false,
  });
  if (supervisor === undefined) return without("failed", "There is no agent: [provider] kind is none");
  const scopesNow = await scopesOf(caller.token_id);
  if (scopesNow === undefined) {
    const reason = "The token that made the schedule was revoked or has expired: cron_update makes it somebody else's";
    return without("failed", reason);
  }
  const before = record.last_run_id === null ? undefined : await unlessUnreadable(supervisor.get(record.last_run_id));
  if (before !== undefined && isAtWork(before.status)) {
    return without("skipped", `The run of the firing before is still at work: ${before.id} (${before.status})`);
  }
  const started = (runId: string) => firing({ status: "started", run_id: runId });
  const claim = (runId: string): readonly Write[] => {
    const body = started(runId);
    return [FIRINGS.insert(firingKey(body), body), ...occasion.writes(body)];
  };
  try {
    const run = await supervisor.start({ ...toRequest(record, occasion, scopesNow), claim });
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
    return without("failed", reasonOf(error));
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

function moveToDone(record: ScheduleRecord): readonly Write[] {
  const { id } = record;
  return [SCHEDULES.remove(id), DONE_SCHEDULES.remove(id), DONE_SCHEDULES.insert(id, record)];
}

const FIRED_BEFORE = "It had fired at this time before, and the record of what came of it was damaged";

function blank(scheduleId: string, { time, at, trigger }: Occasion): FiringRecord {
  return {
    v: 1,
    schedule_id: scheduleId,
    time,
    at,
    trigger,
    status: "failed",
    run_id: null,
    reason: null,
    missed_count: null,
    missed_until: null,
  };
}

function toRequest(
  { id, schedule, prompt, call, caller, tools, limits, taint, links, workspace }: ScheduleRecord,
  occasion: Occasion,
  scopesNow: readonly Scope[],
): RunRequest {
  const { by, time } = occasion;
  const via = caller.via ?? "cron";
  const scopes = commonScopes(caller.scopes, scopesNow);
  const when = new Date(time).toISOString();
  return {
    kind: "cron",
    by: {
      caller: by === undefined
        ? { via, tokenId: caller.token_id, scopes }
        // Whoever sets off the work of another has no more rights for it than either of them
        : { via, tokenId: by.tokenId, scopes: commonScopes(by.scopes, scopes) },
      workspace,
      taint,
      links,
    },
    messages: [{ role: "user", content: prompt ?? "" }],
    durable: true,
    agentTools: "configured",
    agent: {
      tools: tools ?? undefined,
      limits: limits ?? undefined,
      instructions: call === null ? toldBy(id, schedule, when) : undefined,
    },
    call: call === null ? undefined : { tool: call.tool, input: JSON.stringify(call.input) },
  };
}

function toldBy(id: string, schedule: string, when: string): string {
  return `You were started by the schedule "${id}" (${schedule}), due at ${when}. Nobody reads along: do what the message says and ` +
    "report what came of it, without asking back.";
}

/** Tells whether the gateway is shutting down, or all work is halted: the schedule fires after its next start, or the resume. */
function isHeld(error: unknown): boolean {
  return error instanceof HttpError && (error.code === "shutting_down" || error.code === "halted");
}

const WAITABLE: readonly string[] = ["overloaded", "storage_unavailable", "workspace_unavailable"];

/** Tells whether another try may succeed: the queue is full, or the store could not be written. */
function canWait(error: unknown): boolean {
  if (error instanceof HttpError) return WAITABLE.includes(error.code);
  return !(error instanceof ProviderError);
}

function reasonOf(error: unknown): string {
  return error instanceof HttpError || error instanceof ProviderError
    ? error.message
    : "Cannot start the run: an internal error, which the gateway's log names";
}
