import * as v from "valibot";
import { canonicalDigest } from "../base/canonical_json.ts";
import { type Approval, type ApprovalRule, approvalRuleSchema, approvalSchema } from "../base/records/approval.ts";

/**
 * What the approvals persist. Every body carries its version `v`; this is the one place where they are parsed, and where an older
 * version is brought up to the newest.
 */

/** By approval id. */
export const APPROVALS = "approvals";
/** Ids of those that are pending, so that they are found without reading all. */
export const OPEN_APPROVALS = "open_approvals";
/** By rule id, which is made of what the rule stands for: one rule for one call. */
export const APPROVAL_RULES = "approval_rules";

const approvalBodySchema = v.object({ v: v.literal(1), input_digest: v.string(), ...approvalSchema.entries });
const ruleBodySchema = v.object({ v: v.literal(1), ...approvalRuleSchema.entries });

/** An approval with what its rule would be compared by. */
export interface KeptApproval {
  readonly approval: Approval;
  readonly inputDigest: string;
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseApproval(body: unknown): KeptApproval {
  const { v: _version, input_digest: inputDigest, ...approval } = v.parse(approvalBodySchema, body);
  return { approval, inputDigest };
}

export function toApprovalBody({ approval, inputDigest }: KeptApproval): v.InferOutput<typeof approvalBodySchema> {
  return { v: 1, input_digest: inputDigest, ...approval };
}

/** @throws {v.ValiError} for a body that no version wrote */
export function parseRule(body: unknown): ApprovalRule {
  const { v: _version, ...rule } = v.parse(ruleBodySchema, body);
  return rule;
}

export function toRuleBody(rule: ApprovalRule): v.InferOutput<typeof ruleBodySchema> {
  return { v: 1, ...rule };
}

/** The call a rule stands for. */
export interface RuleSubject {
  readonly tool: string;
  readonly workspace: string;
  readonly inputDigest: string;
}

/** Id of the rule for this call. @param runId null: for good */
export function ruleIdOf({ tool, workspace, inputDigest }: RuleSubject, runId: string | null): string {
  return `rule_${canonicalDigest({ tool, workspace, input: inputDigest, run: runId }).slice(0, 32)}`;
}

/** Longer inputs are cut in the sentence; the digest beside them is of the whole */
const MAX_INPUT_SHOWN = 4000;

/** A rule as a sentence: the exact text a person agrees to. */
export function ruleText(
  subject: RuleSubject & { readonly input: unknown; readonly decision: "approve" | "deny" },
  runId: string | null,
): string {
  const { tool, workspace, input, inputDigest, decision } = subject;
  const json = JSON.stringify(input) ?? "null";
  const shown = json.length > MAX_INPUT_SHOWN ? `${json.slice(0, MAX_INPUT_SHOWN)}... (SHA-256 ${inputDigest})` : json;
  const verb = decision === "approve" ? "Allow" : "Deny";
  return `${verb} "${tool}" in "${workspace}"${
    runId === null ? "" : ` in run ${runId}`
  } with exactly the input ${shown}`;
}
