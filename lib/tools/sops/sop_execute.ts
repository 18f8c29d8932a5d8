import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { showExecution, sopCaller } from "./sops.ts";

/** `sop_execute`: starts a procedure, which goes on by itself (docs/design/automation.md "Procedures"). */
export const sopExecute = defineTool({
  name: "sop_execute",
  description:
    "Starts a standard operating procedure in the background and gives the execution's id at once; sop_status tells how far it is. " +
    "Each of its calls is decided by the policy",
  access: "state",
  // The inputs carry the taint into the steps
  carriesTaint: true,
  enabled: "always",
  needs: ["sops"],
  input: v.strictObject({
    sop: v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Id of the procedure, from sop_list")),
    inputs: v.optional(v.pipe(v.looseObject({}), v.description("Its inputs by name, as sop_list describes them"))),
  }),
  textField: "sop",
  async run({ sop, inputs = {} }, context) {
    const execution = await context.services.sops.execute({ ...sopCaller(context), sop, inputs });
    return showExecution(execution, "Started");
  },
});
