import type { AgentLimits } from "../agent/agent_run.ts";
import type { SingleCall } from "../agent/call_provider.ts";
import type { AgentEvent, ReviewOutcome } from "../base/records/agent_event.ts";
import type { CancelReason } from "../base/cancel.ts";
import type { Caller } from "../base/records/caller.ts";
import type { Message } from "../base/records/message.ts";
import type { Run, RunKind, RunStatus } from "../base/records/run.ts";
import type { Write } from "../storage/store.ts";
import type { Approver } from "../tools/runtime/tool_executor.ts";
import type { ModelParameters, ToolChoice, ToolDeclaration } from "../providers/provider.ts";

/** Bounds of one run, where it has its own; 0 tokens: as configured. */
export type NarrowerLimits = Partial<Pick<AgentLimits, "maxIterations" | "maxToolCalls" | "tokensPerRun">>;

/** What starts a run. */
export interface RunRequest {
  readonly kind: RunKind;
  /** The client's messages, or one user message; with a conversation its history goes before them */
  readonly messages: readonly Message[];
  readonly model?: string | undefined;
  /** Model that answered before, for a run that goes on and named no model. It is asked again where it is still there */
  readonly lastModel?: string | undefined;
  /** Record under this conversation; `new` creates one; undefined keeps nothing but the run's journal */
  readonly conversationId?: string | "new" | undefined;
  readonly parentId?: string | undefined;
  /** 0 for what a person started. Default: one more than that of a parent at work, else 0 */
  readonly depth?: number | undefined;
  readonly caller: Caller;
  readonly requestId?: string | undefined;
  /**
   * Durable work survives a disconnect and a restart; attached work ends with its reader.
   * Source: docs/design/runs.md "Attached or durable"
   */
  readonly durable: boolean;
  /** Durable work only: records made in the one transaction that accepts the run. An `insert` lets one run of many start */
  readonly claim?: ((runId: string) => Write | readonly Write[]) | undefined;
  /** Attached work only: ends the run when it is aborted with a CancelError, and is aborted by the run's own end before its time. Default: one of the run's own */
  readonly controller?: AbortController | undefined;
  /** Attached work only: nobody reads along, so the provider may answer in one piece. Default false */
  readonly whole?: boolean | undefined;
  /** Attached work only: someone with scope `approve` follows the events and may answer an ask */
  readonly canApprove: boolean;
  /** Attached work only: who answers the policy's asks in place of that, as the parent's own approver */
  readonly approver?: Approver | undefined;
  /** A name of `[agents.<name>]`: its provider, model (unless one is named), system prompt, limits and tools. Default: none of them */
  readonly agent?: string | undefined;
  /** Which of the configured tools the run gets: `*`, names, `prefix*`; empty: none. Default: all of them */
  readonly tools?: readonly string[] | undefined;
  /** Bounds below the configured ones; a higher value changes nothing */
  readonly limits?: NarrowerLimits | undefined;
  /** Said to the model after the system prompt. Default: nothing */
  readonly instructions?: string | undefined;
  /**
   * In place of a model: one call through the same executor, policy, approvals and journal. `messages` and `model` are not used; the
   * run's result is the tool's output, and the tool's error ends it with `tool_failed`
   */
  readonly call?: SingleCall | undefined;
  /** `none`: the model gets no tool of the agent (header x-postern-tools) */
  readonly agentTools: "configured" | "none";
  /** Tools of the client: a call to one ends the reply with `tool_calls` */
  readonly clientTools: readonly ToolDeclaration[];
  readonly toolChoice?: ToolChoice | undefined;
  readonly parallelToolCalls?: boolean | undefined;
  readonly parameters: ModelParameters;
}

/** A started run. */
export interface RunHandle {
  readonly id: string;
  /** The model as resolved, in the form the reply names */
  readonly model: string;
  readonly conversationId: string | null;
  /**
   * Its events from the first on, ending after the terminal one; an empty array says that the model has begun to answer. Failures
   * are `error` events, save that a ProviderError before anything else is thrown by `next()`, so that HTTP can answer with a status.
   * May be read once. Leaving the iteration early cancels an attached run with `client_gone`.
   */
  events(): AsyncIterable<readonly AgentEvent[]>;
  cancel(reason: CancelReason): void;
  /** Whether a tool with an effect has run: an error reply then carries x-should-retry: false */
  hadEffect(): boolean;
  /** Tells whether the provider refused and is asked again: its next answer may be a refusal too. Default: not known */
  readonly isAskedAgain?: (() => boolean) | undefined;
}

