import * as v from "valibot";
import { type Approval, type ApprovalRule, approvalRuleSchema, approvalSchema } from "../base/records/approval.ts";
import type { Actor } from "./approvals.ts";
import type { ApprovalEvent } from "./audit/audit_event.ts";
import type { RuleMatch } from "./rule_match.ts";

/**
 * Records of approvals and rules in the store. Every body carries its version `v`. This file alone parses them, and brings an older
 * version up to the newest.
 */

/** Collection of the approvals, by approval id. */
export const APPROVALS = "approvals";
/** Collection of the ids of pending approvals, so that they are found without reading all approvals. */
export const OPEN_APPROVALS = "open_approvals";
/** Collection of the rules, by rule id. The id is made from the match, so each match has one rule at most. */
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

/** An approval, with the properties of its call that wider rules compare. */
export interface KeptApproval {
  readonly approval: Approval;
  readonly wider: v.InferOutput<typeof approvalBodySchema>["wider"];
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseApproval(body: unknown): KeptApproval {
  const { v: _version, wider, ...approval } = v.parse(approvalBodySchema, body);
  return { approval, wider };
}

/** Returns an approval as the store keeps it. */
export function toApprovalBody({ approval, wider }: KeptApproval): v.InferOutput<typeof approvalBodySchema> {
  return { v: 1, ...approval, ...(wider === undefined ? {} : { wider }) };
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseRule(body: unknown): ApprovalRule {
  const { v: _version, ...rule } = v.parse(ruleBodySchema, body);
  return rule;
}

/** Returns a rule as the store keeps it. */
export function toRuleBody(rule: ApprovalRule): v.InferOutput<typeof ruleBodySchema> {
  return { v: 1, ...rule };
}

/** Returns the calls that a stored rule stands for. Undefined for a record with a missing field: such a rule matches no call. */
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

/** Returns the audit event of an approval's new state. @param by null when nobody acted, as for an expiry */
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
