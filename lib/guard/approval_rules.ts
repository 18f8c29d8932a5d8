import { type ApprovalRule, RULE_ID, type RuleOffer } from "../base/records/approval.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store, Write } from "../storage/store.ts";
import { APPROVAL_RULES, type KeptApproval, matchOfRule, toRuleBody } from "./approval_records.ts";
import { APPROVAL_LIMITS, type ApprovalReply, type Approvals } from "./approvals.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import type { RuleEvent } from "./audit/audit_event.ts";
import { compileAnswer, offeredMatches, ruleIdOf, type RuleMatch, type RuleSubject, ruleText } from "./rule_match.ts";
import { settle } from "./rules.ts";

/** Store, log and audit that remembered answers work with. */
export interface ApprovalRulesOptions {
  readonly store: Store;
  readonly log: Logger;
  readonly audit: AuditAppend;
}

/** Answers that are remembered. */
export class ApprovalRules implements Pick<Approvals, "remembered" | "rules" | "revoke"> {
  readonly #options: ApprovalRulesOptions;

  constructor(options: ApprovalRulesOptions) {
    this.#options = options;
  }

  /**
   * Returns the writes that store a rule, in place of the oldest rule of a run where there are as many as may be.
   * @returns undefined when there is no room
   */
  async store(rule: ApprovalRule): Promise<readonly Write[] | undefined> {
    const put = APPROVAL_RULES.put(rule.id, toRuleBody(rule));
    if (await this.#options.store.count(APPROVAL_RULES.name) < APPROVAL_LIMITS.rules) return [put];
    const oldest = (await this.rules()).findLast(({ scope }) => scope === "run");
    return oldest === undefined ? undefined : [APPROVAL_RULES.remove(oldest.id), put];
  }

  async remembered(subject: RuleSubject, runId: string): Promise<ApprovalRule | undefined> {
    const { tool, workspace } = subject;
    const ofCall = (await this.#kept()).filter(({ rule }) =>
      rule.tool === tool && rule.workspace === workspace && (rule.run_id === null || rule.run_id === runId)
    );
    const settled = settle(ofCall.map(({ rule, match }) => compileAnswer(rule, match)), subject);
    return ofCall.find(({ rule }) => settled?.by[0]?.id === `remembered:${rule.id}`)?.rule;
  }

  async rules(): Promise<readonly ApprovalRule[]> {
    const { store } = this.#options;
    const newest = await APPROVAL_RULES.page(store, { order: "created", reverse: true, limit: APPROVAL_LIMITS.rules });
    return newest.map(({ value }) => value);
  }

  async revoke(ruleId: string, by: Actor): Promise<boolean> {
    if (!RULE_ID.test(ruleId)) return false;
    const { store, log, audit } = this.#options;
    const stored = await APPROVAL_RULES.read(store, ruleId);
    if (stored === undefined) return false;
    const { value, version } = stored;
    const taken = await audit(
      ruleEvent("revoked", { ...value, id: ruleId }, by),
      // The first one lets exactly one of several revoke it
      [
        APPROVAL_RULES.putOver(ruleId, version, toRuleBody(value)),
        APPROVAL_RULES.remove(ruleId),
      ],
    );
    if (taken) log.info("Approval rule was revoked", { rule_id: ruleId, token_id: by.tokenId });
    return taken;
  }

  /** Forgets rules of runs from before that time, in ISO 8601. */
  async forgetRuns(before: string): Promise<void> {
    for (const { id, scope, created_at } of await this.rules()) {
      if (scope === "run" && created_at < before) await this.#options.store.takeOnce(APPROVAL_RULES.name, id);
    }
  }

  /** Returns the rules that say what their ids say. Another one decides nothing, nor one that cannot be read. */
  async #kept(): Promise<readonly { readonly rule: ApprovalRule; readonly match: RuleMatch }[]> {
    const { store, log } = this.#options;
    const kept: { rule: ApprovalRule; match: RuleMatch }[] = [];
    for await (const { key, value: rule } of APPROVAL_RULES.all(store)) {
      const match = matchOfRule(rule);
      if (rule.id === key && match !== undefined && ruleIdOf(rule, match, rule.run_id) === key) {
        kept.push({ rule, match });
      } else log.error("A remembered answer does not say what its id says, and is not used", { rule_id: key });
    }
    return kept;
  }
}

/** Returns what the audit is told of a rule. */
export function ruleEvent(action: RuleEvent["action"], rule: ApprovalRule, by: Actor): RuleEvent {
  const { id, tool, input_digest, decision, text } = rule;
  const actor = storedActor(by);
  return { type: "rule", action, rule_id: id, tool, input_digest, decision, text, by: actor };
}

/** Returns every rule that an approval of this call may store, in the words that are stored. */
export function offersOf(subject: RuleSubject, { input, runId }: { input: unknown; runId: string }): RuleOffer[] {
  const { tool, workspace } = subject;
  return offeredMatches(subject).flatMap((match) =>
    (["run", "always"] as const).map((remember): RuleOffer => ({
      remember,
      match: match.kind,
      text: ruleText({ tool, workspace, match, input, decision: "approve", runId: remember === "run" ? runId : null }),
    }))
  );
}

/**
 * Returns the rule that an answer asks for.
 * @param time ISO 8601
 * @returns undefined when the answer counts once; `not_offered` for a rule that this call has not
 */
export function ruleOf(
  { approval, wider, reachesNetwork }: KeptApproval,
  { decision, remember = "once", match: kind = "call", by }: ApprovalReply,
  time: string,
): ApprovalRule | undefined | "not_offered" {
  if (remember === "once") return undefined;
  const { tool, workspace, input, run_id, input_digest: inputDigest } = approval;
  const subject: RuleSubject = {
    tool,
    workspace,
    inputDigest,
    wider: wider === undefined ? undefined : { folder: undefined, command: undefined, ...wider },
    reachesNetwork,
  };
  const match = offeredMatches(subject).find((offered) => offered.kind === kind);
  if (match === undefined) return "not_offered";
  const runId = remember === "run" ? run_id : null;
  return {
    id: ruleIdOf(subject, match, runId),
    object: "approval_rule",
    decision,
    scope: remember,
    run_id: runId,
    tool,
    workspace,
    match: match.kind,
    input,
    input_digest: match.kind === "call" ? inputDigest : null,
    folder: match.kind === "folder" ? match.folder : null,
    command: match.kind === "command" ? [...match.command] : null,
    op: match.kind === "call" ? null : match.op,
    access: match.access ?? null,
    text: ruleText({ tool, workspace, match, input, decision, runId }),
    created_at: time,
    created_by: by.tokenId,
    approval_id: approval.id,
  };
}
