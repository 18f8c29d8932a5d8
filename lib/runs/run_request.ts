import type { AgentLimits } from "../agent/agent_run.ts";
import type { SingleCall } from "../agent/call_provider.ts";
import type { AgentEvent, ReviewOutcome } from "../base/records/agent_event.ts";
import type { CancelReason } from "../base/cancel.ts";
import type { Actor, Caller } from "../base/records/caller.ts";
import type { Message } from "../base/records/message.ts";
import type { MessageMode, Run, RunKind, RunStatus } from "../base/records/run.ts";
import type { Taint } from "../base/taint.ts";
import type { Write } from "../storage/store.ts";
import type { ConversationPlace } from "./conversations/conversation_records.ts";
import type { Approver } from "../tools/runtime/tool_call.ts";
import type { ModelWishes } from "../providers/provider.ts";

/** Bounds that one run has of its own; 0 tokens: as configured. */
export type NarrowerLimits = Partial<Pick<AgentLimits, "maxIterations" | "maxToolCalls" | "tokensPerRun">>;

/** Work that a run is made for: on whose behalf, and from what. */
export interface RunAuthor {
  readonly caller: Caller;
  readonly requestId?: string | undefined;
  /** True: the client that began it shows its user where a question of the run is answered. Default false */
  readonly showsQuestions?: boolean | undefined;
  readonly parentId?: string | undefined;
  /** 0 for a run that a person started. Default: one more than the depth of a parent at work, else 0. */
  readonly depth?: number | undefined;
  /** Workspace of a cluster whose gateways alone do the run, where its tools need one. Default: that of the gateway that accepts it */
  readonly workspace?: string | undefined;
  /** Outside content that the request was made from: by a run that has read it, or a schedule that such a run wrote. Default: none. */
  readonly taint?: Taint | undefined;
  /** Addresses that the writer of the messages had read, as `ReadLinks.sharedIn` gives them. Default: none. */
  readonly links?: readonly string[] | undefined;
  /**
   * Place that the run goes on behind: in the conversation of the place, or in a branch where something follows there. The history of a
   * condensing run is not continued, and goes before its messages. Default: `conversationId` alone says
   */
  readonly after?: ConversationPlace | undefined;
  /** The message is for the run at work in the conversation, or for this one of it. Default: it is the next turn */
  readonly steers?: { readonly mode: MessageMode; readonly runId?: string | undefined } | undefined;
}

/** Reader of a run, who follows its events as they come. */
export interface RunReader {
  /** Aborting it with a CancelError says that the reader has left. An attached run ends then, and aborts it when it ends early. Default: a new controller. */
  readonly controller?: AbortController | undefined;
  /** True when nobody reads the events as they come, so the provider may answer in one piece. Default false. */
  readonly whole?: boolean | undefined;
  /** True when somebody with the scope `approve` follows the events and may answer an approval. Default false. */
  readonly canApprove?: boolean | undefined;
  /** Approver to use in place of the run's own, for example that of the parent. */
  readonly approver?: Approver | undefined;
}

/** Part of the gateway's agent that a run gets. It narrows what is configured. */
export interface AskedAgent {
  /** Name of `[agents.<name>]`, which gives provider, model (unless one is named), system prompt, limits and tools. Default: no agent. */
  readonly name?: string | undefined;
  /** Patterns of the configured tools that the run gets: `*`, names, `prefix*`; empty: none. Default: all. */
  readonly tools?: readonly string[] | undefined;
  /** Bounds below the configured ones. A higher value changes nothing. */
  readonly limits?: NarrowerLimits | undefined;
  /** Text for the model after the system prompt. Default: none. */
  readonly instructions?: string | undefined;
}

