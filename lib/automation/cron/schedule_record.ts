import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { SCOPES } from "../../base/records/caller.ts";
import { CHECK_OUTCOMES, FIRING_STATUSES, SCHEDULE_STATES } from "../../base/records/schedule.ts";
import { Collection, parseMark } from "../../storage/read_records.ts";
import type { Write } from "../../storage/store.ts";

/**
 * Records of schedules in the store. Every body carries its version `v`. This file alone parses them, and brings an older version up
 * to the newest. Times are milliseconds since the epoch.
 */

/** Collection with one record, whose version counts the changes of schedules in a cluster. */
export const SCHEDULE_CHANGES = new Collection("schedule_changes", parseMark, {
  replaced: "its version is what it says",
});

const timingSchema = v.variant("kind", [
  v.object({ kind: v.literal("cron"), expression: v.string() }),
  /** Each `every_ms` after `from` */
  v.object({ kind: v.literal("interval"), every_ms: v.number(), from: v.number() }),
  v.object({ kind: v.literal("once"), at: v.number() }),
]);
/** Times of a schedule as the store keeps them. */
export type Timing = v.InferOutput<typeof timingSchema>;

const firingSchema = storedObject({
  v: v.literal(1),
  schedule_id: v.string(),
  time: v.number(),
  at: v.number(),
  trigger: v.picklist(["schedule", "manual"]),
  status: v.picklist(FIRING_STATUSES),
  run_id: v.nullable(v.string()),
  reason: v.nullable(v.string()),
  missed_count: v.nullable(v.number()),
  missed_until: v.nullable(v.number()),
  /** Run of its precheck. Absent: it has none */
  check_run_id: v.optional(v.string()),
});
/** A firing as the store keeps it. */
export type FiringRecord = v.InferOutput<typeof firingSchema>;

const scheduleSchema = storedObject({
  v: v.literal(1),
  id: v.string(),
  state: v.picklist(SCHEDULE_STATES),
  schedule: v.string(),
  timing: timingSchema,
  timezone: v.string(),
  prompt: v.nullable(v.string()),
  call: v.nullable(storedObject({ tool: v.string(), input: v.record(v.string(), v.unknown()) })),
  caller: storedObject({
    token_id: v.nullable(v.string()),
    scopes: v.array(v.picklist(SCOPES)),
    /** Present when a sub-agent made the schedule: its runs are the work of a sub-agent too */
    via: v.optional(v.literal("subagent")),
  }),
  /** Patterns of the tools its maker had; null: all that are configured */
  tools: v.nullable(v.array(v.string())),
  /** Bounds its maker had; null: as configured */
  limits: v.nullable(
    storedObject({ maxIterations: v.number(), maxToolCalls: v.number(), tokensPerRun: v.number() }),
  ),
  /** null unless active */
  next_at: v.nullable(v.number()),
  created_at: v.number(),
  updated_at: v.number(),
  /** Time of the newest write. A clock that shows an earlier time was turned back since */
  seen_at: v.number(),
  last: v.nullable(firingSchema),
  /** Newest run of the schedule, so that the next run does not start beside it */
  last_run_id: v.nullable(v.string()),
  /** Origins of outside content that its work was made from. Absent: none */
  taint: v.optional(v.array(v.string())),
  /** Addresses in its work that its maker had read, see `ReadLinks.sharedIn`. Absent: none, or no outside content reached the work */
  links: v.optional(v.array(v.string())),
  /** Workspace of a cluster whose gateways do its runs, where their tools need one. Absent: whichever gateway fires has its own */
  workspace: v.optional(v.string()),
  /** Most seconds that a firing comes after its time. Absent: 0 */
  jitter_secs: v.optional(v.number()),
  /** Call whose output decides whether the model is asked. Absent or null: it always is */
  precheck: v.optional(v.nullable(storedObject({
    tool: v.string(),
    input: v.record(v.string(), v.unknown()),
    only_when_changed: v.boolean(),
  }))),
  /** Firing whose precheck is at work, or has ended and is not yet dealt with. Absent or null: none */
  checking: v.optional(v.nullable(storedObject({
    run_id: v.string(),
    time: v.number(),
    trigger: v.picklist(["schedule", "manual"]),
    /** True where the precheck was changed since. Absent: it was not */
    is_old: v.optional(v.boolean()),
    /** Caller that asked for a firing by hand. Absent: the schedule itself fired */
    by: v.optional(storedObject({ token_id: v.nullable(v.string()), scopes: v.array(v.picklist(SCOPES)) })),
  }))),
  /** Outcome of the newest precheck that has ended. Absent or null: none has */
  checked: v.optional(v.nullable(storedObject({
    at: v.number(),
    outcome: v.picklist(CHECK_OUTCOMES),
    /** Time of the newest output that woke the model, else of the first check */
    since: v.number(),
    reason: v.nullable(v.string()),
    /** SHA-256 of the newest output that was dealt with. Null: there was none yet */
    digest: v.nullable(v.string()),
    /** Run that the output woke. Absent or null: it woke none */
    run_id: v.optional(v.nullable(v.string())),
  }))),
});
/** A schedule as the store keeps it. */
export type ScheduleRecord = v.InferOutput<typeof scheduleSchema>;

/** Collection of the active and paused schedules, by schedule id. */
export const SCHEDULES = new Collection("schedules", scheduleSchema);
/** Collection of the done schedules, which had one time and have fired, by schedule id. */
export const DONE_SCHEDULES = new Collection("done_schedules", scheduleSchema);
/** Collection of the firings, by `<schedule id>/<time>`: at most one for each time. */
export const FIRINGS = new Collection("schedule_firings", firingSchema, { replaced: "never changed" });

/** Returns the key of a firing, which no other firing has. Keys are in the order of time. */
export function firingKey(
  { schedule_id, time, trigger }: Pick<FiringRecord, "schedule_id" | "time" | "trigger">,
): string {
  return `${firingsOf(schedule_id)}${new Date(time).toISOString()}${trigger === "manual" ? "/manual" : ""}`;
}

/** Returns the writes that move a schedule to the done ones. */
export function moveToDone(record: ScheduleRecord): readonly Write[] {
  const { id } = record;
  return [SCHEDULES.remove(id), DONE_SCHEDULES.remove(id), DONE_SCHEDULES.insert(id, record)];
}

/** Returns the beginning of the keys of a schedule's firings. */
export function firingsOf(scheduleId: string): string {
  return `${scheduleId}/`;
}
