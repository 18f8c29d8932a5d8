import type { ToolInfo } from "../../base/records/tool_info.ts";
import type { CancelError } from "../../base/cancel.ts";
import type { HttpError } from "../../base/errors.ts";
import type { WrittenFile } from "../../base/records/agent_event.ts";
import type { DeniedBy } from "../../base/records/approval.ts";
import type { MaskedSecret } from "../../base/redact.ts";
import type { RunTaint, Taint } from "../../base/taint.ts";
import type { AskableClient } from "./askable_client.ts";
import type { Access, PreparedCall, Tool } from "./tool.ts";
import type {
  Approver,
  CallBinding,
  CallContext,
  CallPreview,
  CallScope,
  Inherited,
  ReadSkill,
  ToolResult,
  WholeResult,
} from "./tool_call.ts";
import type { CheckedPicture } from "./check_pictures.ts";
import type { Judgement, ToolSwitch } from "./tool_policy.ts";

/** Listeners of one call, while it is made. */
export interface CallListeners {
  /** Writes the call to the journal before it runs, and resolves when that is on disk. Not called for a call that does not run */
  readonly onStart?: (prepared: PreparedCall) => Promise<void>;
  readonly onProgress?: (message: string) => void;
  /** Receives each file that the call has written or removed through the files service */
  readonly onWritten?: (file: WrittenFile) => void;
}

/** Request for one tool call. */
export interface ToolCallRequest extends CallListeners {
  readonly name: string;
  /** JSON object as text, or the tool's plain-text form */
  readonly input: string;
  readonly callId: string;
  readonly scope: CallScope;
  /** Rights and limits of the run that makes the call. Default: no run makes it */
  readonly inherited?: Inherited | undefined;
  readonly approver: Approver;
  /**
   * Digest of the state that a person approved this very call for before it was made, such as a step of a procedure: in another state it does
   * not run, whatever the policy says. Default: nobody did
   */
  readonly approvedDigest?: string | undefined;
  /** Patterns of the tools that exist for the caller. undefined: all enabled tools */
  readonly allowed?: readonly string[] | undefined;
  /** Model that makes the call. Default: it sees no pictures, and answers no tool */
  readonly model?: CallingModel | undefined;
  /** Client of MCP that makes the call. Default: the call comes from no such client */
  readonly client?: CallingClient | undefined;
}

/** Model that makes a call. */
export interface CallingModel {
  /** True when it is shown pictures. Default false */
  readonly sees?: boolean | undefined;
  /** As in CallContext. Default: it answers no tool */
  readonly sample?: CallContext["sample"];
}

/** Client of MCP that makes a call, and takes the parts of a result beside its text. */
export interface CallingClient {
  /** Takes the tool's messages for the log of the client. Default: it takes none */
  readonly onTold?: CallContext["tell"];
  /** Default: it cannot be asked */
  readonly asks?: AskableClient | undefined;
}

/** Outcome of one tool call. */
export interface ToolCallOutcome {
  readonly result: ToolResult;
  /** true when the tool ran; false when the input was bad, the tool off or the call denied */
  readonly ran: boolean;
  /** Access of the prepared call. undefined when the input could not be prepared */
  readonly access: Access | undefined;
  /** Outside content that the output has: the model gets it in an envelope. Default: none */
  readonly taint?: Taint;
  /** Skill that the output is from. Default: none */
  readonly skill?: ReadSkill;
  /** Pictures of the result that are within the bounds. Default: none */
  readonly pictures?: readonly CheckedPicture[];
  /** True when the call was cut off, and nobody knows whether it took effect. Default false */
  readonly isUnknown?: boolean;
  /** The result in its parts, bounded and masked, where the request asked for them and the tool gives them. Default: the output */
  readonly whole?: WholeResult;
  /** Key that a person is offered to turn the tool on with: the call was refused since the tool is off. Default: nothing is offered */
  readonly turnOn?: ToolSwitch;
  /** Source of the denial of a call that was not made. Default: nobody denied it */
  readonly deniedBy?: DeniedBy | undefined;
  /** Present when a person may still answer for exactly this call */
  readonly approvalId?: string;
}

/** Outcome of a call, as the metric counts it. */
export type Outcome =
  | "ok"
  | "error"
  | "bad_input"
  | "unknown"
  | "disabled"
  | "denied"
  | "timeout"
  | "cancelled"
  | "failed";

/** End of a call that ran: its result, or the cancellation. */
export type Ended = {
  readonly outcome: Outcome;
  readonly result: ToolResult;
  /** With outcome `denied`: rule for the audit. Default `owner` */
  readonly rule?: string;
  /** True when nobody knows whether the call took effect */
  readonly isUnknown?: boolean;
  /** Present when the database that gateways share was down */
  readonly away?: HttpError;
} | {
  readonly outcome: Outcome;
  /** The cancellation, or the refusal of a call without a run that found the database down and has changed nothing */
  readonly error: CancelError | HttpError;
};

/** State that an approval of a call would be bound to, or the reason why the call cannot run. */
export type BoundCall =
  | {
    readonly ok: true;
    readonly binding: CallBinding;
    readonly access: Access;
    /** SHA-256 of the input's canonical JSON */
    readonly inputDigest: string;
    /** Looks what the call would do, for the person who is asked */
    readonly preview: () => Promise<CallPreview>;
  }
  | { readonly ok: false; readonly reason: string };

/**
 * Runs every tool call: find, prepare, decide, screen, approve, decide again, journal, run under signal and time limit, cap, redact, audit,
 * count. A tool that fails gives a result with `isError`. Only a CancelError is thrown, and in a cluster HttpError `storage_unavailable` for a
 * call without a run when nothing has happened.
 * Source: docs/design/policy.md "The order of a call"
 */
export interface ToolExecutor {
  /** Returns all known tools by name, enabled or not, under the newest configuration */
  list(): readonly ToolInfo[];
  get(name: string): ToolInfo | undefined;
  /** Returns the enabled tools that match the patterns of `[agent] tools` (`*`, names, `prefix*`) */
  enabled(patterns: readonly string[]): readonly Tool[];
  /** Returns the access of this call, which decides about running it in parallel. undefined when the call cannot be prepared */
  accessOf(name: string, input: string): Access | undefined;
  /**
   * Returns the state that an approval of this call would be bound to now, or why the call cannot run. Has no effect.
   * @throws {CancelError} when the signal aborts
   */
  bind(name: string, input: string, signal: AbortSignal): Promise<BoundCall>;
  /** Returns an input as events and people are shown it: known secrets masked */
  shown(input: unknown): unknown;
  /** Returns the secrets that are masked in an input */
  masked(input: unknown): readonly MaskedSecret[];
  /** Returns what the policy says to this input, and why. Looks at no file. undefined for an unknown tool */
  judge(name: string, input: string): Judgement | undefined;
  /**
   * Returns what `call` would do with this input, and why: the same steps, up to the first effect. undefined for an unknown tool
   * @param options.run what the run has read. Default: no run makes the call
   * @throws {CancelError} when the signal aborts
   */
  explain(
    name: string,
    input: string,
    options: { readonly run?: RunTaint; readonly signal: AbortSignal },
  ): Promise<Judgement | undefined>;
  /**
   * Runs one call through all the steps above.
   * @throws {CancelError} when the request's signal aborts; {HttpError} `storage_unavailable` in a cluster, see above
   */
  call(request: ToolCallRequest): Promise<ToolCallOutcome>;
}
