import type { Message } from "../base/records/message.ts";
import type { Usage } from "../base/records/usage.ts";
import type { ProviderRequest, ToolDeclaration } from "../providers/provider.ts";
import type { Tool } from "../tools/runtime/tool.ts";
import type { AgentRun } from "./agent_run.ts";
import { inputBytes, toTokens } from "./estimate_tokens.ts";
import { fitContext } from "./fit_context.ts";
import type { ModelTurn, TurnCall } from "./model_turn.ts";
import { SHARED_CALL_PREFIX } from "./suspended_turns.ts";
import { createTokenBudget } from "./token_budget.ts";

/** A request, and what it took to make its messages fit the context window. */
export interface FittedRequest {
  readonly request: ProviderRequest;
  readonly shortened: number;
  readonly dropped: number;
}

/** Makes the requests of one run, turn by turn. */
export interface ModelRequests {
  /** Whether the agent's own tools are offered at all; without them there is nothing to go on with after a turn */
  readonly offersTools: boolean;
  /** Names of the agent's tools the model is told of */
  readonly agentTools: readonly string[];
  /** Put before the ids of calls */
  readonly callPrefix: string;
  ownerOf(name: string): TurnCall["owner"];
  /** @throws {CancelError} `budget` when the token budget does not allow the call */
  next(turn: { readonly messages: readonly Message[]; readonly first: boolean; readonly last: boolean }): FittedRequest;
  /** What a finished turn used, estimated and marked when the provider did not say; settles the budget */
  usageOf(request: ProviderRequest, turn: ModelTurn): Usage;
}

/** Output the window must leave room for when the client names no limit: a quarter of it, 4096 tokens at most. */
const MAX_RESERVED_OUTPUT = 4096;

/** A tool of the client hides one of the agent with the same name; without tools of the agent every call is the client's. */
export function createModelRequests(run: AgentRun): ModelRequests {
  const budget = run.limits.tokensPerRun > 0 ? createTokenBudget(run.limits.tokensPerRun) : undefined;
  const isClients = (name: string) => run.clientTools.some((tool) => tool.name === name);
  const own = run.agentTools.length === 0 ? NO_TOOLS : run.agentTools.filter((tool) => !isClients(tool.name));
  const tools: readonly ToolDeclaration[] = own.length === 0
    ? run.clientTools
    : [...own.map(toDeclaration), ...run.clientTools];
  return {
    offersTools: own.length > 0,
    agentTools: own.length === 0 ? NO_NAMES : own.map((tool) => tool.name),
    callPrefix: own.length === 0 ? "call_" : SHARED_CALL_PREFIX,
    ownerOf: (name) => (own.length === 0 || isClients(name) ? "client" : "agent"),
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
      const window = run.limits.contextWindowTokens;
      const fitted = window > 0 ? fitRequest(request, window) : { request, shortened: 0, dropped: 0 };
      if (budget === undefined) return fitted;
      const bytes = inputBytes(fitted.request.messages, fitted.request.tools);
      return { ...fitted, request: { ...fitted.request, parameters: budget.reserve(bytes, run.parameters) } };
    },
    usageOf(request, turn) {
      const usage = turn.finish()?.usage ?? estimateUsage(request, turn);
      budget?.settle(usage);
      return usage;
    },
  };
}

const NO_TOOLS: readonly Tool[] = [];
const NO_NAMES: readonly string[] = [];

function toDeclaration(tool: Tool): ToolDeclaration {
  return { name: tool.name, description: tool.description, parameters: tool.inputSchema };
}

function fitRequest(request: ProviderRequest, window: number): FittedRequest {
  const { messages, tools, parameters } = request;
  const asked = parameters.max_completion_tokens ?? parameters.max_tokens ?? MAX_RESERVED_OUTPUT;
  const output = Math.min(asked, Math.ceil(window / 4));
  const fitted = fitContext(messages, window - output - toTokens(inputBytes([], tools)));
  return { ...fitted, request: { ...request, messages: fitted.messages } };
}

function estimateUsage(request: ProviderRequest, turn: ModelTurn): Usage {
  const prompt = toTokens(inputBytes(request.messages, request.tools));
  const completion = turn.estimate();
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion, estimated: true };
}
