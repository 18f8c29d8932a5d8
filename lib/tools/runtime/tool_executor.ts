import type { Caller } from "../../base/records/caller.ts";
import type { ObjectJsonSchema } from "../../base/records/json_schema.ts";
import type { RuleSubject } from "../../guard/rule_match.ts";
import type { CallBinding } from "./bind_call.ts";
import type { Access, Inherited, PreparedCall, Tool, ToolResult, ToolSource } from "./tool.ts";
import type { Judgement } from "./tool_policy.ts";

/** A tool as `/v1/tools` and `postern tools` show it. */
export interface ToolInfo {
  readonly name: string;
  readonly description: string;
  readonly access: Access;
  readonly enabled: boolean;
  /** Why it is off and what would turn it on; null when enabled */
  readonly reason: string | null;
  readonly source: ToolSource;
  readonly input_schema: ObjectJsonSchema | undefined;
}

/** Asked when the policy says `ask`. */
export interface ApprovalRequest {
  readonly tool: string;
  readonly prepared: PreparedCall;
  /** The input for the person who answers: known secrets masked */
  readonly input: unknown;
  /** What the answer counts for; the executor compares it again just before the call runs */
  readonly binding: CallBinding;
  readonly workspaceRoot: string;
  /** Properties of the call that remembered answers are looked up by */
  readonly subject: RuleSubject;
  readonly reason: string;
  readonly rule: string;
  readonly caller: Caller;
  readonly runId: string;
  readonly callId: string;
}

/**
 * Source of a denial, as the audit's `rule` has it: a person (`approval`), nobody, since nobody was asked
 * (`nobody_could_answer`), a question that nobody answered in time, one that still waits, or a failure of the approver.
 */
export type DenialRule =
  | "approval"
  | "nobody_could_answer"
  | "approval_expired"
  | "approval_waits"
  | "approval_failed";

/** Answer to a question about a call. `reason` of a denial is told to the model: why, and what would allow the call. */
export type ApprovalAnswer =
  | { readonly decision: "approve"; readonly reason: string; readonly approvalId?: string }
  | {
    readonly decision: "deny";
    readonly reason: string;
    /** Required, so that no path says of a person what no person said */
    readonly rule: DenialRule;
    readonly approvalId?: string;
  };

/** Returns the denial of a call that nobody was asked about. @param why one sentence, with what would allow the call */
export function nobodyCouldAnswer(why: string): Extract<ApprovalAnswer, { decision: "deny" }> {
  return { decision: "deny", rule: "nobody_could_answer", reason: `Denied (nobody_could_answer): ${why}` };
}

export type Approver = (request: ApprovalRequest, signal: AbortSignal) => Promise<ApprovalAnswer>;

export interface ToolCallRequest {
  readonly name: string;
  /** JSON object as text, or the tool's plain-text form */
  readonly input: string;
  readonly runId: string;
  readonly callId: string;
  /** Of the HTTP request it came by, for the audit. Default none */
  readonly requestId?: string | undefined;
  /** Default null: outside a conversation */
  readonly conversationId?: string | null;
  readonly caller: Caller;
  readonly depth: number;
  /** Of the run that makes the call. Default: none makes it */
  readonly inherited?: Inherited | undefined;
  /** Its caller makes the call itself, not a model on its behalf. Default false */
  readonly direct?: boolean;
  readonly signal: AbortSignal;
  readonly approver: Approver;
  /** Only these tools exist for the caller; undefined: all enabled ones */
  readonly allowed?: readonly string[] | undefined;
  /** Journals the call before it runs: resolves when durable. Not called for a call that does not run */
  readonly onStart?: (prepared: PreparedCall) => Promise<void>;
  readonly onProgress?: (message: string) => void;
}

export interface ToolCallOutcome {
  readonly result: ToolResult;
  /** Whether the tool ran; false when the input was bad, or the call disabled or denied */
  readonly ran: boolean;
  /** Of the prepared call; undefined when the input could not be prepared */
  readonly access: Access | undefined;
  /** The output is another program's, whatever access the operator gave it: the model gets it as what came from outside */
  readonly outside?: boolean;
  /** Set when a person may still answer for exactly this call */
  readonly approvalId?: string;
}

/** A call that is not made yet. */
export type BoundCall =
  | { readonly ok: true; readonly binding: CallBinding; readonly access: Access }
  | { readonly ok: false; readonly reason: string };

/**
 * Makes every tool call: find, prepare, decide, approve, decide again, journal, run under signal
 * and time limit, cap, redact, audit, count. A failed tool is a result with `isError`; only a CancelError is thrown.
 * Source: docs/design/policy.md "The order of a call"
 */
export interface ToolExecutor {
  /** All known tools by name, enabled or not, under the newest configuration */
  list(): readonly ToolInfo[];
  get(name: string): ToolInfo | undefined;
  /** Enabled tools that match the patterns of `[agent] tools` (`*`, names, `prefix*`) */
  enabled(patterns: readonly string[]): readonly Tool[];
  /** Access of this call without running it; undefined when it cannot be prepared: decides what may run in parallel */
  accessOf(name: string, input: string): Access | undefined;
  /**
   * What an approval of this call is bound to now, or why the call cannot run. Has no effect.
   * @throws {CancelError} when the signal aborts
   */
  bind(name: string, input: string, signal: AbortSignal): Promise<BoundCall>;
  /** An input as events and people are shown it: known secrets masked */
  shown(input: unknown): unknown;
  /** What `call` would do with this input, and why; has no effect. undefined for an unknown tool */
  explain(name: string, input: string): Judgement | undefined;
  call(request: ToolCallRequest): Promise<ToolCallOutcome>;
}
