import type { Approval } from "../base/records/approval.ts";
import type { Actor } from "./approvals.ts";
import type { ApprovalEvent } from "./audit/audit_event.ts";

/** What the audit is told of an approval's new state. @param by null: nobody, as for an expiry */
export function approvalEvent(approval: Approval, by: Actor | null): ApprovalEvent {
  const { id, status, used_at, tool, digest, run_id, call_id, remember, rule_id, note } = approval;
  return {
    type: "approval",
    action: status === "pending" ? "asked" : used_at === null ? status : "used",
    approval_id: id,
    tool,
    digest,
    run_id,
    call_id,
    by: by === null ? null : { via: by.via, token_id: by.tokenId },
    remember,
    rule_id,
    note,
  };
}
