import * as v from "valibot";
import { SCHEDULE_STATES } from "../../base/records/schedule.ts";
import { joinTaints } from "../../base/taint.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { hiddenLines } from "../runtime/owned_things.ts";
import { CRON_ENABLED, describeSchedule } from "./schedules.ts";

/** `cron_list`: lists the schedules that the caller may reach, and the newest ones with one time that have fired. */
export const cronList = defineTool({
  name: "cron_list",
  description: "Lists the schedules with their times, work and last firing",
  access: "read",
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    state: v.optional(v.pipe(v.picklist(SCHEDULE_STATES), v.description("Only those in this state. Default: all"))),
  }),
  async run({ state }, { services, caller }) {
    const { schedules, hidden } = await services.schedules.list({ state }, caller);
    const none = state === undefined ? "There are no schedules" : "There is no such schedule";
    return {
      output: [schedules.map(describeSchedule).join("\n") || none, ...hiddenLines("schedule", hidden)].join("\n"),
      isError: false,
      data: { schedules, hidden },
      taint: joinTaints(...schedules.map(({ taint }) => taint)),
    };
  },
});
