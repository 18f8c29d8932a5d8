import type { AgentApprover } from "../agent/call_tools.ts";

/**
 * Answers every ask at once with a denial that says what would allow the call: for runs that nobody follows who may approve.
 * Source: DESIGN.md section 7 "Approvals"
 */
export const denyUnattended: AgentApprover = (request) =>
  Promise.resolve({
    decision: "deny",
    reason:
      `Nobody who may approve follows this run. To allow it, add "${request.tool}" to auto_approve in [autonomy] or set ` +
      `level = "full" there, or let a person run it with "postern tools call ${request.tool} --yes"`,
  });
