import * as v from "valibot";
import type { Caller } from "../../base/records/caller.ts";
import type { Schedule } from "../../base/records/schedule.ts";
import { type ReadLinks, type Taint, UNTAINTED } from "../../base/taint.ts";
import { zonedTime } from "../../base/zoned_time.ts";
import type { Config } from "../../config/config.ts";
import type { ScopedCaller } from "../runtime/owned_things.ts";
import { type CallContext, type Inherited, type ToolResult, toolsPassedOn } from "../runtime/tool_call.ts";

/** Bounds of schedules. */
export const SCHEDULE_LIMITS = {
  /** Characters of the times, such as `every day at 9:00` */
  textCharacters: 200,
  promptCharacters: 32_768,
  /** Characters of a tool's input as JSON */
  inputCharacters: 65_536,
  /** Most seconds that a firing comes after its time */
  jitterSecs: 3600,
  /** Firings that are kept of one schedule: over this, the oldest make room */
  history: 100,
  /** Schedules with one time that are kept after they fired, with their history: over this, the oldest make room */
  done: 200,
} as const;

/** Work of a schedule when it fires: a prompt for the agent, or one tool call. */
export interface ScheduledWork {
  readonly prompt?: string | undefined;
  readonly tool?: string | undefined;
  /** The tool's input. Default `{}` */
  readonly input?: Readonly<Record<string, unknown>> | undefined;
}

/** Call without the model at each firing of a prompt, whose output decides whether the model is asked. */
export const precheckSchema = v.strictObject({
  tool: v.string(),
  /** The tool's input. Default `{}` */
  input: v.optional(v.record(v.string(), v.unknown())),
  /** Output that is the same as that of the check before wakes nobody. Default false */
  only_when_changed: v.optional(v.boolean()),
});

/** Order for a schedule. */
export interface NewSchedule extends ScheduledWork {
  /** Letters, digits, `.`, `_`, `-`, 1-64 characters. Default: an id that is free */
  readonly id?: string | undefined;
  /** Five cron fields, a plain phrase, `in <duration>` or `at <time>` */
  readonly schedule: string;
  /** IANA name. Default: `[cron] timezone` */
  readonly timezone?: string | undefined;
  /** Most seconds that a firing comes after its time. Default 0 */
  readonly jitter_secs?: number | undefined;
  /** A precheck, see `precheckSchema`. Default or `{}`: the model is asked at each firing */
  readonly precheck?: Readonly<Record<string, unknown>> | undefined;
}

/** Changes of a schedule. Fields that are not given stay as they are. */
export interface ScheduleChanges extends Omit<NewSchedule, "id" | "schedule"> {
  readonly schedule?: string | undefined;
}

/** The caller who makes or changes a schedule: the schedule's runs never have more rights. */
export interface ScheduleMaker {
  readonly caller: Caller;
  /** Patterns of the caller's tools. undefined: all tools that are configured */
  readonly tools: readonly string[] | undefined;
  /** Limits of the caller's own run. undefined for a caller without a run */
  readonly limits?: Inherited["limits"] | undefined;
  /** Outside content that the caller's run has read */
  readonly taint: Taint;
  /** Addresses that the caller's run has read. Default: none */
  readonly links?: ReadLinks | undefined;
}

/**
 * The schedules, for the tools (docs/design/automation.md "Schedules"). The policy decides about a schedule's work when it fires.
 *
 * Every method throws ToolError: `invalid_schedule` and `invalid_input` for values that cannot be used, with values that can;
 * `not_found` for an unknown id; `insufficient_scope` for a schedule of another token, where the caller lacks `runs`; `conflict` for an
 * id that exists, or a change that does not fit the state; `too_many_schedules` over `[cron] max_tasks`.
 */
