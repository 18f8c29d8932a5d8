import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { executionIdField, showExecution, sopCaller } from "./sops.ts";

/**
 * `sop_approve`: grants the approval that an execution waits for when a person calls, and asks a person when a model calls.
 * Source: docs/design/automation.md "Procedures"
 */
export const sopApprove = defineTool({
  name: "sop_approve",
  description:
    "Asks a person to approve the step an execution waits at, and tells how to answer. Only a person's own call grants it",
  access: "state",
  // A model's call asks a person
  carriesTaint: true,
  enabled: "always",
  needs: ["sops"],
  input: v.strictObject({ execution_id: executionIdField }),
  textField: "execution_id",
  async run({ execution_id }, context) {
    const { granted, execution } = await context.services.sops.approve(execution_id, sopCaller(context));
    return showExecution(execution, granted ? "Approved" : "A person is asked; nothing is approved yet");
  },
});