/** The input that a run is started with. */
export interface RunRequest {
  readonly kind: RunKind;
  readonly by: RunAuthor;
  /** Messages of the client, or one user message. The history of a conversation goes before them. */
  readonly messages: readonly Message[];
  readonly model?: string | undefined;
  /** Default: no tools of the client, and the model asked as its vendor does */
  readonly wishes?: ModelWishes | undefined;
  /** Conversation to record under; `new` creates one. Undefined: only the run's journal is kept. */
  readonly conversationId?: string | "new" | undefined;
  /**
   * true: the run survives a disconnect and a restart. false: it does where its kind outlives its reader, else it ends with that.
   * Source: docs/design/runs.md "Attached or durable"
   */
  readonly durable: boolean;
  /**
   * Writes for the transaction that accepts a durable run, where an `insert` lets one run of many start; else for that of the first record
   * of a run.
   */
  readonly claim?: ((runId: string) => Write | readonly Write[]) | undefined;
  /** Reader that the run is started for. Default: none, or for attached work one who can approve nothing */
  readonly reader?: RunReader | undefined;
  /** `none`: the model gets no tool of the agent (header x-postern-tools). */
  readonly agentTools: "configured" | "none";
  /** Default: the gateway's own agent with all that is configured */
  readonly agent?: AskedAgent | undefined;
  /**
   * A single tool call in place of a model, through the same executor, policy, approvals and journal. `messages` and `model` are not used.
   * The run's result is the tool's output. An error of the tool ends the run with `tool_failed`.
   */
  readonly call?: SingleCall | undefined;
}

/** A started run. */
export interface RunHandle {
  readonly id: string;
  /** The resolved model, as the reply names it. */
  readonly model: string;
  readonly conversationId: string | null;
  /** Run at work that takes the message in, or that it has ended; see `Run.steers`. Default: none */
  readonly steers?: Run["steers"];
  /** false: the run ends with its reader */
  readonly durable: boolean;
  /**
   * Returns the run's events from the first to the terminal one; an empty array says that the model has begun to answer. Failures
   * are `error` events. A ProviderError before anything else is thrown by `next()`, so that HTTP can answer with a status. May be
   * read once. Leaving the iteration early cancels an attached run with `client_gone`.
   * @param onPace see FollowOptions. Default: nothing is called
   */
  events(onPace?: FollowOptions["onPace"]): AsyncIterable<readonly AgentEvent[]>;
  /** Stops the run, whoever reads it. */
  cancel(reason: CancelReason): void;
  /** Ends the reading: that of an attached run ends the run with this reason, and a durable run goes on. */
  leave(reason: CancelReason): void;
  /**
   * Tells whether a tool with an effect has run. An error reply then carries x-should-retry: false. Undefined: only its events tell, since it
   * may have been at work at another gateway, or before a restart.
   */
  hadEffect(): boolean | undefined;
  /** Tells whether the provider refused and is asked again: its next answer may be a refusal too. Default: not known. */
  readonly isAskedAgain?: (() => boolean) | undefined;
}

/** A page of runs. */
export interface RunList {
  readonly runs: readonly Run[];
  readonly hasMore: boolean;
}

/** Page of runs to list. */
export interface ListRunsOptions {
  readonly status?: RunStatus | undefined;
  /** Id of the last run that the client has. */
  readonly after?: string | undefined;
  readonly limit: number;
}

/** Place where a follower of a run begins, and the signal that ends the reading. */
export interface FollowOptions {
  readonly afterSeq: number;
  /** Ends the iteration without an error. The run goes on. */
  readonly signal: AbortSignal;
  /** Runs when the events begin to come in another way; an empty array follows. At the beginning they are live. Default: nothing runs */
  readonly onPace?: ((pace: RunPace) => void) | undefined;
}

/**
 * How the events of a run come that is at work at another gateway of the cluster: as they happen, or each turn when it is complete.
 * `why` says what is missing, as a part of a sentence.
 */
export type RunPace = { readonly live: true } | { readonly live: false; readonly why: string };

/** Positions in a run's events. */
export interface RunReach {
  /** The last seq in the journal. */
  readonly recorded: number;
  /**
   * The furthest position that a follower can have. For an ended run this is its last seq. For a run at work this is the furthest seq
   * that may have been shown, which can be beyond the journal's end after a crash.
   */
  readonly furthest: number;
  /** True when more events follow by themselves, now or after a restart. False for a run that has ended or waits for a person's review. */
  readonly eventsFollow: boolean;
}

/** Decision of a person about a run that a crash interrupted in the middle of an effect. */
export interface RunReview {
  readonly action: "resume" | "close";
  /**
   * Outcome of the interrupted calls, with `resume`. `done` and `unknown` become the results of the interrupted calls. `not_done` makes the calls again, through
   * the policy and with a new approval where the policy asks. Default `unknown`.
   */
  readonly outcome?: ReviewOutcome | undefined;
  /** Text for the model and for readers of the record; 1,000 characters at most. */
  readonly note?: string | undefined;
  readonly by: Actor;
}

