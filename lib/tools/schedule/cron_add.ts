import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import {
  CRON_ENABLED,
  idField,
  precheckFields,
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
    "Adds a schedule, whose runs tell an agent the prompt, or call the tool. Calls that need approval wait for a person",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    id: idField,
    schedule: scheduleField,
    ...workFields,
    timezone: v.optional(timezoneField),
    ...precheckFields,
  }),
  async run(input, context) {
    const { schedules } = context.services;
    return scheduleResult("Added", await schedules.add(input, scheduleMaker(context)));
  },
});
