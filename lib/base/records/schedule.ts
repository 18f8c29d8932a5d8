import * as v from "valibot";
import { runStatusSchema } from "./run.ts";

const time = v.string();

/** `active` fires; `paused` does not, and is not caught up; `done`: it had one time and has fired. */
export const SCHEDULE_STATES = ["active", "paused", "done"] as const;

/**
 * Outcome of a firing: its run was `started`; it was `skipped`, since the run before was still at work; `missed`, since no gateway
 * ran at its time; `failed`, since its precheck failed or its run could not be started; `checking` while its precheck is at work;
 * `nothing_new`, since that gave nothing to wake the model for.
 */
export const FIRING_STATUSES = ["started", "skipped", "missed", "failed", "checking", "nothing_new"] as const;

/** Outcome of a precheck: its output woke the model, or was empty or the same as before, or the precheck failed. */
export const CHECK_OUTCOMES = ["woke", "nothing_new", "failed"] as const;

/** Firing of a schedule, as `/v1/schedules/:id/history` shows it. Times are ISO 8601. */
export const firingSchema = v.object({
  /** Unique within the schedule; later ones are greater */
  id: v.string(),
  object: v.literal("schedule_firing"),
  schedule_id: v.string(),
  /** When it was due */
  time,
  /** When it was dealt with: later than `time` after a downtime */
  at: time,
  /** `manual`: a person asked for it */
  trigger: v.picklist(["schedule", "manual"]),
  status: v.picklist(FIRING_STATUSES),
  run_id: v.nullable(v.string()),
  /** Why it was skipped, missed or failed */
  reason: v.nullable(v.string()),
  /** Number of missed firings in a row that this record stands for, and the time of the last. Null when there are more than were counted. */
  missed_count: v.nullable(v.number()),
  missed_until: v.nullable(time),
  /** Status of the run now. Null when the run is not kept any more. */
  run_status: v.nullable(runStatusSchema),
  run_error: v.nullable(v.object({ code: v.string(), message: v.string() })),
  /** Run of its precheck, of which the status is while there is no `run_id`. Absent: it has none */
  check_run_id: v.optional(v.string()),
});
/** Firing of a schedule. */
export type Firing = v.InferOutput<typeof firingSchema>;

/** A schedule as tools, `/v1/schedules` and `postern schedule` show it. Times are ISO 8601. */
export const scheduleSchema = v.object({
  id: v.string(),
  object: v.literal("schedule"),
  state: v.picklist(SCHEDULE_STATES),
  /** `cron`: by the calendar; `interval`: evenly spaced, counted from when it was made; `once`: one time */
  kind: v.picklist(["cron", "interval", "once"]),
  /** As it was given */
  schedule: v.string(),
  /** The five fields it means; null unless `kind` is `cron` */
  cron: v.nullable(v.string()),
  /** IANA name, or an offset */
  timezone: v.string(),
  /** Message for the agent at each firing. Null when the schedule calls a tool. */
  prompt: v.nullable(v.string()),
  /** The tool that is called, and its input; known secrets in it are masked */
  tool: v.nullable(v.string()),
  input: v.nullable(v.record(v.string(), v.unknown())),
  /** null while it does not fire */
  next_at: v.nullable(time),
  created_at: time,
  updated_at: time,
  /** Id of the token whose rights its runs have; null without one */
  created_by: v.nullable(v.string()),
  last: v.nullable(firingSchema),
  /** Origins of outside content that its work was made from. Absent: none */
  taint: v.optional(v.array(v.string())),
  /** Most seconds that a firing comes after its time, the same ones for the same time. Absent: none */
  jitter_secs: v.optional(v.number()),
  /** Call without the model at each firing: only output that is not empty wakes the model. Absent: none */
  precheck: v.optional(v.object({
    tool: v.string(),
    input: v.record(v.string(), v.unknown()),
    /** Output that is the same as that of the check before wakes nobody */
    only_when_changed: v.boolean(),
  })),
  /** Newest precheck that has ended; `since`: the newest output that woke the model, else the first check. Absent: none has ended */
  checked: v.optional(v.object({
    at: time,
    outcome: v.picklist(CHECK_OUTCOMES),
    since: time,
    reason: v.nullable(v.string()),
  })),
});
/** Schedule as tools, `/v1/schedules` and `postern schedule` show it. */
export type Schedule = v.InferOutput<typeof scheduleSchema>;
