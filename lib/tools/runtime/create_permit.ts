import { CancelError, cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import type { ApprovalRule } from "../../base/records/approval.ts";
import { redactJson } from "../../base/redact.ts";
import type { Approvals } from "../../guard/approvals.ts";
import { asksAlways, type Decision } from "../../guard/decision.ts";
import type { RuleSubject } from "../../guard/rule_match.ts";
import type { CallAudit } from "./audit_call.ts";
import type { CallBinding } from "./bind_call.ts";
import type { PreparedCall, Tool } from "./tool.ts";
import type { ApprovalAnswer, ApprovalRequest, ToolCallRequest } from "./tool_executor.ts";
import type { ToolPolicy } from "./tool_policy.ts";

/** Where remembered answers are looked up. */
export interface RememberedAnswers {
  /** Answers that stand for good or for a run. Default: none */
  readonly remembered?: (
    ...call: Parameters<Approvals["remembered"]>
  ) => Promise<Pick<ApprovalRule, "id" | "decision"> | undefined>;
}

export interface PermitOptions extends RememberedAnswers {
  readonly workspaceRoot: string;
  readonly redact: (text: string) => string;
  readonly policy: Pick<ToolPolicy, "decide">;
  /** What an approval of the call is bound to now. @throws {ToolError} for a call that cannot run */
  readonly bind: (tool: Tool, prepared: PreparedCall, signal: AbortSignal) => Promise<CallBinding>;
  /** Logs what is nobody's mistake but ours. @returns the sentence for the model */
  readonly reportBug: (tool: Tool, request: ToolCallRequest, error: unknown) => string;
}

interface Word {
  /** The policy's, or `approval`, a DenialRule, `remembered:<id>`, `binding`, as the audit has it */
  readonly rule: string;
  readonly approvalId?: string;
}

/** The call must not run; `reason` is for the model. */
export interface Refusal extends Word {
  readonly ok: false;
  readonly reason: string;
}

/** `binding`: undefined for a call that nobody was asked about. */
export type Permit = Word & { readonly ok: true; readonly binding: CallBinding | undefined } | Refusal;

/**
 * Whether the call may run, and what it is then bound to. A deny counts before and after the question.
 * @throws {CancelError} when the request's signal aborts
 */
export type PermitCall = (
  tool: Tool,
  judged: { readonly prepared: PreparedCall; readonly decision: Decision },
  call: { readonly request: ToolCallRequest; readonly audit: CallAudit },
) => Promise<Permit>;

/** An answer with the rule it comes from: the approver's, or `remembered:<id>`. */
type Answer = Pick<ApprovalAnswer, "decision" | "reason" | "approvalId"> & { readonly rule: string };

/** Asks about a call where the policy says so: a remembered answer first, then the request's approver. */
export function createPermit(options: PermitOptions): PermitCall {
  const { policy, bind, reportBug } = options;

  /** A rule's answer, else the approver's; one that fails has approved nothing. */
  const askFirst = async (tool: Tool, request: ToolCallRequest, question: ApprovalRequest): Promise<Answer> => {
    try {
      const remembered = await rememberedAnswer(question);
      if (remembered !== undefined) return remembered;
      const answer = await request.approver(question, request.signal);
      return answer.decision === "deny" ? answer : { ...answer, rule: "approval" };
    } catch (error) {
      if (error instanceof CancelError) throw error;
      return { decision: "deny", rule: "approval_failed", reason: reportBug(tool, request, error) };
    }
  };

  const rememberedAnswer = async (question: ApprovalRequest): Promise<Answer | undefined> => {
    if (asksAlways(question.rule)) return undefined;
    const { tool, runId } = question;
    const rule = await options.remembered?.(question.subject, runId);
    if (rule === undefined) return undefined;
    const reason = `Cannot call "${tool}": a person denied such a call before; ` +
      `"postern approvals revoke ${rule.id}" lifts that`;
    return { decision: rule.decision, reason, rule: `remembered:${rule.id}` };
  };

  return async (tool, { prepared, decision }, { request, audit }) => {
    const { kind, reason, rule } = decision;
    if (kind === "allow") return { ok: true, rule, binding: undefined };
    if (kind === "deny") return { ok: false, rule, reason };
    await audit.decided({ prepared, kind, rule, reason });
    const { runId, callId, caller } = request;
    try {
      const binding = await bind(tool, prepared, request.signal);
      if (request.signal.aborted) throw cancelError(request.signal);
      const answer = await askFirst(tool, request, {
        tool: tool.name,
        prepared,
        input: redactJson(prepared.input, options.redact),
        binding,
        workspaceRoot: options.workspaceRoot,
        subject: subjectOf(tool.name, prepared, { binding, workspace: options.workspaceRoot, redact: options.redact }),
        reason,
        rule,
        caller,
        runId,
        callId,
      });
      const { approvalId } = answer;
      const answered = { rule: answer.rule, ...(approvalId === undefined ? {} : { approvalId }) };
      if (answer.decision === "deny") return { ok: false, reason: answer.reason, ...answered };
      const again = policy.decide(tool, prepared);
      if (again.kind === "deny") return { ok: false, rule: again.rule, reason: again.reason };
      const now = await bind(tool, prepared, request.signal);
      return now.digest === binding.digest
        ? { ok: true, binding: now, ...answered }
        : { ok: false, rule: "binding", reason: changed(tool.name) };
    } catch (error) {
      if (error instanceof CancelError) throw error;
      const why = error instanceof ToolError ? error.message : reportBug(tool, request, error);
      return { ok: false, rule: "binding", reason: why };
    }
  };
}

/** Returns what rules are looked up by. Offers nothing wider than the call where its words hold a secret: a rule would keep it. */
function subjectOf(
  tool: string,
  { input, digest, access, effects }: PreparedCall,
  { binding, workspace, redact }: {
    readonly binding: CallBinding;
    readonly workspace: string;
    readonly redact: (text: string) => string;
  },
): RuleSubject {
  const { folder } = binding;
  const { command } = effects;
  const { op } = (input ?? {}) as { readonly op?: unknown };
  const wider = { op: typeof op === "string" ? op : null, access, folder, command: command?.slice(0, 2) };
  const text = JSON.stringify(wider);
  const isWider = (folder !== undefined || command !== undefined) && redact(text) === text;
  return { tool, workspace, inputDigest: digest, wider: isWider ? wider : undefined };
}

function changed(tool: string): string {
  return `Cannot call "${tool}": what it would change, or the tool itself, is not what it was when the call was approved; ` +
    "look again and ask anew";
}
