import * as v from "valibot";
import { isTokenScope } from "../../base/records/caller.ts";
import { ToolError } from "../../base/errors.ts";
import { joinTaints, taintField, UNTAINTED } from "../../base/taint.ts";
import { isTimezone } from "../../base/zoned_time.ts";
import { matchesPatterns } from "../../tools/runtime/registry.ts";
import type { ToolExecutor } from "../../tools/runtime/tool_executor.ts";
import {
  type NewSchedule,
  precheckSchema,
  SCHEDULE_LIMITS,
  type ScheduleChanges,
  type ScheduledWork,
  type ScheduleMaker,
} from "../../tools/schedule/schedules.ts";
import { firingTimes, timesOf, toTiming } from "./firing_times.ts";
import { parseSchedule } from "./parse_schedule.ts";
import type { ScheduleRecord, Timing } from "./schedule_record.ts";

/** The maker, tools, time zone and present that the fields of a schedule are checked with. */
export interface ScheduleCheckOptions {
  readonly by: ScheduleMaker;
  readonly tools: Pick<ToolExecutor, "judge">;
  /** Zone of a schedule that names none: an IANA name; empty: the machine's */
  readonly timezone: string;
  /** Milliseconds since the epoch */
  readonly now: number;
}

/**
 * Returns the record of a new schedule.
 * @throws {ToolError} `invalid_input` for the work or the zone, `invalid_schedule` for the times
 */
export function newRecord(
  id: string,
  { schedule, timezone, jitter_secs, precheck, ...work }: NewSchedule,
  options: ScheduleCheckOptions,
): ScheduleRecord {
  const { by, now } = options;
  const checked = checkWork(work, options);
  const zone = zoneOf(timezone ?? options.timezone);
  const timing = timingOf(schedule, zone, now);
  const jitter = jitterField(jitter_secs);
  return {
    v: 1,
    id,
    state: "active",
    schedule: schedule.trim(),
    timing,
    timezone: zone,
    ...checked,
    ...makerFields(by),
    ...taintField(by.taint),
    ...linksField(work, by),
    ...jitter,
    ...precheckField(precheck, checked, options),
    next_at: nextTime({ id, timing, timezone: zone, ...jitter }, now),
    created_at: now,
    updated_at: now,
    seen_at: now,
    last: null,
    last_run_id: null,
  };
}

/** Returns the fields of a schedule that an order changes. @throws {ToolError} as `newRecord`, and for an order that changes nothing */
export function changedFields(
  record: ScheduleRecord,
  { schedule, timezone, jitter_secs, precheck, ...work }: ScheduleChanges,
  options: ScheduleCheckOptions,
): Partial<ScheduleRecord> {
  const { by, now } = options;
  const hasWork = Object.values(work).some((value) => value !== undefined);
  if ([schedule, timezone, jitter_secs, precheck].every((value) => value === undefined) && !hasWork) {
    throw new ToolError("invalid_input", `Cannot update "${record.id}": give what is to change`);
  }
  const zone = timezone === undefined ? record.timezone : zoneOf(timezone);
  const isRetimed = schedule !== undefined || (timezone !== undefined && record.timing.kind === "cron");
  const timing = isRetimed ? timingOf(schedule ?? record.schedule, zone, now) : record.timing;
  const checked = checkWork(hasWork ? changedWork(record, work) : earlierWork(record), options);
  const jitter = jitterField(jitter_secs ?? record.jitter_secs);
  const isMoved = !isRetimed && (jitter.jitter_secs ?? 0) !== (record.jitter_secs ?? 0);
  const from = isMoved ? beforeSlot(record) ?? now : now;
  return {
    schedule: schedule?.trim() ?? record.schedule,
    timing,
    timezone: zone,
    ...checked,
    ...jitter,
    ...precheckField(precheck ?? record.precheck ?? undefined, checked, options),
    // Another call is compared with nothing that came before
    ...(precheck === undefined
      ? {}
      : { checked: null, checking: record.checking && { ...record.checking, is_old: true } }),
    ...makerFields(by),
    // Work that stays as it was is made from what it was made from
    taint: [...joinTaints(hasWork ? UNTAINTED : record.taint, by.taint)],
    ...hasWork ? { links: [], ...linksField(work, by) } : {},
    next_at: record.state === "active" ? nextTime({ id: record.id, timing, timezone: zone, ...jitter }, from) : null,
    updated_at: now,
  };
}

/** Returns the next time of a schedule, in milliseconds since the epoch. Null: it does not fire any more. */
export function nextTime(
  schedule: Parameters<typeof timesOf>[0],
  now: number,
): number | null {
  return timesOf(schedule).next(now) ?? null;
}

/** Returns the last moment before the time that the next firing is put off from: those before it have fired. Undefined: none is next */
function beforeSlot({ timing, timezone, next_at }: ScheduleRecord): number | undefined {
  const slot = next_at === null ? undefined : firingTimes(timing, timezone).latest(next_at);
  return slot === undefined ? undefined : slot - 1;
}

function timingOf(schedule: string, timezone: string, now: number): Timing {
  return toTiming(parseSchedule(schedule), { given: schedule, timezone, now });
}

