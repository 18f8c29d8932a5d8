import type { AgentApprover } from "../agent/agent_run.ts";

/**
 * Answers every ask at once with a denial that says what would allow the call: for runs that nobody follows who may approve.
 * Source: DESIGN.md section 7 "Approvals"
 */
export const denyUnattended: AgentApprover = ({ tool, reason }) =>
  Promise.resolve({
    decision: "deny",
    reason: `Denied, since nobody who may approve follows this run: ${reason}. ` +
      `The dashboard and "postern chat" ask; "postern tools call ${tool} --yes" makes the call`,
  });
