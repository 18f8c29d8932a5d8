import type { Approval, BoundState } from "../../base/records/approval.ts";
import type { CommandLineParts } from "../../base/parse_command_line.ts";
import type { MaskedSecret } from "../../base/redact.ts";
import type { EffectRight } from "../../base/effect_right.ts";
import type { ReadLinks, RunTaint, Taint } from "../../base/taint.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Elicitation } from "../../guard/elicitation.ts";
import type { Access, Effects } from "../../guard/policy.ts";
import type { RuleSubject } from "../../guard/rule_match.ts";
import type { Patience } from "../../storage/read_records.ts";
import type { CommandContainment } from "../../system/process/containment.ts";
import type { AskableClient, ElicitationAnswer, SampledReply, SampleRequest } from "./askable_client.ts";
import type { ToolContent, ToolPicture } from "./tool_content.ts";

/** Content of a call whose input was checked: what the policy, an approval and the audit look at. */
export interface CheckedCall {
  readonly input: unknown;
  /** SHA-256 of the input's canonical JSON (RFC 8785), hexadecimal */
  readonly digest: string;
  /** May depend on the input */
  readonly access: Access;
  readonly effects: Effects;
  /** True when making the call twice does no more than making it once: it may be made again after a crash. Default false */
  readonly repeatable?: boolean | undefined;
  /**
   * True for a change of the agent's own records that a tainted run may make as any other: the record carries the taint, or a person is
   * asked anyway. Default false
   */
  readonly carriesTaint?: boolean | undefined;
}

/** Result of a call: `output` is text for the model, `data` is for programs. */
export interface ToolResult {
  readonly output: string;
  readonly isError: boolean;
  readonly data?: unknown;
  /** Outside content that the output has by way of records that were made from it. Default: none */
  readonly taint?: Taint;
  /** Files whose content the output has, as the call's paths name them. Default: all paths of a call that only reads */
  readonly reads?: readonly string[];
  /** Files and folders whose names the output has, with the names of all below them, as the call's paths name them. Default: none */
  readonly lists?: readonly string[];
  /** Command whose output the result has, where another call started it */
  readonly command?: readonly string[];
  /** Parts of the line that the command has bash run. Default: it is no such line */
  readonly line?: CommandLineParts | undefined;
  /** Pictures for a model that sees. The executor checks them; it leaves out what is too large, and says so. Default: none */
  readonly pictures?: readonly ToolPicture[];
  /** The result in its parts, for a caller that takes more than text. The executor bounds and masks it. Default: the output */
  readonly whole?: WholeResult;
  /** Skill that the output is from: instructions that a person lets the agent follow. Of built-in tools alone. Default: none */
  readonly skill?: ReadSkill;
}

/** Skill that a run has read. */
export interface ReadSkill {
  readonly name: string;
  /** Patterns of tools that the run may not call any more */
  readonly disallowedTools: readonly string[];
}

/** Result as clients of MCP get it. */
export interface WholeResult {
  /** The parts, in their order */
  readonly content: readonly ToolContent[];
  /** Structured content. Default: none */
  readonly structured?: unknown;
}

/**
 * Scope of a call: the work that it belongs to, and on whose behalf. Made once, where the work begins, and handed on whole to the executor,
 * the audit and whoever is asked for an approval.
 */
export interface CallScope {
  readonly runId: string;
  /** Id of the HTTP request that the work came by. undefined when it came by none */
  readonly requestId?: string | undefined;
  /** null outside a conversation */
  readonly conversationId: string | null;
  readonly caller: Caller;
  /** Depth of the caller's run: 0 for a run that a person started, 1 for its sub-agents, and so on */
  readonly depth: number;
  /** True when the caller makes the call itself, not a model for the caller. Default false */
  readonly direct?: boolean | undefined;
  /** Outside content that the run has read: what its calls read is added. Default: no run makes the call */
  readonly taint?: RunTaint | undefined;
  readonly signal: AbortSignal;
  /** Right that the doors to the world ask for, last before each effect. Default: effects need none */
  readonly right?: EffectRight | undefined;
  /** Waits for the database that gateways share. Default: no run waits for it */
  readonly patience?: Patience | undefined;
}

