import { NO_USAGE, type Usage } from "../base/records/usage.ts";
import type { ProviderRequest } from "../providers/provider.ts";
import { countInput, inputBytes, toTokens } from "./estimate_tokens.ts";
import { loadTokenCounter, type TokenCounter } from "./token_counter.ts";

/**
 * The usage of a call whose provider reports none, by a tokenizer where one is installed, else bytes/4; marked.
 * @param countOutput tokens of what the model said
 */
export async function estimateUsage(
  request: ProviderRequest,
  countOutput: (count: TokenCounter) => number,
): Promise<Usage> {
  const counter = await loadTokenCounter(request.model);
  const prompt = counter === undefined
    ? toTokens(inputBytes(request.messages, request.tools))
    : countInput(request, counter);
  const completion = countOutput(counter ?? countBytes);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    estimated: true,
    estimated_by: counter === undefined ? "bytes" : "tokenizer",
  };
}

/** Whether a provider said what a call used. Some local servers report zeros in place of nothing; what is no model reports `NO_USAGE` itself. */
export function isReported(usage: Usage | undefined): usage is Usage {
  return usage !== undefined && (usage.total_tokens > 0 || usage === NO_USAGE);
}

function countBytes(text: string): number {
  return toTokens(Buffer.byteLength(text));
}
