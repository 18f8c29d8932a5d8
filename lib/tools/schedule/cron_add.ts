import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import {
  CRON_ENABLED,
  idField,
  scheduleField,
  scheduleMaker,
  scheduleResult,
  timezoneField,
  workFields,
} from "./schedules.ts";

/** `cron_add`: makes a schedule that repeats (docs/design/automation.md "Schedules"). */
export const cronAdd = defineTool({
  name: "cron_add",
  description:
    "Adds a schedule: again and again it tells the agent a prompt, or calls a tool, in a run of its own. The " +
    "policy decides each time it fires; a call that needs approval waits for a person",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    id: idField,
    schedule: scheduleField,
    ...workFields,
    timezone: v.optional(timezoneField),
  }),
  async run(input, context) {
    const { schedules } = context.services;
    return scheduleResult("Added", await schedules.add(input, scheduleMaker(context)));
  },
});