/** The caller's part of a call's context: the scope as far as a tool sees it, and the rights that it passes on. */
export interface CallContext extends Omit<CallScope, "direct" | "taint" | "right" | "patience"> {
  readonly callId: string;
  /** Patterns of the tools that exist for the caller. undefined: all enabled tools */
  readonly allowed?: readonly string[] | undefined;
  /** Outside content that the run has read: what the call writes or starts is made from it */
  readonly taint: Taint;
  /** Addresses that the run has read. undefined for a call outside a run */
  readonly links?: ReadLinks | undefined;
  /** undefined for a call outside a run */
  readonly inherited?: Inherited | undefined;
  /** True when the caller makes the call itself, not a model for the caller. With the scope `approve` it counts as a person's approval */
  readonly direct: boolean;
  /** True when the model that made the call is shown pictures */
  readonly sees: boolean;
  /** Reports progress to the readers of the run */
  progress(message: string): void;
  /** Sends a message for the log of the client that made the call. Absent: the call came from no such client */
  readonly tell?: ((level: LogSeverity, message: string) => void) | undefined;
  /** Client of MCP that made the call. Absent: the call came from no such client */
  readonly client?: Pick<AskableClient, "can" | "sample" | "roots"> | undefined;
  /**
   * Asks a model for the call's server, without tools: the run's, on its budget, or that of the client that made the call. Absent: there is
   * no model
   */
  readonly sample?: ((request: SampleRequest, signal: AbortSignal) => Promise<SampledReply>) | undefined;
  /**
   * Puts a question of the call's server, or of the program, to a person, and waits: in the client of MCP that made the call where it can,
   * as an approval otherwise. The time limit of the call stands still meanwhile. Absent: nobody can be asked
   * @throws {CancelError} when the signal aborts
   */
  readonly elicit?: ((elicitation: Elicitation, options?: ElicitOptions) => Promise<ElicitationAnswer>) | undefined;
}

/** Options of a question to a person. */
export interface ElicitOptions {
  /** Takes the question back. Default: the call's signal */
  readonly signal?: AbortSignal | undefined;
  /** Name of the question in the request to a client. Default: a number */
  readonly key?: string | undefined;
  /** Form as the program wrote it, which a client is sent in place of the checked one. Default: the checked one */
  readonly schema?: Readonly<Record<string, unknown>> | undefined;
}

/** Severities of messages for a client's log, the least severe first. Source: RFC 5424; Model Context Protocol, "Logging" */
export const LOG_SEVERITIES = [
  "debug",
  "info",
  "notice",
  "warning",
  "error",
  "critical",
  "alert",
  "emergency",
] as const;
/** Severity of a message for a client's log. */
export type LogSeverity = (typeof LOG_SEVERITIES)[number];

/** Rights and limits that a run started by a tool inherits from the run that called the tool. */
export interface Inherited {
  /** Limits of the caller's run; the started run has the same or lower ones. 0 tokens: no limit */
  readonly limits: { readonly maxIterations: number; readonly maxToolCalls: number; readonly tokensPerRun: number };
  /** Patterns of the tools that a started run may have, when the caller's run is only this one call. undefined: the caller's tools */
  readonly tools: readonly string[] | undefined;
  /** True when the caller's run goes on after a restart */
  readonly durable: boolean;
  /** Answers approvals for the caller's run, and shows them to its reader */
  readonly approver: Approver;
}

/**
 * Returns the patterns of the tools that a started or scheduled run may have at most: those of the calling run. A run that is only
 * this one call may pass on more tools than it has itself. undefined: all enabled tools.
 */
export function toolsPassedOn(
  { allowed, inherited }: Pick<CallContext, "allowed" | "inherited">,
): readonly string[] | undefined {
  return inherited?.tools ?? allowed;
}

