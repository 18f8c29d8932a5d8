import type { Approval } from "../../base/records/approval.ts";
import type { Run } from "../../base/records/run.ts";
import { exactLine } from "../../base/text.ts";
import { sayAsker } from "../../guard/approvals.ts";
import { describeApproval } from "../../guard/describe_approval.ts";
import type { NewAlert } from "./alert_work.ts";

/** Characters of what a person wrote, or a call is about, in a message. */
const MAX_QUOTED = 300;
/** Characters of an input that are described: spelling out is slow. */
const MAX_DESCRIBED = 1_000;
/** Kinds of runs whose end nobody is told of: whoever started them waits for it. */
const UNTOLD: ReadonlySet<Run["kind"]> = new Set(["tool", "subagent"]);

/** Returns the message that an approval waits. @param isMasked true: its input has masked parts, which no link may answer */
export function approvalAlert(approval: Approval, isMasked: boolean): NewAlert {
  const { id, kind = "call", message = "" } = approval;
  const { title = "", call, input, reason } = describeApproval(approval, { maxInput: MAX_DESCRIBED });
  const isQuestion = kind === "elicitation";
  const asker = sayAsker(approval);
  return {
    event: "approval_waiting",
    title: isQuestion ? `A question of ${asker}` : title,
    text: isQuestion ? quoted(message) : `${call}\n${quoted(input)}\n${quoted(reason)}`,
    page: "approvals",
    approvalId: id,
    mayLink: !isMasked,
  };
}

/** Returns the message that a run has ended, failed or needs a review. Undefined for a run whose end nobody is told of */
export function runAlert({ id, kind, parent_id: parent, status, message, result, error }: Run): NewAlert | undefined {
  if (UNTOLD.has(kind) || parent !== null) return undefined;
  const about = message === undefined || message === null ? id : quoted(message);
  const page = `runs/${id}`;
  const why = `${about}\n${quoted(error?.message ?? "")}`.trimEnd();
  switch (status) {
    case "completed":
      return {
        event: "run_ended",
        title: "A run has ended",
        text: `${about}\n${quoted(result ?? "")}`.trimEnd(),
        page,
      };
    case "failed":
      return { event: "run_failed", title: "A run has failed", text: why, page };
    case "needs_review":
      return { event: "run_needs_review", title: "A run needs a review", text: why, page };
    default:
      return undefined;
  }
}

/** Returns the begin of a text as one line, in which nothing is invisible. */
function quoted(text: string): string {
  const line = exactLine(text.slice(0, MAX_QUOTED + 1).replace(/\s+/g, " "));
  return line.length > MAX_QUOTED ? `${line.slice(0, MAX_QUOTED)}...` : line;
}