/** Everything that executes is a run started here. */
export interface RunSupervisor {
  /**
   * Accepts a run; a durable one is on disk when this resolves.
   * @throws {HttpError} 409 `conflict` when the claim was made before, and for a place without a history; 503 `overloaded`, `shutting_down`, `halted` or `agent_unavailable`; 403 `insufficient_scope` for a
   * conversation of another token; 400 `invalid_request` for an unknown agent
   */
  start(request: RunRequest): Promise<RunHandle>;
  /**
   * Does work of a model that is no run, such as vectors of texts, within the budget of the day.
   * @param input most tokens that the work may use
   * @param work returns how many it has used; undefined: all of `input` counts
   * @throws {HttpError} 503 `shutting_down`, `halted`; {CancelError} `budget`; what the work throws
   */
  spend<T extends { readonly tokens?: number | undefined }>(
    input: number,
    signal: AbortSignal,
    work: () => Promise<T>,
  ): Promise<T>;
  get(id: string): Promise<Run | undefined>;
  /** Returns the token with whose rights a run works. Undefined as for `follow`. */
  startedBy(id: string): Promise<Pick<Caller, "tokenId"> | undefined>;
  /** Returns runs, the newest first. */
  list(options: ListRunsOptions): Promise<RunList>;
  /**
   * Stops the work and its sub-agents. For durable work this is on disk first.
   * @returns false when the run is unknown or has ended
   */
  cancel(id: string, reason: CancelReason): Promise<boolean>;
  /**
   * Returns a run's events after `afterSeq`, from the journal and then as they come, to the terminal one. Each follower reads at its
   * own pace, so a slow one costs nothing but its place. After a restart the seq jumps ahead, so that no position is ambiguous. Ends
   * without a terminal event when `signal` aborts and when a shutdown stops the run. An end with needs_review that a person took back
   * is shown as a notice.
   * @returns undefined for a run that is unknown or of which nothing is kept
   */
  follow(
    id: string,
    options: FollowOptions,
  ): Promise<AsyncIterable<readonly AgentEvent[]> | undefined>;
  /**
   * Returns the events of a run after `afterSeq` while it is at work at this very gateway, for another gateway of the cluster. Ends when
   * the run leaves this gateway. Undefined for a run that is not at work here.
   */
  followHere(id: string, options: FollowOptions): AsyncIterable<readonly AgentEvent[]> | undefined;
  /** Returns how far a run's events have come. Undefined as for `follow`. */
  reach(id: string): Promise<RunReach | undefined>;
  /**
   * Resolves when the run is over: ended, or needs_review. Undefined for an unknown run and for a run that kept nothing.
   * @throws {CancelError} when the signal aborts first, or a shutdown stops the run
   */
  ended(id: string, signal: AbortSignal): Promise<Run | undefined>;
  /** Stops the runs at work here that a person has halted. They end as cancelled. */
  stopHalted(): void;
  /** Returns the number of runs at work now. */
  active(): number;
  /** Returns the id of the run that is at work in a conversation, else of one that waits for its slot. Undefined: there is none. */
  runIn(conversationId: string): string | undefined;
  /**
   * Ends a run that is `needs_review`, or lets it go on. The decision is on disk and in the audit when the promise resolves.
   * @throws {HttpError} 404 `not_found`; 409 `conflict` for a run in another state, or one that cannot go on;
   * 400 `invalid_request` for a note that is too long; 503 `halted` for one that would go on
   */
  resolve(id: string, review: RunReview): Promise<Run>;
  /**
   * Takes up the runs that a crash or a shutdown left open. Durable runs go on, or become `needs_review` when an effect was at work.
   * Attached runs become `failed`. Call once at the start, when everything that tools need is there.
   */
  recover(): Promise<void>;
  /**
   * Stops the runs for a shutdown. Attached work may finish until `graceMs`, and is then cancelled with `shutdown`. Durable work stops
   * after its last finished step, or as soon as a call with an effect has ended, and goes on at the next start, in a cluster at another
   * gateway.
   * @param reason why new runs are refused, as the end of a sentence. Default: a shutdown
   */
  drain(graceMs: number, reason?: string): Promise<void>;
}
