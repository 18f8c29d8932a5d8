import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Approval } from "../../base/records/approval.ts";
import type { Approvals } from "../../guard/approvals.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../../tools/runtime/tool_executor.ts";
import type { RecordedApproval } from "../recovery/recall_run.ts";

/** A question that stands, or whose answer counts. */
export interface EarlierApproval {
  readonly approval: Approval;
  /** Its approval_needed is in the journal, and its approval_answered */
  readonly isShown: boolean;
  readonly isAnswerShown: boolean;
  /** The call was let through and did not run: it may run now */
  readonly answer: ApprovalAnswer | undefined;
}

/** What a run asked before it was interrupted. */
export interface EarlierApprovals {
  /** The question about exactly this call. One that has become another, as by a changed file, is withdrawn */
  find(request: ApprovalRequest, emit: (body: AgentEventBody) => void): Promise<EarlierApproval | undefined>;
  /** The call needs no answer any more, because a rule or the policy decided */
  withdraw(callId: string, emit: (body: AgentEventBody) => void): Promise<void>;
}

/** Approvals looked through for one that was filed just before the crash. */
const MAX_LOOKED_AT = 1000;

/** @param asked as the journal has them, by call id */
export function createEarlierApprovals(
  approvals: Approvals,
  asked: ReadonlyMap<string, RecordedApproval>,
): EarlierApprovals {
  const open = new Map(asked);

  /** A question is filed before the journal says so: a crash between the two leaves one that only the approvals know. */
  const unrecorded = async ({ runId, callId }: ApprovalRequest): Promise<Approval | undefined> => {
    const { approvals: newest } = await approvals.list({ limit: MAX_LOOKED_AT });
    return newest.find((approval) =>
      approval.run_id === runId && approval.call_id === callId && approval.used_at === null
    );
  };
  const withdraw: EarlierApprovals["withdraw"] = async (callId, emit) => {
    const earlier = open.get(callId);
    if (earlier === undefined) return;
    open.delete(callId);
    await approvals.cancel(earlier.approvalId);
    const approval = await approvals.get(earlier.approvalId);
    if (!earlier.answered && approval !== undefined) emit(toAnswered(approval));
  };
  return {
    async find(request, emit) {
      const { callId, binding } = request;
      const earlier = open.get(callId);
      const approval = earlier === undefined ? await unrecorded(request) : await approvals.get(earlier.approvalId);
      if (approval === undefined) return undefined;
      if (approval.status === "pending" && approval.digest !== binding.digest) {
        await approvals.cancel(approval.id);
        await withdraw(callId, emit);
        return undefined;
      }
      open.delete(callId);
      const isFree = approval.status === "approved" && approval.used_at !== null && approval.digest === binding.digest;
      if (isFree && earlier?.answered !== true) emit(toAnswered(approval));
      return {
        approval,
        isShown: earlier !== undefined,
        isAnswerShown: earlier?.answered === true,
        // Its use is in the approvals and its start is not in the journal, which comes before the effect
        answer: isFree ? approve(approval.id) : undefined,
      };
    },
    withdraw,
  };
}

/** The answer of a person who said yes to the question of this id. */
export function approve(approvalId: string): ApprovalAnswer {
  return { decision: "approve", reason: "Approved by a person", approvalId };
}

/** How a settled question is shown. */
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
