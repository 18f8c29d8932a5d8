import type { AgentApprover } from "../agent/agent_run.ts";
import type { AgentEventBody } from "../base/records/agent_event.ts";
import { type ApprovalAnswer, nobodyCouldAnswer } from "../tools/runtime/tool_executor.ts";

/**
 * Answers every ask at once with a denial that says what would allow the call: for runs that nobody follows who may approve.
 * Source: docs/design/policy.md "Approvals"
 */
export const denyUnattended: AgentApprover = ({ tool, reason }, _signal, emit) =>
  Promise.resolve(denyUnasked(
    `nobody who may approve follows this run, so nobody was asked: ${reason}. ` +
      `The dashboard and "postern chat" at a terminal ask; "postern tools call ${tool} --yes" makes the call`,
    emit,
  ));

/** Denies a call that nobody was asked about, and tells the run's reader the same as the model. @param why see nobodyCouldAnswer */
export function denyUnasked(why: string, emit: (body: AgentEventBody) => void): ApprovalAnswer {
  const denied = nobodyCouldAnswer(why);
  emit({ type: "notice", code: denied.rule, message: denied.reason });
  return denied;
}