export interface RunList {
  readonly runs: readonly Run[];
  readonly hasMore: boolean;
}

/** Positions in a run's events. */
export interface RunReach {
  /** The last seq in the journal */
  readonly recorded: number;
  /**
   * The furthest position a follower can have: of an ended run its last seq, of one at work as far as may have been shown, which a
   * crash can put beyond the journal's end
   */
  readonly furthest: number;
  /** True when more events follow by themselves, now or after a restart. False for a run that has ended or waits for a person's review. */
  readonly eventsFollow: boolean;
}

/** Decision of a person about a run that a crash interrupted in the middle of an effect. */
export interface RunReview {
  readonly action: "resume" | "close";
  /**
   * Used with `resume`. `done` and `unknown` become the results of the interrupted calls. `not_done` makes the calls again, through
   * the policy and with a new approval where the policy asks. Default `unknown`.
   */
  readonly outcome?: ReviewOutcome | undefined;
  /** Text for the model and for readers of the record; 1,000 characters at most. */
  readonly note?: string | undefined;
  readonly by: Pick<Caller, "via" | "tokenId">;
}

/** Everything that executes is a run started here. */
export interface RunSupervisor {
  /**
   * Accepts a run; a durable one is on disk when this resolves.
   * @throws {HttpError} 409 `conflict` when the claim was made before; 503 `overloaded`, `shutting_down` or `agent_unavailable`; 403 `insufficient_scope` for a
   * conversation of another token; 400 `invalid_request` for an unknown agent
   */
  start(request: RunRequest): Promise<RunHandle>;
  get(id: string): Promise<Run | undefined>;
  /** Returns who began a run: the token whose rights it works with. undefined as for `follow` */
  startedBy(id: string): Promise<Pick<Caller, "tokenId"> | undefined>;
  list(
    options: { readonly status?: RunStatus | undefined; readonly after?: string | undefined; readonly limit: number },
  ): Promise<RunList>;
  /** Really stops the work, and its children with it; of durable work it is on disk. @returns false when the run is unknown or has ended */
  cancel(id: string, reason: CancelReason): Promise<boolean>;
  /**
   * A run's events after `afterSeq`, from the journal and then as they come, ending after the terminal one. Each follower reads at
   * its own pace and is only woken, so a slow one costs nothing but its place. After a restart the seq jumps ahead, so that no
   * position is ambiguous. Ends without a terminal event when `signal` aborts and when a shutdown stops the run; an end with
   * needs_review that a person took back is shown as a notice.
   * @returns undefined for a run that is unknown or of which nothing is kept
   */
  follow(
    id: string,
    options: { readonly afterSeq: number; readonly signal: AbortSignal },
  ): Promise<AsyncIterable<readonly AgentEvent[]> | undefined>;
  /** How far a run's events have come. undefined as for `follow` */
  reach(id: string): Promise<RunReach | undefined>;
  /**
   * Resolves when the run is over: ended, or needs_review. undefined for an unknown run, and for one of which nothing was kept.
   * @throws {CancelError} when the signal aborts first, or a shutdown stops the run
   */
  ended(id: string, signal: AbortSignal): Promise<Run | undefined>;
  /** Runs at work now */
  active(): number;
  /** Whether a run of this conversation is at work or waits for its turn */
  worksIn(conversationId: string): boolean;
  /**
   * Ends a run that is `needs_review`, or lets it go on; on disk and in the audit when it resolves.
   * @throws {HttpError} 404 `not_found`; 409 `conflict` for a run in another state, or one that cannot go on;
   * 400 `invalid_request` for a note that is too long
   */
  resolve(id: string, review: RunReview): Promise<Run>;
  /**
   * Takes up what a crash or a shutdown left open: durable runs go on, `needs_review` where an effect was in flight, attached ones
   * `failed`. Call once at start, when all that tools need is there
   */
  recover(): Promise<void>;
  /**
   * Attached work may finish until `graceMs`, then is cancelled with `shutdown`; durable work stops after its last finished
   * step, one with an effect at work as soon as that has ended, and goes on at the next start
   */
  drain(graceMs: number): Promise<void>;
}
