import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { executionIdField, showExecution } from "./sops.ts";

/** `sop_status`: shows the state of an execution, and what it waits for (docs/design/automation.md "Procedures"). */
export const sopStatus = defineTool({
  name: "sop_status",
  description:
    "Tells how far an execution of a procedure is: its steps with state and output, and what it waits for and how to go on",
  access: "read",
  enabled: "always",
  needs: ["sops"],
  input: v.strictObject({ execution_id: executionIdField }),
  textField: "execution_id",
  run: async ({ execution_id }, context) => showExecution(await context.services.sops.status(execution_id, context)),
});
