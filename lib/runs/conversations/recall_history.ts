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

export interface RecallOptions {
  readonly conversations: Conversations;
  /** Caller of the run, who must be allowed to go on with the conversation */
  readonly caller: Caller;
  readonly provider: Provider;
  /** As the provider knows it */
  readonly model: string;
  /** Tokens the model takes; 0 where nobody says. Asked only when the history may be long. Default: nobody says */
  readonly findWindow: (() => Promise<number>) | undefined;
  /** null: none */
  readonly prompt: string | null;
  /** What the request adds to the history */
  readonly messages: readonly Message[];
  readonly tools: readonly (Tool | ToolDeclaration)[];
  readonly parameters: ModelParameters;
  readonly budget: TokenBudget | undefined;
  readonly requestId: string | undefined;
  readonly signal: AbortSignal;
  /** ISO 8601 of now */
  readonly time: () => string;
}

/** What a conversation's run begins with. */
export interface RecalledHistory {
  readonly messages: readonly Message[];
  /** What the reader is told */
  readonly notices: readonly AgentEventBody[];
  /** Of the calls that condensed it */
  readonly usage: Usage;
}

/** A history below this fits into the smallest window there is, with all that stands around it. */
const SHORT_TOKENS = 1500;

/**
 * The history as the model is sent it: whole, or its older turns condensed by the run's own model where it outgrew the window. The
 * summary is kept with the conversation. It is made under the run's budget; the offline provider makes none.
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

/** How a run learns its model's window: from `[agent] context_window_tokens`, else from the provider. undefined: nobody says */
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

/** What the model is sent, in order: system prompt, the client's instructions, the conversation so far, the client's messages. */
export function assembleMessages(parts: {
  /** null: nothing is injected */
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

/** The messages a conversation keeps: instructions hold for the request they came with. */
export function withoutInstructions(messages: readonly Message[]): readonly Message[] {
  return messages.filter((message) => !isInstruction(message));
}

function isInstruction(message: Message): boolean {
  return message.role === "system" || message.role === "developer";
}
