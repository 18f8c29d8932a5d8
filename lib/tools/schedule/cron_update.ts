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

/** `cron_update`: changes when a schedule fires, or what it does. */
export const cronUpdate = defineTool({
  name: "cron_update",
  description:
    "Changes the given fields of a schedule; a prompt replaces a tool, a tool a prompt, and precheck {} removes it",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    id: idField,
    schedule: v.optional(scheduleField),
    ...workFields,
    timezone: v.optional(timezoneField),
    ...precheckFields,
  }),
  async run({ id, ...changes }, context) {
    const { schedules } = context.services;
    return scheduleResult("Updated", await schedules.update(id, changes, scheduleMaker(context)));
  },
});
