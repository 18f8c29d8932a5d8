import type { ProviderRequest } from "../providers/provider.ts";
import { inputBytes, messageTokens, toTokens } from "./estimate_tokens.ts";
import { fitContext } from "./fit_context.ts";
import { outputLimit } from "./token_account.ts";

/** A request, and what it took to make its messages fit the context window. */
export interface FittedRequest {
  readonly request: ProviderRequest;
  readonly shortened: number;
  readonly dropped: number;
}

/** A request whose messages leave room for its tools and for the reply: what the client allows, a quarter of the window at most. */
export function fitRequest(request: ProviderRequest, windowTokens: number): FittedRequest {
  const fitted = fitContext(request.messages, windowTokens - tokensAround(request, windowTokens));
  return { ...fitted, request: { ...request, messages: fitted.messages } };
}

/** Tokens of a window that a request takes, by the measure it is fitted with. */
export function requestTokens(request: ProviderRequest): number {
  return messageTokens(request.messages) + tokensAround(request, 0);
}

/** What the reader is told of a request that was made to fit. */
export function trimNotice({ shortened, dropped }: FittedRequest) {
  const message =
    `To fit the context window, ${shortened} tool results were shortened and ${dropped} messages left out`;
  return { type: "notice", code: "context_trimmed", message } as const;
}

/**
 * Tokens of a window that are not for messages: those of the tools, and of the reply as far as it is left room for.
 * @param windowTokens 0: unknown
 */
export function tokensAround(
  { parameters, tools }: Pick<ProviderRequest, "parameters" | "tools">,
  windowTokens: number,
): number {
  const output = outputLimit(parameters, windowTokens);
  return toTokens(inputBytes([], tools)) + (windowTokens > 0 ? Math.min(output, Math.ceil(windowTokens / 4)) : output);
}
