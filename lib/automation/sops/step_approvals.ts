import { HttpError } from "../../base/errors.ts";
import type { ApprovalQuestion, Approvals } from "../../guard/approvals.ts";
import type { Execution } from "./execution_record.ts";
import type { ExecutionStore, KeptExecution } from "./execution_store.ts";
import type { Failure } from "./transitions.ts";

/** Questions of executions, each filed once, whatever stops the process. */
export interface StepApprovals {
  /**
   * Files a question in one transaction with the record that names it.
   * @returns `changed`: the execution did meanwhile; `full`: as many questions wait as may
   */
  ask(
    found: KeptExecution,
    question: ApprovalQuestion,
    next: (approvalId: string) => Execution,
  ): Promise<"asked" | "changed" | "full">;
  /** Waits for the answer. @returns undefined when it is yes. @throws {CancelError} when the signal aborts */
  answer(approvalId: string, signal: AbortSignal): Promise<Failure | undefined>;
  /**
   * Answers the policy's question about the very call that a person approved as a step, so that nobody is asked twice. Any other
   * call, or one that would change other files by now, is left to a person.
   */
  passOn(questionId: string, step: { readonly approvalId: string; readonly callDigest: string }): Promise<void>;
}

export function createStepApprovals(
  { approvals, store }: { readonly approvals: Approvals; readonly store: ExecutionStore },
): StepApprovals {
  return {
    async ask(found, question, next) {
      try {
        const asked = await approvals.ask(question, (id) => store.write(found, next(id)));
        return asked === undefined ? "full" : "asked";
      } catch (error) {
        if (error instanceof HttpError && error.status === 409) return "changed";
        throw error;
      }
    },

    async answer(approvalId, signal) {
      const settled = await approvals.settled(approvalId, signal).catch((error: unknown) => {
        if (error instanceof HttpError) return undefined;
        throw error;
      });
      switch (settled?.status) {
        case undefined:
          return { code: "approval_lost", message: `Nothing is known of the approval "${approvalId}" any more` };
        case "approved": {
          // It is bound to this execution: if it was used, then by this very step, before a stop
          const used = settled.used_at === null ? await approvals.use(approvalId, settled.digest) : undefined;
          return used === undefined || used.ok ? undefined : { code: "approval_expired", message: used.reason };
        }
        case "denied":
          return { code: "approval_denied", message: `A person denied it${settled.note ? `: ${settled.note}` : ""}` };
        case "expired":
          return { code: "approval_expired", message: "Nobody answered in time" };
        default:
          return { code: "approval_lost", message: "The question was taken back, so nobody answered it" };
      }
    },

    async passOn(questionId, { approvalId, callDigest }) {
      const [asked, given] = await Promise.all([approvals.get(questionId), approvals.get(approvalId)]);
      if (asked?.status !== "pending" || asked.digest !== callDigest || given?.status !== "approved") return;
      const by = { via: "sop", tokenId: given.answered_by } as const;
      try {
        await approvals.answer(questionId, { decision: "approve", note: `Approved as a step, by ${approvalId}`, by });
      } catch (error) {
        // Somebody answered at the same moment
        if (!(error instanceof HttpError)) throw error;
      }
    },
  };
}
