import { ProviderError } from "../base/errors.ts";
import { type Message, textOf } from "../base/records/message.ts";
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

/**
 * A request whose messages leave room for its tools and for the reply: what the client allows, a quarter of the window at most.
 * @param fixed how many of the first messages belong to a client that keeps its own history: they are never cut
 */
export function fitRequest(request: ProviderRequest, windowTokens: number, fixed: number): FittedRequest {
  const fitted = fitContext(request.messages, windowTokens - tokensAround(request, windowTokens), fixed);
  return { ...fitted, request: { ...request, messages: fitted.messages } };
}

/**
 * Refuses what is longer than the window although nothing more may be cut. Counts the text alone: images, tools and envelopes differ
 * too much between models to refuse a request for them.
 * @throws {ProviderError} `provider_rejected` with the code `context_length_exceeded`
 */
export function checkLength(messages: readonly Message[], windowTokens: number): void {
  let bytes = 0;
  for (const message of messages) {
    bytes += Buffer.byteLength(textOf(message.content));
    if (message.role !== "assistant") continue;
    for (const { function: called } of message.tool_calls ?? []) bytes += Buffer.byteLength(called.arguments);
  }
  const tokens = toTokens(bytes);
  if (tokens > windowTokens) throw contextLengthExceeded(tokens, windowTokens);
}

/** The refusal of a history that is too long, in the words that clients of OpenAI look for. */
function contextLengthExceeded(tokens: number, windowTokens: number): ProviderError {
  const message =
    `This model's maximum context length is ${windowTokens} tokens. However, your messages resulted in about ` +
    `${tokens} tokens: reduce the length of the messages`;
  return new ProviderError("provider_rejected", message, {
    provider: "none",
    status: 400,
    upstreamCode: "context_length_exceeded",
    param: "messages",
  });
}

/** Tokens of a window that a request takes, by the measure it is fitted with. */
export function requestTokens(request: ProviderRequest): number {
  return messageTokens(request.messages) + tokensAround(request, 0);
}

/** What the reader is told of a request that was made to fit. */
export function trimNotice({ shortened, dropped }: FittedRequest) {
  const message =
    `To fit the context window, ${shortened} tool results were shortened and ${dropped} messages left out`;
  return { type: "notice", code: "history_trimmed", message, count: shortened + dropped } as const;
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
