import type { ProviderError } from "../../base/errors.ts";

/** The code by which OpenAI's clients know that a history is too long. */
export const CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded";

/** Characters of a refusal that are looked at. A vendor could write more of them than a pattern reads in linear time */
const MAX_LOOKED_AT = 1_000;

/**
 * Words of vendors and servers for a history that is too long, each with the window in tokens as its group where they tell it. Every row
 * has its recorded refusals in test/providers/vendors/too_long.test.ts.
 */
const TOO_LONG: readonly RegExp[] = [
  // OpenAI, Azure, DeepSeek, OpenRouter, vLLM, SGLang
  /maximum context length is ([\d,]+)|maximum context length of ([\d,]+)|maximum context length \(([\d,]+)\)/i,
  // Anthropic; the sum with the reply's limit
  /tokens > ([\d,]+) maximum/i,
  /exceed context limit: [\d,]+ \+ [\d,]+ > ([\d,]+)/i,
  // Mistral
  /with ([\d,]+) maximum context length/i,
  // llama.cpp, in words or in a field of its own; DS4
  /context size \(([\d,]+)|n_ctx: ([\d,]+)|configured context size is ([\d,]+)/i,
  // Google
  /maximum number of tokens allowed \(([\d,]+)|model only supports up to ([\d,]+)/i,
  // xAI
  /maximum prompt length is ([\d,]+)/i,
  // Groq, Cerebras
  /current length is [\d,]+ while limit is ([\d,]+)/i,
  // Together, SGLang
  /longer than the model's context length \(([\d,]+)/i,
  /(?:exceeds|longer than) the (?:maximum|model's) (?:allowed )?(?:input )?length(?: of)? \(?([\d,]+)/i,
  /(?:tokens` must be <=|`inputs` must have less than) ([\d,]+)/i,
  // vLLM, LM Studio
  /context length (?:is|of) only ([\d,]+)|longer than the maximum model length of ([\d,]+)/i,
  // Kimi
  /exceeded model token limit: ([\d,]+)/i,
  // DashScope
  /range of input length should be \[\d+, ([\d,]+)\]/i,
  // Bedrock
  /max input tokens: ([\d,]+)/i,
  // Copilot
  /token count of [\d,]+ exceeds the limit of ([\d,]+)/i,
  // Atlas, SiliconFlow
  /max_seq_len \(?([\d,]+)/i,
  // Fireworks
  /model maximum context length: ([\d,]+)/i,
  // Cohere
  /tokens in the prompt cannot exceed ([\d,]+)/i,
  // Cloudflare
  /context window limit \(([\d,]+)/i,
  // Refusals without a number: OpenAI, LiteLLM, Ollama, MiniMax, Bedrock, z.ai, and others with the same words
  /context[ _-]?(?:length|window|size|limit)/i,
  /(?:prompt|input)(?: tokens)?(?: is)? too (?:long|large)|prompt exceeds max|prompt[ _]?(?:tokens)?[ _]?超长/i,
  /too many (?:input )?tokens|too large for model with|maximum number of tokens|max_prompt_tokens_exceeded/i,
  /tokens in request more than max tokens|exceed max message tokens|reduce the length of the (?:messages|prompt|input)/i,
];

/** Other bounds in words that are much alike: on the reply, on a time, on a field, on what a model must have. */
const OTHER_BOUND =
  /tokens per (?:min|day|hour|sec)|\bTP[MDH]\b|rate.?limit|too many requests|wait before|maximum value for|(?:completion|output) tokens(?: for|, whereas|\.?$)|range of max_\w{0,30}tokens|max_\w{0,30}tokens exceeds|string too long|array too long|too small/i;

/** Returns whether a refusal says that the messages are too long for the model. @param said the vendor's code and words */
export function saysTooLong(said: string): boolean {
  const text = said.slice(0, MAX_LOOKED_AT);
  if (text.includes(CONTEXT_LENGTH_EXCEEDED)) return true;
  return !OTHER_BOUND.test(text) && TOO_LONG.some((words) => words.test(text));
}

/** Returns the window in tokens that a refusal names, and how many tokens the vendor counted in the request; each 0 when it is not told. */
export function toldWindow(said: string): { readonly window: number; readonly counted: number } {
  const text = said.slice(0, MAX_LOOKED_AT);
  for (const words of TOO_LONG) {
    const window = toCount(words.exec(text)?.slice(1).find((group) => group !== undefined));
    if (window > 0) return { window, counted: Math.max(0, ...countsIn(text).filter((count) => count > window)) };
  }
  return { window: 0, counted: 0 };
}

function countsIn(text: string): number[] {
  return [...text.matchAll(/\d[\d,]*/g)].map(([digits]) => toCount(digits));
}

function toCount(digits: string | undefined): number {
  return Number(digits?.replaceAll(",", "") ?? 0);
}

/** Words of refusals that name what is wrong with a request, or that lie in the account. */
const NAMES_REASON =
  /\b(?:temperature|top_[pk]|tool\w*|function\w*|max_\w{0,30}tokens|stop\w*|response_format|json|schema|reasoning\w*|thinking|stream\w*|model|image\w*|role|system|messages?[.[]|content|api.?key|version|balance|billing|quota|credit|account|payment|policy|safety|filter\w*|inappropriate)\b/i;

/**
 * Returns whether a request may have been too long although nobody says so: 400 or 413, and neither a parameter nor another reason is
 * named. The words before the first colon are the gateway's own.
 */
export function mayBeTooLong({ code, status, param, message, upstreamCode = "" }: ProviderError): boolean {
  if (code !== "provider_rejected" || (status !== 400 && status !== 413) || param !== undefined) return false;
  const said = `${upstreamCode} ${message.slice(message.indexOf(":") + 1)}`.slice(0, MAX_LOOKED_AT);
  return !NAMES_REASON.test(said) && !OTHER_BOUND.test(said);
}
