import type { AgentLimits } from "../../agent/agent_run.ts";
import { tokensAround } from "../../agent/context_window.ts";
import { messageTokens } from "../../agent/estimate_tokens.ts";
import { toDeclaration } from "../../agent/model_request.ts";
import { summarize } from "../../agent/summarize.ts";
import { createTokenAccount, type TokenBudget } from "../../agent/token_budget.ts";
import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Message } from "../../base/records/message.ts";
import type { Usage } from "../../base/records/usage.ts";
import type { ContextWindows } from "../../providers/models/context_windows.ts";
import type { ModelParameters, Provider, ToolDeclaration } from "../../providers/provider.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import type { Conversations } from "./conversations.ts";
import { fitHistory } from "./fit_history.ts";

/** The run that reads a history, and the model that condenses it. */
export interface RecallOptions {
  readonly conversations: Conversations;
  /** Caller of the run, who must be allowed to go on with the conversation */
  readonly caller: Caller;
  readonly provider: Provider;
  /** Name of the model at the provider. */
  readonly model: string;
  /** Returns the tokens that the model takes; 0 when unknown. Called only when the history may be long. Undefined: unknown. */
  readonly findWindow: (() => Promise<number>) | undefined;
  /** System prompt; null: none. */
  readonly prompt: string | null;
  /** Messages that the request adds to the history. */
  readonly messages: readonly Message[];
  readonly tools: readonly (Tool | ToolDeclaration)[];
  readonly parameters: ModelParameters;
  readonly budget: TokenBudget | undefined;
  readonly requestId: string | undefined;
  readonly signal: AbortSignal;
  /** Returns the time of now in ISO 8601. */
  readonly time: () => string;
}

/** The history that a run of a conversation begins with. */
export interface RecalledHistory {
  readonly messages: readonly Message[];
  /** Notices for the reader. */
  readonly notices: readonly AgentEventBody[];
  /** Usage of the calls that condensed the history. */
  readonly usage: Usage;
}

/** Tokens of a history that fits into the smallest window, together with everything around it. */
const SHORT_TOKENS = 1500;

/**
 * Returns the history that the model is sent. When the history outgrew the window, the run's own model condenses the older turns under the
 * run's budget, and the summary is kept with the conversation. The offline provider condenses nothing.
 * @throws {CancelError} when the run was stopped; {HttpError} 403 insufficient_scope for a caller who may not go on with it
 */
export async function recallHistory(id: string, options: RecallOptions): Promise<RecalledHistory> {
  const { conversations, provider, model, prompt, messages, tools, parameters, budget, requestId, signal } = options;
  const history = await conversations.history(id, options.caller);
  const own: readonly Message[] = prompt === null ? messages : [{ role: "system", content: prompt }, ...messages];
  const ownTokens = messageTokens(own);
  const isShort = messageTokens(history.messages) + ownTokens < SHORT_TOKENS;
  const windowTokens = isShort ? 0 : await options.findWindow?.() ?? 0;
  const declared = tools.map((tool) => ("parameters" in tool ? tool : toDeclaration(tool)));
  const account = budget === undefined
    ? undefined
    : createTokenAccount({ budget, contextWindowTokens: windowTokens, signal });
  const fitted = await fitHistory(history, {
    windowTokens,
    reservedTokens: windowTokens === 0 ? 0 : ownTokens + tokensAround({ parameters, tools: declared }, windowTokens),
    summarize: provider.name === "offline"
      ? undefined
      : (old, earlier) => summarize(old, { provider, model, windowTokens, earlier, account, requestId, signal }),
  });
  if (fitted.summary !== undefined) await conversations.summarized(id, fitted.summary, options.time());
  return fitted;
}

/** Returns the function that finds the window of a run's model: from `[agent] context_window_tokens`, else from the provider. Undefined: unknown. */
export function windowFinder(options: {
  readonly limits: Pick<AgentLimits, "contextWindowTokens">;
  readonly windows: ContextWindows;
  readonly provider: Provider;
  /** As the provider knows it */
  readonly model: string;
}): (() => Promise<number>) | undefined {
  const { limits, windows, provider, model } = options;
  if (limits.contextWindowTokens > 0) return () => Promise.resolve(limits.contextWindowTokens);
  return provider.name === "offline" ? undefined : () => windows.of(provider, model);
}

/** Returns the messages for the model in order: system prompt, the client's instructions, the conversation so far, the client's messages. */
export function assembleMessages(parts: {
  /** System prompt; null: none. */
  readonly prompt: string | null;
  readonly history: readonly Message[];
  readonly messages: readonly Message[];
}): readonly Message[] {
  const { prompt, history, messages } = parts;
  const first: readonly Message[] = prompt === null ? [] : [{ role: "system", content: prompt }];
  if (history.length > 0) {
    return [...first, ...messages.filter(isInstruction), ...history, ...withoutInstructions(messages)];
  }
  return first.length === 0 ? messages : [...first, ...messages];
}

/** Returns the messages that a conversation keeps. Instructions count for the request that they came with. */
export function withoutInstructions(messages: readonly Message[]): readonly Message[] {
  return messages.filter((message) => !isInstruction(message));
}

function isInstruction(message: Message): boolean {
  return message.role === "system" || message.role === "developer";
}
