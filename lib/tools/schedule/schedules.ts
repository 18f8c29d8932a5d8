import * as v from "valibot";
import type { Caller } from "../../base/records/caller.ts";
import type { Schedule } from "../../base/records/schedule.ts";
import { zonedTime } from "../../base/zoned_time.ts";
import type { Config } from "../../config/config.ts";
import { type Inherited, type ToolContext, type ToolResult, toolsPassedOn } from "../runtime/tool.ts";

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

/** The id of a schedule, as the schedule tools take it. */
export const idField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("Id of the schedule: letters, digits, . _ and -"),
);

/** When it fires. */
export const scheduleField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(SCHEDULE_LIMITS.textCharacters),
  v.description(
    "When: five cron fields (30 9 * * 1-5), or words: every 15 minutes, hourly, every day at 9:00, weekdays at 9:00, mondays at 18:30",
  ),
);

export const timezoneField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("IANA time zone of the schedule, as Europe/Zurich. Default: the configured one"),
);

/** What it does, as optional fields: either a prompt, or a tool with its input. */
export const workFields = {
  prompt: v.optional(
    v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(SCHEDULE_LIMITS.promptCharacters),
      v.description("What the agent is told to do when it fires; it sees nothing of this conversation"),
    ),
  ),
  tool: v.optional(
    v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(64),
      v.description("In place of a prompt: name of the one tool to call"),
    ),
  ),
  input: v.optional(v.pipe(v.looseObject({}), v.description("The tool's input, by its schema. Default {}"))),
} as const;

/** What all schedule tools are turned on by. */
export const CRON_ENABLED = {
  enabled: (config: Config): boolean => config.cron.enabled,
  enabledBy: "[cron] enabled = true",
} as const;

/** Who makes or changes a schedule by a tool: its runs never have more than this caller. */
export function scheduleMaker(context: Pick<ToolContext, "caller" | "allowed" | "inherited">): ScheduleMaker {
  return { caller: context.caller, tools: toolsPassedOn(context), limits: context.inherited?.limits };
}

/** A schedule that was made or changed, for the model. @param what as `Added` */
export function scheduleResult(what: string, schedule: Schedule): ToolResult {
  return { output: `${what} ${describeSchedule(schedule)}`, isError: false, data: { schedule } };
}

/** One line: id, when, what it does, what became of it last. */
export function describeSchedule(schedule: Schedule): string {
  const { id, cron, timezone, state, next_at, prompt, tool, last } = schedule;
  const when = `${schedule.schedule}${cron === null || cron === schedule.schedule ? "" : ` = ${cron}`}, ${timezone}`;
  const next = next_at === null ? state : `next at ${zonedTime(Date.parse(next_at), timezone)}`;
  const does = tool === null ? `prompt ${JSON.stringify(cut(prompt ?? ""))}` : `calls ${tool}`;
  const outcome = last === null
    ? ""
    : `; last ${last.status} at ${zonedTime(Date.parse(last.at), timezone)}${
      last.run_id === null ? "" : ` (${last.run_id})`
    }`;
  return `"${id}" (${when}): ${does}; ${next}${outcome}`;
}

const MAX_SHOWN = 80;

function cut(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text;
}
