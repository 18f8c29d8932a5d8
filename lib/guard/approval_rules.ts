import { type Approval, type ApprovalRule, RULE_ID } from "../base/records/approval.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store, Write } from "../storage/store.ts";
import {
  APPROVAL_RULES,
  type KeptApproval,
  parseRule,
  ruleIdOf,
  type RuleSubject,
  ruleText,
  toRuleBody,
} from "./approval_records.ts";
import { APPROVAL_LIMITS, type ApprovalReply, type Approvals } from "./approvals.ts";
import type { AuditAppend } from "./audit/audit.ts";

/** Answers that are remembered. */
export interface ApprovalRules extends Pick<Approvals, "remembered" | "rules" | "revoke"> {
  /** Writes that store a rule, in place of the oldest rule of a run where there are as many as may be. @returns undefined when there is no room */
  store(rule: ApprovalRule): Promise<readonly Write[] | undefined>;
  /** Forgets rules of runs from before that time, in ISO 8601 */
  forgetRuns(before: string): Promise<void>;
}

export function createApprovalRules(
  { store, log, audit }: { readonly store: Store; readonly log: Logger; readonly audit: AuditAppend },
): ApprovalRules {
  const rules = async (): Promise<readonly ApprovalRule[]> => {
    const stored = await store.scan(APPROVAL_RULES, {
      order: "created",
      reverse: true,
      limit: APPROVAL_LIMITS.rules,
    });
    return stored.map(({ body }) => parseRule(body));
  };
  const find = async (subject: RuleSubject, runId: string | null): Promise<ApprovalRule | undefined> => {
    const stored = await store.get(APPROVAL_RULES, ruleIdOf(subject, runId));
    return stored === undefined ? undefined : parseRule(stored.body);
  };

  return {
    async store(rule) {
      const put = { op: "put", collection: APPROVAL_RULES, key: rule.id, body: toRuleBody(rule) } as const;
      if (await store.count(APPROVAL_RULES) < APPROVAL_LIMITS.rules) return [put];
      const oldest = (await rules()).findLast(({ scope }) => scope === "run");
      return oldest === undefined ? undefined : [{ op: "delete", collection: APPROVAL_RULES, key: oldest.id }, put];
    },
    remembered: async (subject, runId) => await find(subject, runId) ?? await find(subject, null),
    rules,
    async revoke(ruleId, by) {
      if (!RULE_ID.test(ruleId)) return false;
      const stored = await store.get(APPROVAL_RULES, ruleId);
      if (stored === undefined) return false;
      const { body, version } = stored;
      const { tool, input_digest, decision } = parseRule(body);
      const actor = { via: by.via, token_id: by.tokenId };
      const taken = await audit(
        { type: "rule", action: "revoked", rule_id: ruleId, tool, input_digest, decision, by: actor },
        // The first one lets exactly one of several revoke it
        [
          { op: "putIf", collection: APPROVAL_RULES, key: ruleId, version, body },
          { op: "delete", collection: APPROVAL_RULES, key: ruleId },
        ],
      );
      if (taken) log.info("Approval rule was revoked", { rule_id: ruleId, token_id: by.tokenId });
      return taken;
    },
    async forgetRuns(before) {
      for (const { id, scope, created_at } of await rules()) {
        if (scope === "run" && created_at < before) await store.takeOnce(APPROVAL_RULES, id);
      }
    },
  };
}

/** The rule that an answer asks for; undefined when it counts once. @param time ISO 8601 */
export function ruleOf(
  { approval, inputDigest }: KeptApproval,
  { decision, remember = "once", by }: ApprovalReply,
  time: string,
): ApprovalRule | undefined {
  if (remember === "once") return undefined;
  const { tool, workspace, input, run_id }: Approval = approval;
  const subject = { tool, workspace, inputDigest };
  const runId = remember === "run" ? run_id : null;
  return {
    id: ruleIdOf(subject, runId),
    object: "approval_rule",
    decision,
    scope: remember,
    run_id: runId,
    tool,
    workspace,
    input,
    input_digest: inputDigest,
    text: ruleText({ ...subject, input, decision }, runId),
    created_at: time,
    created_by: by.tokenId,
    approval_id: approval.id,
  };
}
