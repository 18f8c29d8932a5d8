import { type Clock, withTimeout } from "../../base/clock.ts";
import type { Approval } from "../../base/records/approval.ts";
import { type Approvals, sayAnswerer } from "../../guard/approvals.ts";
import { askElicitation } from "./ask_elicitation.ts";
import { toNewApproval } from "./create_approver.ts";
import {
  type ApprovalAnswer,
  type ApprovalRequest,
  type Approver,
  nobodyCouldAnswer,
} from "../../tools/runtime/tool_call.ts";

/** Options of `askByReply`. */
export interface AskByReplyOptions {
  readonly approvals: Approvals;
  readonly clock: Clock;
  /** Id of the approval that the caller brings along; undefined: none */
  readonly given: string | undefined;
  /** true: the caller has the scope `approve` and approves this call */
  readonly granted: boolean;
  /** How long an approval waits for its answer */
  readonly timeoutMs: number;
  /** How long the reply waits for a person whom the call's server asks */
  readonly elicitMs: number;
  /** Returns how the client repeats the call once a person has approved it. Default: by the fields of a body */
  readonly wayOn?: (approvalId: string) => string;
}

/** Shortest time limit of an approval that is granted at once, in milliseconds: a slow disk must not let it expire before it is used. */
const AT_ONCE_MS = 60_000;

/** Time that a call waits for the program around the gateway, where it answers approvals, in milliseconds. */
const PROGRAM_MS = 2_000;

/**
 * Returns the approver of a call whose client does not wait. The reply names the approval; the client repeats the call once a person has
 * answered. What the server of a running call asks has nobody to repeat it: there the reply waits.
 */
export function askByReply(
  { approvals, clock, given, granted, timeoutMs, elicitMs, wayOn = byFields }: AskByReplyOptions,
): Approver {
  const use = async (id: string, request: ApprovalRequest): Promise<ApprovalAnswer> => {
    const used = await approvals.use(id, request.binding.digest);
    if (used.ok) return { decision: "approve", reason: `Approved by ${sayAnswerer(used.approval)}`, approvalId: id };
    return used.waiting
      ? { decision: "deny", rule: "approval_waits", reason: used.reason, approvalId: id }
      : { decision: "deny", rule: "approval_failed", reason: used.reason };
  };
  const approver: Approver = async (request) => {
    if (given !== undefined && !granted) return await use(given, request);
    const asked = await approvals.ask({
      ...await toNewApproval(granted ? { ...request, preview: undefined } : request, {
        timeoutMs: granted ? Math.max(timeoutMs, AT_ONCE_MS) : timeoutMs,
      }),
      isAnswered: granted,
    });
    if (asked === undefined) {
      return nobodyCouldAnswer(
        `the limit of waiting approvals is reached, so no person could be asked: ${request.reason}`,
      );
    }
    const { id } = asked;
    if (granted) {
      await approvals.answer(id, { decision: "approve", by: request.scope.caller });
      return await use(id, request);
    }
    const answered = await answerOfProgram(id, { approvals, clock });
    if (answered?.status === "approved") return await use(id, request);
    if (answered?.status === "denied") {
      const why = answered.note === null ? "" : `: ${answered.note}`;
      const reason = `Cannot call "${request.tool}": ${sayAnswerer(answered)} denied it${why}`;
      return { decision: "deny", rule: "approval", reason, approvalId: id };
    }
    return {
      decision: "deny",
      rule: "approval_waits",
      reason: sayWaiting(asked, wayOn(id)),
      approvalId: id,
    };
  };
  return Object.assign<Approver, Pick<Approver, "elicit">>(approver, {
    elicit: (request, signal) => askElicitation(request, { approvals, timeoutMs: elicitMs, signal }),
  });
}

/** Returns why a call is refused whose approval waits, with the way to go on once a person has answered. */
export function sayWaiting(
  { id, reason, expires_at }: Pick<Approval, "id" | "reason" | "expires_at">,
  wayOn: string,
): string {
  return `${reason}. A person may approve it as "${id}" until ${expires_at}: then ${wayOn}`;
}

function byFields(id: string): string {
  return `repeat this call with "approval_id": "${id}". With the scope "approve", "approved": true allows it at once`;
}

/** Returns the approval after the program had its time to answer. Undefined where it answers none. */
async function answerOfProgram(
  id: string,
  { approvals, clock }: Pick<AskByReplyOptions, "approvals" | "clock">,
): Promise<Approval | undefined> {
  if (approvals.program === undefined) return undefined;
  await withTimeout(approvals.program.isLeft(id), { ms: PROGRAM_MS, clock });
  return await approvals.get(id);
}
