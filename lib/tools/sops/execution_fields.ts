import * as v from "valibot";
import { hasScope } from "../../base/records/caller.ts";
import { type ToolContext, toolsPassedOn } from "../runtime/tool.ts";
import type { SopCaller } from "./sops.ts";

export const executionIdField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(80),
  v.description("Id of the execution, as sop_execute gives it"),
);

/** Who calls: its client itself with the scope `approve` is a person whose word counts, a model is not, whoever started its run. */
export function sopCaller(
  context: Pick<ToolContext, "caller" | "runId" | "direct" | "allowed" | "inherited">,
): SopCaller {
  const { caller, runId, direct, inherited } = context;
  const mayGrant = direct && hasScope(caller.scopes, "approve");
  return { caller, runId, mayGrant, tools: toolsPassedOn(context), limits: inherited?.limits };
}
