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

/** `cron_update`: changes when a schedule fires, or what it does. */
export const cronUpdate = defineTool({
  name: "cron_update",
  description:
    "Changes a schedule: only the fields that are given; a prompt takes the place of a tool, and a tool that of a prompt",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    id: idField,
    schedule: v.optional(scheduleField),
    ...workFields,
    timezone: v.optional(timezoneField),
  }),
  async run({ id, ...changes }, context) {
    const { schedules } = context.services;
    return scheduleResult("Updated", await schedules.update(id, changes, scheduleMaker(context)));
  },
});
