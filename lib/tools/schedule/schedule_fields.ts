import * as v from "valibot";
import type { Config } from "../../config/config.ts";
import { SCHEDULE_LIMITS } from "./schedules.ts";

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
