import type { CancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import type { ProviderError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { AgentEvent, AgentEventBody, FinishReason } from "../base/records/agent_event.ts";
import type { DeniedBy } from "../base/records/approval.ts";
import type { Message, Picture } from "../base/records/message.ts";
import type { RunKind } from "../base/records/run.ts";
import type { Usage } from "../base/records/usage.ts";
import type { RunTaint, Taint } from "../base/taint.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { ModelWishes, Provider } from "../providers/provider.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { ElicitationAnswer } from "../tools/runtime/askable_client.ts";
import type {
  ApprovalAnswer,
  ApprovalRequest,
  CallScope,
  ElicitationRequest,
  Inherited,
  ReadSkill,
} from "../tools/runtime/tool_call.ts";
import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import type { SingleCall } from "./call_provider.ts";
import type { ParkedClientCalls } from "./parked_client_calls.ts";
import type { PictureMemory } from "./picture_memory.ts";
import type { TokenBudget } from "./token_budget.ts";

/** Bounds of one run; the values of `[agent]` and `[budget]`. */
export interface AgentLimits {
  /** Turns in which the model may call tools; one more without tools follows */
  readonly maxIterations: number;
  readonly maxToolCalls: number;
  readonly parallelTools: boolean;
  /** 0: unlimited */
  readonly contextWindowTokens: number;
  /** 0: unlimited */
  readonly tokensPerRun: number;
}

/** Approver of a run, for what the policy says `ask` about; may show the reader `approval_needed` and `approval_answered` through `emit`. */
export interface AgentApprover {
  (request: ApprovalRequest, signal: AbortSignal, emit: (body: AgentEventBody) => void): Promise<ApprovalAnswer>;
  /** Takes back the approval that was filed for the call before the run was interrupted, if there is one: the call is decided without it */
  readonly withdraw?: ((callId: string, emit: (body: AgentEventBody) => void) => Promise<void>) | undefined;
  /** Tells whether a call was asked about before the run was interrupted, and is not decided yet. Default: none was */
  readonly isAsked?: ((callId: string) => boolean) | undefined;
  /** Puts the question of a call's server to a person. Default: nobody can be asked */
  readonly elicit?:
    | ((
      request: ElicitationRequest,
      signal: AbortSignal,
      emit: (body: AgentEventBody) => void,
    ) => Promise<ElicitationAnswer>)
    | undefined;
}

/** The end of a run. */
export interface AgentOutcome {
  readonly terminal: Extract<AgentEvent, { type: "done" | "error" }>;
  /** Messages the run adds to its conversation: assistant messages and tool results, in order */
  readonly added: readonly Message[];
  /** A ProviderError before the first delta: the reader gets it thrown instead of the terminal event */
  readonly refused: ProviderError | undefined;
}

/**
 * A tool call of a turn, under the gateway's own id, since the vendor's may be missing or repeated. In plain mode it has the vendor's where
 * it can.
 */
export interface TurnCall {
  readonly id: string;
  /** Id that the vendor gave the call, where that is another */
  readonly vendor_id?: string | undefined;
  readonly name: string;
  arguments: string;
  readonly owner: "agent" | "client";
}

/** Facts about a finished turn that its events do not hold and a resumed run needs. */
export interface EndedTurn {
  /** From 1 */
  readonly turn: number;
  readonly finishReason: FinishReason;
  /** Calls as the model made them, those of the client's tools among them */
  readonly calls: readonly TurnCall[];
  /** The vendor's parts of the reply; undefined: none */
  readonly opaque: unknown;
  /** Provider they belong to. undefined: the run's own */
  readonly provider: string | undefined;
  /** True for the last turn, which offers no tools */
  readonly last: boolean;
}

/** The recorded result of a call. */
export interface RecordedResult {
  readonly output: string;
  readonly isError: boolean;
  /** Origins of outside content in the output. The model gets it in the untrusted envelope */
  readonly taint: Taint;
  /** Pictures of the output, without their bytes. Default: none */
  readonly pictures?: readonly Picture[] | undefined;
  /** Skill that the output is from: the model gets it without the envelope. Default: none */
  readonly skill?: ReadSkill | undefined;
  /** Present where the call was not made, as a message came before it. */
  readonly skipped?: true | undefined;
  /** Source of the denial of a call that was not made. */
  readonly deniedBy?: DeniedBy | undefined;
}

/** Messages that were taken into a run, by the number of the turn that they came behind; 0: before the first. */
export type TakenMessages = ReadonlyMap<number, readonly SteeringMessage[]>;

/** A finished turn of the model, as the journal has it. */
export interface RecordedTurn {
  readonly text: string;
  readonly refusal: string;
  readonly finishReason: FinishReason;
  readonly calls: readonly TurnCall[];
  /** The vendor's parts of the reply, which go back as they are */
  readonly opaque: unknown;
  /** Provider they belong to. undefined: the run's own */
  readonly provider: string | undefined;
  readonly usage: Usage;
  /** True for the last turn, which offers no tools */
  readonly last: boolean;
  /** Results of the turn's calls that have ended, by call id */
  readonly results: ReadonlyMap<string, RecordedResult>;
  /** True when the consequences of the results were recorded as well */
  readonly followed: boolean;
}

/** The part of a run that was recorded before the run was interrupted. */
export interface RecordedRun {
  /** True when the run had begun; false when it only waited in the queue */
  readonly started: boolean;
  readonly turns: readonly RecordedTurn[];
  readonly taken: TakenMessages;
  /** Events from this seq on belong to no finished step: their text does not count */
  readonly fromSeq: number;
}

/** For a run that goes on after its last finished step. */
export interface RunResume {
  /** Sequence number of the first event after the resume */
  readonly afterSeq: number;
  /** Function that gives it, called once its turn has come */
  readonly load: () => Promise<RecordedRun>;
  /** Tools the run was offered that are gone now: name to reason */
  readonly gone: ReadonlyMap<string, string>;
}

/** Where a run is written down. */
export interface AgentJournal {
  /** Takes every event in order, before the reader gets it; must be cheap. undefined: nothing is kept */
  readonly record: ((events: readonly AgentEvent[]) => void) | undefined;
  /** Takes what the events do not say of a finished turn, before its turn_end is recorded. undefined: nothing is kept */
  readonly turn: ((turn: EndedTurn) => void) | undefined;
  /**
   * The call's tool_start was recorded and its effect is next: resolves when that is durable. After a crash one that is not
   * `repeatable` waits for a person
   */
  beforeEffect(callId: string, options: { readonly repeatable: boolean }): Promise<void>;
  /** The call's tool_end was recorded */
  afterCall(callId: string): void;
  /** Runs once, after the terminal event was recorded. What waits for the reply to be durable waits here; nothing else does */
  end(outcome: AgentOutcome): void | Promise<void>;
}

/** A message that a person sent to a run at work. */
export interface SteeringMessage {
  readonly id: string;
  readonly text: string;
  /** Id of the token that sent it; null for none */
  readonly by: string | null;
}

/** Messages that wait to be taken in at the next tool boundary of a run. */
export interface AgentSteering {
  /** True while a message may wait. A turn and a call cost this one look where none does */
  readonly isDue: boolean;
  /** Returns the messages that wait, the oldest first. Without one `isDue` is false afterwards */
  waiting(): Promise<readonly SteeringMessage[]>;
  /** Ends the wait of messages whose event was recorded. It is on disk first, so that each is taken in once */
  taken(ids: readonly string[]): Promise<void>;
}

/** Everything one run of the agent needs. */
export interface AgentRun {
  /** Scope that each tool call gets whole */
  readonly scope: RunScope;
  readonly facts: RunFacts;
  readonly model: AgentModel;
  readonly tools: RunTools;
  readonly opening: AgentOpening;
  /** undefined for a run that begins */
  readonly resume: RunResume | undefined;
  /** Messages to the run while it is at work. Default: nobody can send one */
  readonly steering?: AgentSteering | undefined;
  readonly limits: AgentLimits;
  /** Account that is asked before each call of the model; undefined where no budget is set */
  readonly budget?: TokenBudget | undefined;
  readonly parked: ParkedClientCalls;
  readonly journal: AgentJournal;
  /** Stops the work when the reader leaves */
  readonly abort: (error: CancelError) => void;
  readonly kit: RunKit;
}

/** Scope of the calls of a run, which reads outside content. */
export interface RunScope extends CallScope {
  /** Outside content that the run has read, or began with */
  readonly taint: RunTaint;
}

/** Properties of a run that its request decided. */
export interface RunFacts {
  readonly kind: RunKind;
  readonly parentId: string | null;
  /** True when nobody reads the events as they come. The provider may then answer each turn in one piece */
  readonly whole: boolean;
  /** The agent's own tools were turned off by the request: what the gateway does not know of it and of the reply is passed on */
  readonly isPlain: boolean;
  /** True for a durable run: a shutdown interrupts it without recording unfinished work, and the next start resumes it */
  readonly survivesShutdown: boolean;
  /** Single tool call without a model: its input may be in the tool's plain-text form, and its output is the reply. Default: a model works */
  readonly call?: Pick<SingleCall, "digest"> | undefined;
}

/** Model of a run, and what it is asked with. */
export interface AgentModel {
  /** As readers see it */
  readonly name: string;
  readonly provider: Provider;
  /** As the provider gets it */
  readonly id: string;
  readonly wishes: ModelWishes;
  /** Tokens the model takes, where `limits` do not say; 0 where nobody does. Default: nobody does */
  readonly findWindow?: (() => Promise<number>) | undefined;
  /** The same as far as the provider's list of models names it; 0 where it does not. Default: nobody does */
  readonly findListedWindow?: (() => Promise<number>) | undefined;
  /** Returns the lesser of a window of `limits` and of what a refusal of the model told. Default: no refusal told anything */
  readonly learntWindow?: ((window: number) => number) | undefined;
  /** Runs when a provider that refused is asked again, and when it has answered */
  readonly onAgain?: ((isAsking: boolean) => void) | undefined;
}

/** Tools of a run, and what their calls need. */
export interface RunTools {
  readonly executor: ToolExecutor;
  /** The agent's own tools; empty for a plain model gateway */
  readonly agentTools: readonly Tool[];
  /** Names of those of them that the model is told of once it has found or called them. Default: none */
  readonly deferred?: ReadonlySet<string> | undefined;
  /** Rights and limits that runs started by this run's tools inherit; undefined when the run has no tools */
  readonly passesOn: Omit<Inherited, "approver"> | undefined;
  readonly approve: AgentApprover;
  /** Keeps the bytes of pictures in tool results. Default: they are not kept, and the model is told so */
  readonly pictures?: PictureMemory | undefined;
}

/** Beginning of a run. */
export interface AgentOpening {
  /** Waits for the run's turn, then gives the model's messages: system prompt, history, the client's. @throws {CancelError} */
  begin(run: AgentRun): readonly Message[] | Promise<readonly Message[]>;
  /**
   * Number of first messages that are never cut; known once `begin` gave them. All of them where the client keeps its own history, 0 where
   * a conversation is kept here
   */
  readonly fixedMessages: number;
  /** Present where `begin` took more than reading: told to the reader, and counted in the run's usage */
  readonly recalled: { readonly notices: readonly AgentEventBody[]; readonly usage: Usage } | undefined;
}

/** Time, chance and log of a run. */
export interface RunKit {
  readonly clock: Pick<Clock, "monotonic">;
  /** ISO 8601 of now; see createIsoTime */
  readonly time: () => string;
  readonly random: Random;
  readonly log: Logger;
}
