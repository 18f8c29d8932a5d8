import * as v from "valibot";
import { SCHEDULE_STATES } from "../../base/records/schedule.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { CRON_ENABLED, describeSchedule } from "./schedules.ts";

/** `cron_list`: lists the schedules, and the newest ones with one time that have fired. */
export const cronList = defineTool({
  name: "cron_list",
  description: "Lists the schedules: when each fires, what it does, and what became of its last firing",
  access: "read",
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    state: v.optional(v.pipe(v.picklist(SCHEDULE_STATES), v.description("Only those in this state. Default: all"))),
  }),
  async run({ state }, { services }) {
    const all = await services.schedules.list();
    const schedules = state === undefined ? all : all.filter((schedule) => schedule.state === state);
    const none = state === undefined ? "There are no schedules" : "There is no such schedule";
    return {
      output: schedules.map(describeSchedule).join("\n") || none,
      isError: false,
      data: { schedules },
    };
  },
});