export interface Schedules {
  add(order: NewSchedule, by: ScheduleMaker): Promise<Schedule>;
  /** Changes a schedule. The caller becomes its maker: its runs have the rights of the caller from then on */
  update(id: string, changes: ScheduleChanges, by: ScheduleMaker): Promise<Schedule>;
  /** Removes a schedule with its history. Runs that it started go on */
  remove(id: string, caller: ScopedCaller): Promise<void>;
  pause(id: string, caller: ScopedCaller): Promise<Schedule>;
  /** Resumes a paused schedule. Firings that it missed while it was paused are not made up for */
  resume(id: string, caller: ScopedCaller): Promise<Schedule>;
  /**
   * Returns the schedules that the caller may reach: the active and paused ones, by id, then the newest ones with one time that have
   * fired. `hidden` counts those of others.
   * @param filter.state default: every state
   */
  list(
    filter: { readonly state?: Schedule["state"] | undefined },
    caller: ScopedCaller,
  ): Promise<{ readonly schedules: readonly Schedule[]; readonly hidden: number }>;
}

/** Field for the id of a schedule. */
export const idField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("Letters, digits, . _ and -"),
);

/** Field for the times of a schedule. */
export const scheduleField = v.pipe(
  v.string(),
  v.maxLength(SCHEDULE_LIMITS.textCharacters),
  v.description(
    "Five cron fields, or words: every 15 minutes, every day at 9:00, mondays at 18:30",
  ),
);

/** Field for the time zone of a schedule. */
export const timezoneField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("IANA name. Default: the configured one"),
);

/** Fields for the work of a schedule, all optional: either a prompt, or a tool with its input. */
export const workFields = {
  prompt: v.optional(
    v.pipe(
      v.string(),
      v.maxLength(SCHEDULE_LIMITS.promptCharacters),
      v.description("Told to an agent that sees nothing of this conversation"),
    ),
  ),
  tool: v.optional(
    v.pipe(
      v.string(),
      v.maxLength(64),
      v.description("Tool to call. Leave prompt out"),
    ),
  ),
  input: v.optional(v.pipe(v.looseObject({}), v.description("The tool's input. Default {}"))),
} as const;

/** Fields of a schedule that repeats: a call that comes before the prompt, and how far its times are spread. */
export const precheckFields = {
  precheck: v.optional(
    v.pipe(
      v.looseObject({}),
      v.description("{tool, input, only_when_changed?}: called first; only its output wakes the agent"),
    ),
  ),
  jitter_secs: v.optional(v.pipe(v.number(), v.description("Up to 3600; spreads its times"))),
} as const;

/** Setting that enables all schedule tools. */
export const CRON_ENABLED = {
  enabled: (config: Config): boolean => config.cron.enabled,
  enabledBy: "[cron] enabled = true",
} as const;

/** Returns the maker of a schedule that a tool call makes or changes. */
export function scheduleMaker(
  context: Pick<CallContext, "caller" | "allowed" | "inherited" | "taint" | "links">,
): ScheduleMaker {
  const { caller, inherited, taint, links } = context;
  return { caller, tools: toolsPassedOn(context), limits: inherited?.limits, taint, links };
}

/** Makes the result for a schedule that was made or changed. @param what first word of the text, such as `Added` */
export function scheduleResult(what: string, schedule: Schedule): ToolResult {
  return {
    output: `${what} ${describeSchedule(schedule)}`,
    isError: false,
    data: { schedule },
    taint: schedule.taint ?? UNTAINTED,
  };
}

/** Returns a schedule as one line: id, times, work, next and last firing. */
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
  return `"${id}" (${when}): ${does}${describeCheck(schedule)}; ${next}${outcome}`;
}

/** Returns the precheck of a schedule and what came of the last one, as the middle of a line; empty where there is none. */
export function describeCheck({ precheck, checked, timezone }: Schedule): string {
  if (precheck === undefined) return "";
  const when = (time: string) => zonedTime(Date.parse(time), timezone);
  const what = `, where ${precheck.tool} prints something${precheck.only_when_changed ? " new" : ""}`;
  switch (checked?.outcome) {
    case undefined:
      return what;
    case "woke":
      return `${what} (it did at ${when(checked.at)})`;
    case "nothing_new":
      return `${what} (nothing new since ${when(checked.since)}, checked at ${when(checked.at)})`;
    case "failed":
      return `${what} (the check failed at ${when(checked.at)}: ${cut(checked.reason ?? "")})`;
  }
}

const MAX_SHOWN = 80;

function cut(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text;
}
