import { type Message, textOf } from "../base/records/message.ts";
import type { Usage } from "../base/records/usage.ts";
import type { ProviderRequest, ToolDeclaration } from "../providers/provider.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { AgentRun } from "./agent_run.ts";
import { estimateUsage, isReported } from "./estimate_usage.ts";
import { fitRequest, type FittedRequest } from "./fit_request.ts";
import type { ModelTurn, TurnCall } from "./model_turn.ts";
import { SHARED_CALL_PREFIX } from "./suspended_turns.ts";
import { createTokenAccount, type TokenAccount } from "./token_account.ts";

/** Makes the requests of one run, turn by turn. */
export interface ModelRequests {
  /** Whether the agent's own tools are offered at all; without them there is nothing to go on with after a turn */
  readonly offersTools: boolean;
  /** Names of the agent's tools the model is told of */
  readonly agentTools: readonly string[];
  /** Put before the ids of calls */
  readonly callPrefix: string;
  ownerOf(name: string): TurnCall["owner"];
  /** A promise only where a budget is set, or the provider is asked for its window. @throws {CancelError} `budget` when it does not allow the call */
  next(
    turn: { readonly messages: readonly Message[]; readonly first: boolean; readonly last: boolean },
  ): FittedRequest | Promise<FittedRequest>;
  /** What a finished turn used; settles the budget. A promise, estimated and marked, only where the provider did not say */
  usageOf(request: ProviderRequest, turn: ModelTurn): Usage | Promise<Usage>;
  /** undefined where no budget is set */
  readonly account: TokenAccount | undefined;
}

/** A tool of the client hides one of the agent with the same name; without tools of the agent every call is the client's. */
export function createModelRequests(run: AgentRun): ModelRequests {
  const { contextWindowTokens } = run.limits;
  const account = run.budget === undefined
    ? undefined
    : createTokenAccount({ budget: run.budget, contextWindowTokens, signal: run.signal });
  const isClients = (name: string) => run.clientTools.some((tool) => tool.name === name);
  const own = run.agentTools.length === 0 ? NO_TOOLS : run.agentTools.filter((tool) => !isClients(tool.name));
  const gone = run.resume?.gone;
  const tools: readonly ToolDeclaration[] = own.length === 0
    ? run.clientTools
    : [...own.map(toDeclaration), ...run.clientTools];
  return {
    offersTools: own.length > 0,
    agentTools: own.length === 0 ? NO_NAMES : own.map((tool) => tool.name),
    callPrefix: own.length === 0 ? "call_" : SHARED_CALL_PREFIX,
    ownerOf(name) {
      if (gone?.has(name) === true) return "agent";
      return own.length === 0 || isClients(name) ? "client" : "agent";
    },
    next({ messages, first, last }) {
      // A forced tool is forced once, or the loop could not end; "none" holds throughout
      const choice = first || run.toolChoice === "none" ? run.toolChoice : undefined;
      const request: ProviderRequest = {
        model: run.providerModel,
        messages,
        tools: last ? [] : tools,
        toolChoice: last ? undefined : choice,
        parallelToolCalls: last ? undefined : run.parallelToolCalls,
        parameters: run.parameters,
      };
      if (contextWindowTokens === 0 && run.findWindow !== undefined && isLong(messages)) {
        return fitLater(request, { findWindow: run.findWindow, account });
      }
      const fitted = contextWindowTokens > 0 ? fitRequest(request, contextWindowTokens) : asItIs(request);
      return account === undefined ? fitted : openFitted(fitted, account);
    },
    usageOf(request, turn) {
      const usage = turn.finish()?.usage;
      if (!isReported(usage)) return settled(estimateUsage(request, turn.estimate), account);
      account?.settle(usage.total_tokens);
      return usage;
    },
    account,
  };
}

const LONG_CHARACTERS = 6000;
const NO_TOOLS: readonly Tool[] = [];
const NO_NAMES: readonly string[] = [];

/** A tool of the agent as the model is told of it. */
export function toDeclaration(tool: Tool): ToolDeclaration {
  return { name: tool.name, description: tool.description, parameters: tool.inputSchema };
}

async function settled(estimating: Promise<Usage>, account: TokenAccount | undefined): Promise<Usage> {
  const usage = await estimating;
  account?.settle(usage.total_tokens);
  return usage;
}

/** What fits into the smallest window there is need not be measured against one that must be asked for. */
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
  { findWindow, account }: {
    readonly findWindow: () => Promise<number>;
    readonly account: TokenAccount | undefined;
  },
): Promise<FittedRequest> {
  const window = await findWindow();
  const fitted = window > 0 ? fitRequest(request, window) : asItIs(request);
  return account === undefined ? fitted : await openFitted(fitted, account);
}

async function openFitted(fitted: FittedRequest, account: TokenAccount): Promise<FittedRequest> {
  return { ...fitted, request: await account.open(fitted.request) };
}

function asItIs(request: ProviderRequest): FittedRequest {
  return { request, shortened: 0, dropped: 0 };
}
