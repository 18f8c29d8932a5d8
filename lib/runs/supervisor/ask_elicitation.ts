import { canonicalDigest } from "../../base/json.ts";
import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Approval } from "../../base/records/approval.ts";
import { asSentence } from "../../base/text.ts";
import { type Approvals, type NewApproval, type PatientApprovals, sayAsker } from "../../guard/approvals.ts";
import { ELICITATION } from "../../guard/policy.ts";
import type { ElicitationAnswer } from "../../tools/runtime/askable_client.ts";
import { type ElicitationRequest, nobodyCouldAnswer } from "../../tools/runtime/tool_call.ts";
import { loadNeeded, toAnswered } from "./approval_events.ts";

/** Approvals, and the run whose call asks. */
export interface AskElicitationOptions {
  readonly approvals: Approvals;
  /** The same approvals for a run that waits for the database. Default: nobody waits */
  readonly patient?: PatientApprovals | undefined;
  /** How long the question waits, in milliseconds */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Shows the run's reader the question and its end. Default: nobody reads */
  readonly emit?: (body: AgentEventBody) => void;
  /** Does the waiting, as `QueuePlace.pause`. Default: waits */
  readonly pause?: <T>(wait: () => Promise<T>) => Promise<T>;
  /** Receives the approval's id once it is filed */
  readonly onAsked?: (approvalId: string) => void;
}

/**
 * Puts the question of a running call to a person as an approval of kind `elicitation`, and waits. A denial is `decline`. An approval that
 * expires, or that nobody can answer, is `cancel`.
 * @throws {CancelError} when the signal aborts; the approval is then cancelled
 * Source: docs/design/policy.md "Approvals"; Model Context Protocol, "Elicitation"
 */
export async function askElicitation(
  request: ElicitationRequest,
  { approvals, patient = approvals, timeoutMs, signal, emit = () => {}, pause = (wait) => wait(), onAsked }:
    AskElicitationOptions,
): Promise<ElicitationAnswer> {
  const toNeeded = await loadNeeded();
  const asked = await patient.ask(toNewElicitation(request, timeoutMs));
  if (asked === undefined) {
    return cancelUnasked("as many approvals wait for a person as may, so nobody was asked", emit);
  }
  emit(toNeeded(asked));
  onAsked?.(asked.id);
  try {
    const { approval, content } = await pause(() => patient.elicited(asked.id, signal));
    emit(toAnswered(approval));
    return toAnswer(approval, content, emit);
  } catch (error) {
    // The call may go on: a server may take its question back
    const approval = await approvals.get(asked.id).catch(() => undefined);
    if (approval !== undefined && approval.status !== "pending") emit(toAnswered(approval));
    throw error;
  }
}

/** Cancels a question that nobody was asked, and tells the run's reader. @param why see nobodyCouldAnswer */
export function cancelUnasked(why: string, emit: (body: AgentEventBody) => void): ElicitationAnswer {
  const { reason, rule } = nobodyCouldAnswer(why);
  emit({ type: "notice", code: rule, message: reason });
  return { action: "cancel", reason };
}

function toAnswer(
  { status }: Approval,
  content: Extract<ElicitationAnswer, { action: "accept" }>["content"],
  emit: (body: AgentEventBody) => void,
): ElicitationAnswer {
  switch (status) {
    case "approved":
      return { action: "accept", content };
    case "denied":
      return { action: "decline" };
    case "expired":
      return cancelUnasked("nobody answered the question in time", emit);
    case "pending":
    case "cancelled":
      return cancelUnasked("the question was taken back", emit);
  }
}

function toNewElicitation(
  { elicitation, tool, access, input, inputDigest, workspaceRoot, callId, scope }: ElicitationRequest,
  timeoutMs: number,
): NewApproval {
  const { server, agent } = elicitation;
  return {
    elicitation,
    tool,
    access,
    workspace: workspaceRoot,
    input,
    inputDigest,
    reason: agent === true
      ? "The agent asks. Its words may come from what it has read, and the answer goes to the model"
      : `${
        asSentence(sayAsker(elicitation))
      } asks while "${tool}" runs. Its words are its own, and the answer goes to it`,
    rule: `${ELICITATION}${server ?? (agent === true ? "agent" : "program")}`,
    files: [],
    digest: canonicalDigest({ kind: "elicitation", tool, callId, ...elicitation }),
    runId: scope.runId,
    callId,
    requestId: scope.requestId,
    requestedBy: scope.caller,
    timeoutMs,
  };
}