/** Returns a checked name of a time zone: that of the machine for an empty one. @throws {ToolError} `invalid_input` */
export function zoneOf(zone: string): string {
  if (zone === "") return Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (isTimezone(zone)) return zone;
  const shown = JSON.stringify(zone.slice(0, 64));
  throw new ToolError("invalid_input", `Cannot use the "timezone" ${shown}: it must be an IANA name, as Europe/Zurich`);
}

function makerFields({ caller, tools, limits }: ScheduleMaker): Pick<ScheduleRecord, "caller" | "tools" | "limits"> {
  return {
    caller: {
      token_id: caller.tokenId,
      scopes: caller.scopes.filter(isTokenScope),
      ...(caller.via === "subagent" ? { via: caller.via } : {}),
    },
    tools: tools === undefined ? null : [...tools],
    limits: limits === undefined ? null : { ...limits },
  };
}

/** Returns the addresses of the work that its maker has read: a tainted run may have made up the others. */
function linksField({ prompt, input }: ScheduledWork, { taint, links }: ScheduleMaker): Pick<ScheduleRecord, "links"> {
  const shared = taint.length === 0 ? [] : links?.sharedIn(prompt ?? JSON.stringify(input ?? {})) ?? [];
  return shared.length === 0 ? {} : { links: shared };
}

function earlierWork({ prompt, call }: ScheduleRecord): ScheduledWork {
  return { prompt: prompt ?? undefined, ...call };
}

/** Returns the work as it is given. An input alone goes to the tool that the schedule calls already. */
function changedWork({ call }: ScheduleRecord, given: ScheduledWork): ScheduledWork {
  return given.prompt === undefined && given.tool === undefined ? { ...call, input: given.input } : given;
}

/**
 * Checks the work of a schedule as far as that is possible before it fires: a prompt, or a tool that exists and takes this input. The
 * policy decides at each firing whether the tool is on and the call may run.
 */
function checkWork(
  { prompt, tool, input }: ScheduledWork,
  { tools, by }: ScheduleCheckOptions,
): Pick<ScheduleRecord, "prompt" | "call"> {
  if ((prompt === undefined) === (tool === undefined)) {
    const found = prompt === undefined ? "is neither" : 'are both: leave out "prompt", or "tool" and "input"';
    throw invalid(`there must be either "prompt" or "tool", and there ${found}`);
  }
  if (tool === undefined) {
    if (input !== undefined) throw invalid('"input" goes with "tool"');
    if (prompt === undefined || prompt.trim() === "") throw invalid('"prompt" must not be blank');
    return { prompt, call: null };
  }
  return { prompt: null, call: checkCall({ tool, input }, { tools, by }) };
}

/** Checks that there is a tool for the maker, and that it takes this input. */
function checkCall(
  { tool, input }: { readonly tool: string; readonly input?: ScheduledWork["input"] },
  { tools, by }: Pick<ScheduleCheckOptions, "tools" | "by">,
): NonNullable<ScheduleRecord["call"]> {
  const call = { tool, input: { ...input } };
  const text = JSON.stringify(call.input);
  if (text.length > SCHEDULE_LIMITS.inputCharacters) {
    throw invalid(`"input" must have at most ${SCHEDULE_LIMITS.inputCharacters} characters as JSON`);
  }
  const judged = tools.judge(tool, text);
  const name = JSON.stringify(tool.slice(0, 64));
  if (judged === undefined) throw invalid(`there is no tool ${name}`);
  if (by.tools !== undefined && !matchesPatterns(tool, by.tools)) {
    throw invalid(`the caller itself has no tool ${name}`);
  }
  if (judged.kind === "bad_input") {
    throw judged.error instanceof ToolError ? invalid(judged.error.message) : judged.error;
  }
  return call;
}

/** Returns the precheck of a schedule; null for `{}`, which removes it. */
function precheckField(
  given: NewSchedule["precheck"],
  { prompt }: Pick<ScheduleRecord, "prompt">,
  options: ScheduleCheckOptions,
): Pick<ScheduleRecord, "precheck"> {
  if (given === undefined) return {};
  if (Object.keys(given).length === 0) return { precheck: null };
  const read = v.safeParse(precheckSchema, given);
  if (!read.success) {
    const at = v.getDotPath(read.issues[0]) ?? "precheck";
    throw invalid(
      `"precheck" must be {"tool": "...", "input": {...}, "only_when_changed": true}, and "${at}" does not fit`,
    );
  }
  if (prompt === null) throw invalid('"precheck" goes with "prompt": a tool is called without the model anyway');
  const { only_when_changed = false, ...call } = read.output;
  return { precheck: { ...checkCall(call, options), only_when_changed } };
}

function jitterField(seconds: number | undefined): Pick<ScheduleRecord, "jitter_secs"> {
  if (seconds === undefined) return {};
  if (Number.isInteger(seconds) && seconds >= 0 && seconds <= SCHEDULE_LIMITS.jitterSecs) {
    return { jitter_secs: seconds };
  }
  throw invalid(`"jitter_secs" must be a whole number from 0 to ${SCHEDULE_LIMITS.jitterSecs}`);
}

function invalid(reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot use this schedule: ${reason}`);
}
