import { HttpError } from "../base/errors.ts";
import type { Approval, ApprovalStatus } from "../base/records/approval.ts";
import { APPROVAL_LIMITS } from "./approvals.ts";

/** 404: there is no such approval. */
export function unknownApproval(): HttpError {
  const message =
    'Cannot find this approval: "postern approvals list --status any" and GET /v1/approvals show those that exist';
  return new HttpError("not_found", message, {
    status: 404,
    type: "invalid_request_error",
  });
}

/** 409: somebody answered before, or nobody in time. */
export function settledBefore(status: ApprovalStatus): HttpError {
  return conflict(`Cannot answer this approval: it is ${status} already`);
}

/** 400: what `always_ask` names, and a procedure's step, is asked about each time. */
export function notRemembered({ tool, rule }: Pick<Approval, "tool" | "rule">): HttpError {
  const why = rule.startsWith("sop:") ? "it is about a procedure's step" : `[autonomy] always_ask names "${tool}"`;
  return new HttpError(
    "invalid_request",
    `Cannot remember the answer: ${why}, so it is asked about each time; leave "remember" out`,
    { status: 400, type: "invalid_request_error", param: "remember" },
  );
}

/** 400: an answer about this call cannot store such a rule. @param offered the kinds that it can */
export function matchNotOffered(match: string, offered: readonly string[]): HttpError {
  const kinds = offered.map((kind) => `"${kind}"`).join(", ");
  return new HttpError(
    "invalid_request",
    `Cannot remember the answer as "${match}": the rules for this call are ${kinds}; its "offers" have their words`,
    { status: 400, type: "invalid_request_error", param: "match" },
  );
}

/** 400: what is to be remembered is said, and not for how long. */
export function matchWithoutRemember(): HttpError {
  return new HttpError(
    "invalid_request",
    'Cannot use "match" alone: give "remember" as "run" or "always" with it, or leave it out',
    { status: 400, type: "invalid_request_error", param: "match" },
  );
}

/** 409: as many rules are kept as may be. */
export function tooManyRules(): HttpError {
  return conflict(`Cannot remember the answer: ${APPROVAL_LIMITS.rules} rules are kept already; revoke one first`);
}

/** 409: what the question belongs to is not as it was. */
export function questionClaimed(): HttpError {
  return conflict("Cannot ask: what the question belongs to has changed meanwhile");
}

function conflict(message: string): HttpError {
  return new HttpError("conflict", message, { status: 409, type: "invalid_request_error" });
}
