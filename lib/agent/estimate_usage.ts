import type { Usage } from "../base/records/usage.ts";
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

function countBytes(text: string): number {
  return toTokens(Buffer.byteLength(text));
}
