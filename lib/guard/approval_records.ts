import * as v from "valibot";
import { type Approval, type ApprovalRule, approvalRuleSchema, approvalSchema } from "../base/records/approval.ts";
import type { Actor } from "./approvals.ts";
import type { ApprovalEvent } from "./audit/audit_event.ts";
import type { RuleMatch } from "./rule_match.ts";

/**
 * What the approvals persist. Every body carries its version `v`; this is the one place where they are parsed, and where an older
 * version is brought up to the newest.
 */

/** By approval id. */
export const APPROVALS = "approvals";
/** Ids of those that are pending, so that they are found without reading all. */
export const OPEN_APPROVALS = "open_approvals";
/** By rule id, which is made of what the rule stands for: one rule for one match. */
export const APPROVAL_RULES = "approval_rules";

const access = approvalSchema.entries.access;
const approvalBodySchema = v.object({
  v: v.literal(1),
  ...approvalSchema.entries,
  /** Properties of the call that wider rules compare, where there are such rules */
  wider: v.optional(v.object({
    op: v.nullable(v.string()),
    access,
    folder: v.optional(v.string()),
    command: v.optional(v.array(v.string())),
  })),
});
const ruleBodySchema = v.object({ v: v.literal(1), ...approvalRuleSchema.entries });

/** An approval with what wider rules go by. */
export interface KeptApproval {
  readonly approval: Approval;
  readonly wider: v.InferOutput<typeof approvalBodySchema>["wider"];
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseApproval(body: unknown): KeptApproval {
  const { v: _version, wider, ...approval } = v.parse(approvalBodySchema, body);
  return { approval, wider };
}

export function toApprovalBody({ approval, wider }: KeptApproval): v.InferOutput<typeof approvalBodySchema> {
  return { v: 1, ...approval, ...(wider === undefined ? {} : { wider }) };
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseRule(body: unknown): ApprovalRule {
  const { v: _version, ...rule } = v.parse(ruleBodySchema, body);
  return rule;
}

export function toRuleBody(rule: ApprovalRule): v.InferOutput<typeof ruleBodySchema> {
  return { v: 1, ...rule };
}

/** Returns what a stored rule stands for; undefined for one that does not say it whole: it then stands for nothing. */
export function matchOfRule({ match, input_digest, folder, command, op, access }: ApprovalRule): RuleMatch | undefined {
  switch (match) {
    case "call":
      return input_digest === null ? undefined : { kind: "call", inputDigest: input_digest };
    case "folder":
      return folder === null || access === null ? undefined : { kind: "folder", op, access, folder };
    case "command":
      return command === null || access === null ? undefined : { kind: "command", op, access, command };
  }
}

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
