import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { CRON_ENABLED, idField, scheduleMaker, scheduleResult, workFields } from "./schedules.ts";

const when = (description: string) =>
  v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description(description)));

/** `schedule`: makes a schedule that fires once. */
export const schedule = defineTool({
  name: "schedule",
  description: "Adds a schedule that fires once: its run tells an agent the prompt, or calls the tool",
  access: "state",
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    id: v.optional(idField),
    at: when("ISO 8601, such as 2026-12-24T18:00, in the configured zone or with an offset"),
    in: when("In place of at: a duration, such as 90s, 2h30m, 1 day"),
    ...workFields,
  }),
  check({ at, in: after }) {
    if ((at === undefined) !== (after === undefined)) return;
    const which = at === undefined ? "one is missing" : "both are given";
    throw new ToolError("invalid_input", `Cannot call "schedule": there must be either "at" or "in", and ${which}`);
  },
  async run({ at, in: after, ...order }, context) {
    const { schedules } = context.services;
    const time = at === undefined ? `in ${after}` : `at ${at}`;
    return scheduleResult("Scheduled", await schedules.add({ ...order, schedule: time }, scheduleMaker(context)));
  },
});
