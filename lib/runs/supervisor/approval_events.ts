import { lazily } from "../../base/lazily.ts";
import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Approval } from "../../base/records/approval.ts";

/**
 * Loads what describes an approval, with the first one.
 * @returns a function that gives the event for an approval that was filed. Call this before: nobody waits for one behind a load that fails
 */
export const loadNeeded = lazily(async () => {
  const { describeApproval } = await import("../../guard/describe_approval.ts");
  return (asked: Approval): AgentEventBody => {
    const { id, call_id, tool, input, input_digest, reason, rule, containment = null, expires_at, files, bound } =
      asked;
    const { kind = "call", server, agent, message, schema = null, url = null, offers, asker, editable } = asked;
    return {
      type: "approval_needed",
      approval_id: id,
      kind,
      ...(kind === "call" ? {} : { server, agent, message, schema, url }),
      call_id,
      tool,
      input,
      input_digest,
      reason,
      rule,
      containment,
      expires_at,
      files,
      ...(bound === undefined ? {} : { bound }),
      ...(offers === undefined ? {} : { offers }),
      ...(asker === undefined ? {} : { asker }),
      ...(editable === undefined ? {} : { editable }),
      description: describeApproval(asked),
    };
  };
});

/** Returns the event for the answer of an approval. */
export function toAnswered({ id, status, answered_by, edited, input }: Approval): AgentEventBody {
  const decision = status === "approved"
    ? "approve"
    : status === "denied"
    ? "deny"
    : status === "cancelled"
    ? "cancelled"
    : "expired";
  const changed = edited === undefined ? {} : { input };
  return { type: "approval_answered", approval_id: id, decision, by: answered_by, ...changed };
}
