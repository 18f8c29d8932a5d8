import type { Caller } from "../../base/records/caller.ts";
import type { Schedule } from "../../base/records/schedule.ts";
import type { Inherited } from "../runtime/tool.ts";

/** Bounds of schedules. */
export const SCHEDULE_LIMITS = {
  textCharacters: 200,
  promptCharacters: 32_768,
  /** Of its JSON */
  inputCharacters: 65_536,
  /** Firings kept of one schedule: over this the oldest make room */
  history: 100,
  /** One-time tasks kept after they fired, with their history: over this the oldest make room */
  done: 200,
} as const;

/** What a schedule does when it fires: tells the agent something, or calls one tool. */
export interface ScheduledWork {
  readonly prompt?: string | undefined;
  readonly tool?: string | undefined;
  /** The tool's input. Default `{}` */
  readonly input?: Readonly<Record<string, unknown>> | undefined;
}

/** What makes a schedule. */
export interface NewSchedule extends ScheduledWork {
  /** Letters, digits, `.`, `_`, `-`, 1-64 characters. Default: one that is free */
  readonly id?: string | undefined;
  /** Five cron fields, a plain phrase, `in <duration>` or `at <time>` */
  readonly schedule: string;
  /** IANA name. Default: that of `[cron] timezone` */
  readonly timezone?: string | undefined;
}

/** What is to change; the rest stays. */
export interface ScheduleChanges extends ScheduledWork {
  readonly schedule?: string | undefined;
  readonly timezone?: string | undefined;
}

/** Who makes or changes a schedule: its runs never have more rights than this. */
export interface ScheduleMaker {
  readonly caller: Caller;
  /** Patterns of the tools it has; undefined: all that are configured */
  readonly tools: readonly string[] | undefined;
  /** Bounds of its own run; undefined: it is in none */
  readonly limits?: Inherited["limits"] | undefined;
}

/**
 * The schedules, for the tools (docs/design/automation.md "Schedules"). What they fire is decided when it fires.
 *
 * Every method throws ToolError: `invalid_schedule` and `invalid_input` for what cannot be used, saying what can; `not_found` for an
 * unknown id; `conflict` for one that exists, or a change that does not fit the state; `too_many_schedules` over `[cron] max_tasks`.
 */
export interface Schedules {
  add(task: NewSchedule, by: ScheduleMaker): Promise<Schedule>;
  /** Whoever changes a schedule becomes its maker, with all that its runs may do */
  update(id: string, changes: ScheduleChanges, by: ScheduleMaker): Promise<Schedule>;
  /** Forgets it, with its history. Runs that it started go on */
  remove(id: string): Promise<void>;
  pause(id: string): Promise<Schedule>;
  /** What it would have fired meanwhile is not caught up */
  resume(id: string): Promise<Schedule>;
  /** All that are active or paused, by id, then the newest one-time tasks that are done */
  list(): Promise<readonly Schedule[]>;
}