/** The state that an approval of one call counts for (docs/design/policy.md "Binding"). */
export interface CallBinding {
  /** SHA-256, hexadecimal, over tool, input, workspace, schema, identity of the executable, files to be changed, `bound` and containment */
  readonly digest: string;
  /** Files that the call may change. `sha256` is null for a file that does not exist yet */
  readonly files: readonly { readonly path: string; readonly sha256: string | null }[];
  /** Further states that the approval is bound to, for the person who answers */
  readonly bound: readonly BoundState[];
  /** Containment of the programs that the call starts. null when the call starts none */
  readonly containment: CommandContainment | null;
  /** Deepest folder that holds everything the call changes: absolute, links resolved. undefined when the call changes no files */
  readonly folder?: string | undefined;
  /** Version of each file, by the path as the call names it. undefined for a file that does not exist yet */
  readonly versions: ReadonlyMap<string, string | undefined>;
}

/** Effects of a call as far as they are known before, known secrets masked: each part as an approval has it. */
export type CallPreview = Pick<Approval, "changes" | "fails" | "commands">;

/** Request for the approval of one call, made when the policy says `ask`. */
export interface ApprovalRequest {
  readonly tool: string;
  readonly prepared: CheckedCall;
  /** The input for the person who answers: known secrets masked */
  readonly input: unknown;
  /** Secrets that are masked in the input, each of them the operator's own */
  readonly masked?: readonly MaskedSecret[];
  /** State that the answer counts for; the executor compares it again just before the call runs */
  readonly binding: CallBinding;
  /** Looks what the call would do, for the person who is asked. Default: nothing is known of it */
  readonly preview?: (() => Promise<CallPreview>) | undefined;
  /** True: an answer may bring another input. Default: the call is made as it stands */
  readonly mayBeEdited?: boolean | undefined;
  /** Properties of the call that remembered answers are looked up by */
  readonly subject: RuleSubject;
  readonly reason: string;
  readonly rule: string;
  readonly callId: string;
  readonly scope: CallScope;
}

/**
 * Source of a denial, as the audit records it in `rule`: a person (`approval`), nobody because nobody could be asked
 * (`nobody_could_answer`), an approval that expired or still waits, or an approver that failed.
 */
export type DenialRule =
  | "approval"
  | "nobody_could_answer"
  | "approval_expired"
  | "approval_waits"
  | "approval_failed";

/** Answer to an approval. The `reason` of a denial goes to the model: why, and what would allow the call. */
export type ApprovalAnswer =
  | {
    readonly decision: "approve";
    readonly reason: string;
    readonly approvalId?: string;
    /** Call that the person wants in place of the one that was asked about. Default: that very call */
    readonly edited?: ApprovedEdit | undefined;
  }
  | {
    readonly decision: "deny";
    readonly reason: string;
    /** Required, so that no denial is recorded as a person's by default */
    readonly rule: DenialRule;
    readonly approvalId?: string;
    /** With the rule `approval`: who denied. Default: a person */
    readonly by?: "person" | "program";
  };

/** Input that a person put in place of a call's, and the digest of what its approval is bound to. */
export interface ApprovedEdit {
  readonly input: unknown;
  readonly digest: string;
}

/** Returns the denial of a call when nobody could be asked. @param why one sentence, with what would allow the call */
export function nobodyCouldAnswer(why: string): Extract<ApprovalAnswer, { decision: "deny" }> {
  return { decision: "deny", rule: "nobody_could_answer", reason: `Denied (nobody_could_answer): ${why}` };
}

/** Function that answers an approval. Rejects with CancelError when the signal aborts. */
export interface Approver {
  (request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalAnswer>;
  /** Puts the question of a running call to whoever answers. Default: nobody can be asked. Rejects as the approver */
  readonly elicit?: ((request: ElicitationRequest, signal: AbortSignal) => Promise<ElicitationAnswer>) | undefined;
}

/** Question of the server of a running call, or of the program whose tool it calls. */
export interface ElicitationRequest {
  readonly elicitation: Elicitation;
  readonly tool: string;
  readonly access: Access;
  /** Input of the call for the person who answers: known secrets masked */
  readonly input: unknown;
  readonly inputDigest: string;
  readonly workspaceRoot: string;
  readonly callId: string;
  readonly scope: CallScope;
}
