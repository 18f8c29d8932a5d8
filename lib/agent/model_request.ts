import { ProviderError } from "../base/errors.ts";
import { type Message, textOf } from "../base/records/message.ts";
import type { ProviderEvent } from "../base/records/provider_event.ts";
import { isReported, type Usage } from "../base/records/usage.ts";
import { hasPictures } from "../providers/picture_parts.ts";
import type { ProviderCallOptions, ProviderRequest } from "../providers/provider.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { AgentRun, RecordedTurn, TurnCall } from "./agent_run.ts";
import { estimateUsage, longestReply, mostOutput } from "./estimate_tokens.ts";
import { checkLength, fitRequest, type FittedRequest } from "./context_window.ts";
import { besideClientTools, DeclaredTools, NONE } from "./deferred_tools.ts";
import type { EventRecorder } from "./event_recorder.ts";
import { type CallNaming, LiveTurn, type ModelTurn, restoreTurn } from "./model_turn.ts";
import { createTokenAccount, type TokenAccount } from "./token_budget.ts";

/** State of a run's loop that its next turn begins in. */
export interface LoopState {
  readonly run: AgentRun;
  readonly requests: ModelRequests;
  readonly events: EventRecorder;
  /** Messages of the next request */
  readonly messages: readonly Message[];
  /** Messages that the run has added to the history */
  readonly added: readonly Message[];
  /** Tool calls that may still run */
  readonly callsLeft: number;
  /** Text that goes before the next turn's first text */
  readonly separator: string;
  /** Notes that the turn goes to the provider now, and what was cut from its request */
  startTurn(number: number, fitted: FittedRequest): void;
}

/** A turn that was opened: from the journal, or at the provider. */
export interface OpenTurn {
  readonly turn: ModelTurn;
  /** True for the last turn, which offers no tools */
  readonly last: boolean;
  /** The turn as the journal has it; undefined for a live turn */
  readonly known: RecordedTurn | undefined;
  /** Arrays of the provider; none for a turn from the journal */
  readonly stream: AsyncIterable<Batch> | Iterable<Batch>;
  /** Returns what the turn cost. @throws {ProviderError} the stream ended without a finish */
  readonly usage: () => Usage | Promise<Usage>;
  /** Counts on the budget what came of a turn that its reader left, by an estimate. undefined: nothing is counted */
  readonly leave?: (() => Promise<void>) | undefined;
}

type Batch = readonly ProviderEvent[];

/**
 * Makes the requests of one run, turn by turn. A tool of the client hides one of the agent with the same name; without tools of the
 * agent every call is the client's.
 */
export class ModelRequests implements CallNaming {
  /** Account of the model calls on the run's budget; undefined where no budget is set */
  readonly account: TokenAccount | undefined;
  readonly #run: AgentRun;
  /** The agent's tools that the model may call, deferred ones among them */
  readonly #own: readonly Tool[];
  /** Their names */
  readonly agentTools: readonly string[];
  /** Tools that the requests declare. Undefined without tools of the agent: those of the client alone */
  readonly tools: DeclaredTools | undefined;
  /** True when the model is offered tools of the agent. Without them a run has one turn */
  readonly offersTools: boolean;

