import { type HttpError, refuse } from "../base/errors.ts";
import { exactLine } from "../base/text.ts";
import { ELICITATION, HANDOFF, RULE_OUTSIDE_CONTENT } from "./policy.ts";
import type { Approval, ApprovalStatus } from "../base/records/approval.ts";
import { APPROVAL_LIMITS } from "./approvals.ts";

/** 404: there is no such approval. */
export function unknownApproval(): HttpError {
  const message =
    'Cannot find this approval: "postern approval list --status any" and GET /v1/approvals show those that exist';
  return refuse("not_found", message);
}

/** 409: somebody answered before, or nobody in time. */
export function settledBefore(status: ApprovalStatus): HttpError {
  return refuse("conflict", `Cannot answer this approval: it is ${status} already`);
}

/** 400: a call that a written rule or `always_ask` asks about, a step of a procedure and a page that is handed over need an approval each time. */
export function notRemembered({ rule }: Pick<Approval, "rule">): HttpError {
  const [list = "", name = ""] = rule.split(":");
  const why = rule.startsWith("sop:")
    ? "it is about a procedure's step"
    : rule.startsWith(HANDOFF)
    ? "it hands a page over to a person"
    : rule.startsWith(ELICITATION)
    ? "a server asks, and each of its questions is a new one"
    : rule === RULE_OUTSIDE_CONTENT
    ? "the run has read content from outside"
    : list === "rule"
    ? `the rule "${name}" asks about it`
    : `[autonomy] always_ask names "${name}"`;
  return refuse(
    "invalid_request",
    `Cannot remember the answer: ${why}, so it is asked about each time; leave "remember" out`,
    { param: "remember" },
  );
}

/** 400: an answer about this call cannot store a rule with this match. @param offered the matches that it can store */
export function matchNotOffered(match: string, offered: readonly string[]): HttpError {
  const kinds = offered.map((kind) => `"${kind}"`).join(", ");
  return refuse(
    "invalid_request",
    `Cannot remember the answer as "${match}": the rules for this call are ${kinds}; its "offers" have their words`,
    { param: "match" },
  );
}

/** 400: `match` is given without `remember`. */
export function matchWithoutRemember(): HttpError {
  return refuse(
    "invalid_request",
    'Cannot use "match" alone: give "remember" as "run" or "always" with it, or leave it out',
    { param: "match" },
  );
}

/** 400: an answer has content, and is no answer with content. @param why what takes none */
export function contentNotTaken(why: string): HttpError {
  return refuse("invalid_request", `Cannot take "content": ${why}; leave it out`, { param: "content" });
}

/** 400: the content of an answer does not fit the form. */
export function contentRefused({ field, reason }: { readonly field: string; readonly reason: string }): HttpError {
  // The name may be the client's own
  const name = exactLine(field).slice(0, MAX_NAME_SHOWN);
  return refuse("invalid_request", `Cannot take the answer: "content.${name}" does not fit: ${reason}`, {
    param: `content.${name}`,
  });
}

/** 400: an answer brings another input, and none is taken. @param why what takes none */
export function editNotTaken(why: string): HttpError {
  return refuse("invalid_request", `Cannot take "input": ${why}`, { param: "input" });
}

/** 400: the call of this approval is made as it stands. */
export function notEditable({ kind, reason }: Pick<Approval, "kind" | "reason">): HttpError {
  return editNotTaken(
    kind === "elicitation"
      ? "this is a question, and no call"
      : reason.includes("[redacted]")
      ? "the call holds a secret that you are shown as [redacted], and another input would lose it; deny the call"
      : 'whoever makes this call makes it as it stands; deny it, and say why in "note"',
  );
}

/** 409: the person who wants another input has seen files or a repository that are not what is there now. */
export function movedSince(): HttpError {
  return refuse(
    "conflict",
    "Cannot take this answer: what the call would change is not what it was when it was asked; look again",
  );
}

const MAX_NAME_SHOWN = 64;

/** 409: as many rules are kept as may be. */
export function tooManyRules(): HttpError {
  return refuse(
    "conflict",
    `Cannot remember the answer: ${APPROVAL_LIMITS.rules} rules are kept already; revoke one first`,
  );
}

/** 409: the record that the approval belongs to has changed. */
export function approvalClaimed(): HttpError {
  return refuse("conflict", "Cannot ask for approval: the record that the approval belongs to has changed meanwhile");
}

/** 409: the content of an answer is in no record, so the asking call, which waits at another gateway of the cluster, cannot be given it. */
export function askedElsewhere(): HttpError {
  return refuse(
    "conflict",
    "Cannot answer here: the call that asks waits at another gateway of the cluster; answer at that one",
  );
}
