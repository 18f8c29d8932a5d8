import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { executionIdField, showExecution, sopCaller } from "./sops.ts";

/** `sop_advance`: marks a step as done by hand, or cancels the execution (docs/design/automation.md "Procedures"). */
export const sopAdvance = defineTool({
  name: "sop_advance",
  description:
    "Says that the step an execution waits at, which is done outside of the gateway, is done, so that it goes on; or cancels the " +
    "execution. A step that requires approval cannot be passed this way",
  access: "state",
  enabled: "always",
  needs: ["sops"],
  input: v.strictObject({
    execution_id: executionIdField,
    cancel: v.optional(v.pipe(v.boolean(), v.description("Cancel the execution instead: nothing further runs"))),
  }),
  textField: "execution_id",
  async run({ execution_id, cancel = false }, context) {
    const { sops } = context.services;
    const by = sopCaller(context);
    return showExecution(cancel ? await sops.cancel(execution_id, by) : await sops.advance(execution_id, by));
  },
});
