import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { CRON_ENABLED, idField } from "./schedules.ts";

/** `cron_remove`: removes a schedule with its history. */
export const cronRemove = defineTool({
  name: "cron_remove",
  description: "Removes a schedule with its history; a run it started goes on",
  access: "state",
  repeatable: true,
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({ id: idField }),
  textField: "id",
  async run({ id }, { services, caller }) {
    await services.schedules.remove(id, caller);
    return { output: `Removed "${id}"`, isError: false, data: { id } };
  },
});
