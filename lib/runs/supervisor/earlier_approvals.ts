import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Approval } from "../../base/records/approval.ts";
import type { Approvals } from "../../guard/approvals.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../../tools/runtime/tool_call.ts";
import type { RecordedApproval } from "../recovery/recall_run.ts";

/** An earlier approval that still waits, or whose answer counts. */
export interface EarlierApproval {
  readonly approval: Approval;
  /** True when the journal has its approval_needed. */
  readonly isShown: boolean;
  /** True when the journal has its approval_answered. */
  readonly isAnswerShown: boolean;
  /** Answer for a call that was let through and did not run, so that it may run now; undefined for every other call. */
  readonly answer: ApprovalAnswer | undefined;
}

/** Approvals that a run filed before it was interrupted. */
export interface EarlierApprovals {
  /** Finds the approval of exactly this call. Withdraws it when the call has become another, for example by a changed file. */
  find(request: ApprovalRequest, emit: (body: AgentEventBody) => void): Promise<EarlierApproval | undefined>;
  /** Withdraws the approval of a call that a rule or the policy decided meanwhile. */
  withdraw(callId: string, emit: (body: AgentEventBody) => void): Promise<void>;
}

/** Newest approvals that are searched for one that was filed just before the crash. */
const MAX_LOOKED_AT = 1000;

/** Returns the earlier approvals of a run. @param asked approvals in the journal, by call id */
export function createEarlierApprovals(
  approvals: Approvals,
  asked: ReadonlyMap<string, RecordedApproval>,
): EarlierApprovals {
  const open = new Map(asked);

  /** Finds an approval that the journal does not have. An approval is filed before the journal says so, and a crash can come between. */
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
        // The approval is used and the call's start is not in the journal. The journal comes before the effect, so there was none
        answer: isFree ? approve(approval.id) : undefined,
      };
    },
    withdraw,
  };
}

/** Returns the answer of a person who approved the approval with this id. */
export function approve(approvalId: string): ApprovalAnswer {
  return { decision: "approve", reason: "Approved by a person", approvalId };
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
