import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Approval } from "../../base/records/approval.ts";

/** Returns the event for an approval that was filed. What describes it is loaded with the first one. */
export async function toNeeded(asked: Approval): Promise<AgentEventBody> {
  const { describeApproval } = await import("../../guard/describe_approval.ts");
  const { id, call_id, tool, input, input_digest, reason, rule, containment = null, expires_at, files, bound, offers } =
    asked;
  const { kind = "call", server, agent, message, schema = null, url = null } = asked;
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
    description: describeApproval(asked),
  };
}

/** Returns the event for the answer of an approval. */
export function toAnswered({ id, status, answered_by }: Approval): AgentEventBody {
  const decision = status === "approved"
    ? "approve"
    : status === "denied"
    ? "deny"
    : status === "cancelled"
    ? "cancelled"
    : "expired";
  return { type: "approval_answered", approval_id: id, decision, by: answered_by };
}
