import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { CRON_ENABLED, idField, scheduleResult } from "./schedules.ts";

/** `cron_resume`: lets a paused schedule fire again, from its next time on. */
export const cronResume = defineTool({
  name: "cron_resume",
  description: "Resumes a paused schedule from its next time on",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({ id: idField }),
  textField: "id",
  async run({ id }, { services, caller }) {
    return scheduleResult("Resumed", await services.schedules.resume(id, caller));
  },
});
