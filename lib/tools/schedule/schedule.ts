import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { CRON_ENABLED, idField, scheduleMaker, scheduleResult, workFields } from "./schedules.ts";

const when = (description: string) =>
  v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description(description)));

/** `schedule`: makes a schedule that fires once. */
export const schedule = defineTool({
  name: "schedule",
  description:
    "Makes a schedule that fires once: at a time, or in a while, it tells the agent a prompt, or calls a tool, in a run of its own",
  access: "state",
  ...CRON_ENABLED,
  needs: ["schedules"],
  input: v.strictObject({
    id: v.optional(idField),
    at: when("ISO 8601 time, such as 2026-12-24T18:00 in the configured time zone, or 2026-12-24T18:00:00+01:00"),
    in: when("In place of at: a duration from now, such as 90s, 10 minutes, 2h30m, 1 day"),
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
