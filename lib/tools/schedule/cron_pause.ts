import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { CRON_ENABLED, idField, scheduleResult } from "./schedules.ts";

/** `cron_pause`: pauses a schedule until it is resumed. */
export const cronPause = defineTool({
  name: "cron_pause",
  description: "Pauses a schedule until cron_resume; missed firings are not made up for",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({ id: idField }),
  textField: "id",
  async run({ id }, { services, caller }) {
    return scheduleResult("Paused", await services.schedules.pause(id, caller));
  },
});