  constructor(run: AgentRun) {
    const { tools: { agentTools, deferred = NONE }, model: { wishes: { clientTools } } } = run;
    this.#run = run;
    this.account = run.budget === undefined ? undefined : createTokenAccount({
      budget: run.budget,
      contextWindowTokens: run.limits.contextWindowTokens,
      signal: run.scope.signal,
    });
    const isOffered = agentTools.length > 0;
    this.#own = isOffered && clientTools.length > 0 ? besideClientTools(agentTools, clientTools) : agentTools;
    this.agentTools = this.#own.map((tool) => tool.name);
    this.offersTools = this.#own.length > 0;
    this.tools = isOffered ? new DeclaredTools(this.#own, { deferred, clientTools }) : undefined;
  }

  newCallId(): string {
    return this.#run.kit.random.id("call_");
  }

  ownerOf(name: string): TurnCall["owner"] {
    if (this.#run.resume?.gone.has(name) === true) return "agent";
    return this.#own.length === 0 || this.#run.model.wishes.clientTools.some((tool) => tool.name === name)
      ? "client"
      : "agent";
  }

  /**
   * A promise only where a budget is set, or the provider is asked for its window.
   * @throws {CancelError} `budget` when it does not allow the call; {ProviderError} as checkLength
   */
  next(
    { messages, first, last }: {
      readonly messages: readonly Message[];
      readonly first: boolean;
      readonly last: boolean;
    },
  ): FittedRequest | Promise<FittedRequest> {
    const { account } = this;
    const { model, limits, opening } = this.#run;
    const { id, wishes: { clientTools, toolChoice, parallelToolCalls, parameters } } = model;
    const { findWindow, findListedWindow } = model;
    // A forced tool is forced once, or the loop could not end; "none" holds throughout
    const choice = first || toolChoice === "none" ? toolChoice : undefined;
    const plain: ProviderRequest = {
      model: id,
      messages,
      tools: last ? [] : this.tools?.declared ?? clientTools,
      toolChoice: last ? undefined : choice,
      parallelToolCalls: last ? undefined : parallelToolCalls,
      parameters,
    };
    const stableTools = last ? 0 : this.tools?.stable ?? 0;
    const request = stableTools === 0 ? plain : { ...plain, stableTools };
    const { contextWindowTokens } = limits;
    if (contextWindowTokens === 0 && findWindow !== undefined && isLong(messages)) {
      return fitLater(request, { findWindow, findListedWindow, account, fixed: opening.fixedMessages });
    }
    const fixed = opening.fixedMessages;
    const window = contextWindowTokens > 0 ? model.learntWindow?.(contextWindowTokens) ?? contextWindowTokens : 0;
    const fitted = window > 0 ? fitRequest(request, window, fixed) : { request, shortened: 0, dropped: 0 };
    if (fixed > 0 && contextWindowTokens > 0) checkLength(fitted.request.messages, contextWindowTokens);
    return account === undefined ? fitted : openFitted(fitted, account);
  }

  /** Returns the usage of a finished turn and settles the budget. Returns a promise of an estimate, marked as such, only where the provider did not report usage */
  usageOf(request: ProviderRequest, turn: ModelTurn): Usage | Promise<Usage> {
    const usage = turn.finish?.usage;
    if (!isReported(usage)) return settled(estimateUsage(request, (count) => turn.estimate(count)), this.account);
    this.account?.settle(usage.total_tokens);
    return usage;
  }

  /** Settles the budget of a turn that was left in the middle of its reply: the provider stops there too. */
  async leave(request: ProviderRequest, turn: ModelTurn): Promise<void> {
    await settled(estimateUsage(request, (count) => turn.estimate(count)), this.account);
  }
}

/** Opens a turn from the journal, which was shown before. */
export function replayTurn(known: RecordedTurn): OpenTurn {
  return { turn: restoreTurn(known), last: known.last, known, stream: NOTHING_SAID, usage: () => known.usage };
}

const NOTHING_SAID: readonly Batch[] = [];

/**
 * Opens a turn at the provider. A promise only where the request must wait for its budget or for the model's window.
 * @param number from 1
 * @throws as ModelRequests.next
 */
export function askTurn(loop: LoopState, number: number): OpenTurn | Promise<OpenTurn> {
  const { run: { limits }, requests, messages, callsLeft } = loop;
  const last = requests.offersTools && (number > limits.maxIterations || callsLeft < 1);
  const fitted = requests.next({ messages, first: number === 1, last });
  const options = { number, last };
  return fitted instanceof Promise ? fitted.then((later) => ask(loop, later, options)) : ask(loop, fitted, options);
}

function ask(
  loop: LoopState,
  fitted: FittedRequest,
  { number, last }: { readonly number: number; readonly last: boolean },
): OpenTurn {
  const { run, requests, events, separator } = loop;
  const request = withPictures(fitted.request, run);
  const { max_tokens, max_completion_tokens = max_tokens } = request.parameters;
  const isBounded = max_completion_tokens !== undefined;
  loop.startTurn(number, fitted);
  const naming = last ? allOwn(requests) : requests;
  const turn = new LiveTurn({
    events,
    separator,
    naming,
    keepsIds: run.facts.isPlain,
    longest: isBounded ? longestReply(request.parameters) : undefined,
    granted: isBounded && requests.account !== undefined ? mostOutput(request.parameters) : undefined,
  });
  return {
    turn,
    last,
    known: undefined,
    stream: run.model.provider.stream(request, callOf(run, requests)),
    usage() {
      if (turn.finish === undefined) throw brokenReply(run.model.provider.name);
      return requests.usageOf(request, turn);
    },
    leave: requests.account && (() => requests.leave(request, turn)),
  };
}

/** Adds the bytes of the newest pictures in the messages, where the model sees. */
function withPictures(
  request: ProviderRequest,
  { model: { provider, id }, tools: { pictures } }: AgentRun,
): ProviderRequest {
  if (!request.messages.some(hasPictures) || provider.sees?.(id) !== true) return request;
  const shown = request.messages.flatMap((message) => message.role === "tool" ? message.pictures ?? [] : []);
  return { ...request, pictures: pictures?.load(shown) ?? new Map<string, string>() };
}

function callOf(run: AgentRun, requests: ModelRequests): ProviderCallOptions {
  const { scope: { signal, requestId }, facts: { whole, isPlain: givesFields }, model: { onAgain, wishes } } = run;
  const { givesThoughts = givesFields } = wishes;
  return { signal, requestId, whole, givesFields, givesThoughts, onAgain, beforeAgain: requests.account?.again };
}

/** In a turn without tools a call is the agent's whatever its name: it is not run, and no client is told of it. */
function allOwn(requests: CallNaming): CallNaming {
  return { ownerOf: () => "agent", newCallId: () => requests.newCallId() };
}

function brokenReply(provider: string): ProviderError {
  return new ProviderError("provider_error", `Cannot use the reply of "${provider}": it ended without a finish`, {
    provider,
  });
}

const LONG_CHARACTERS = 6000;

async function settled(estimating: Promise<Usage>, account: TokenAccount | undefined): Promise<Usage> {
  const usage = await estimating;
  account?.settle(usage.total_tokens);
  return usage;
}

/** Returns true for messages that may exceed the smallest window in use. Shorter ones need no look at the model's real window. */
function isLong(messages: readonly Message[]): boolean {
  let characters = 0;
  for (const { content } of messages) {
    characters += typeof content === "string" ? content.length : textOf(content).length;
    if (characters > LONG_CHARACTERS) return true;
  }
  return false;
}

async function fitLater(
  request: ProviderRequest,
  { findWindow, findListedWindow, account, fixed }: {
    readonly fixed: number;
    readonly findListedWindow: (() => Promise<number>) | undefined;
    readonly findWindow: () => Promise<number>;
    readonly account: TokenAccount | undefined;
  },
): Promise<FittedRequest> {
  const window = await findWindow();
  const fitted = window > 0 ? fitRequest(request, window, fixed) : { request, shortened: 0, dropped: 0 };
  // A window that was only learnt from a refusal may be a guess: then the provider decides
  const listed = fixed > 0 && window > 0 ? await findListedWindow?.() ?? 0 : 0;
  if (listed > 0) checkLength(fitted.request.messages, listed);
  return account === undefined ? fitted : await openFitted(fitted, account);
}

async function openFitted(fitted: FittedRequest, account: TokenAccount): Promise<FittedRequest> {
  return { ...fitted, request: await account.open(fitted.request) };
}
