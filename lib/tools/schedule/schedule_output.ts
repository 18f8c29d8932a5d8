import type { Schedule } from "../../base/records/schedule.ts";
import { zonedTime } from "../../base/zoned_time.ts";
import type { ToolResult } from "../runtime/tool.ts";

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
