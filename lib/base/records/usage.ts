import * as v from "valibot";

const count = v.pipe(v.number(), v.integer(), v.minValue(0));

/** Tokens of one model reply or of a whole run, in the words of the chat-completions format. */
export const usageSchema = v.object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  /** true when the provider reported nothing and the figures are bytes/4 */
  estimated: v.optional(v.boolean()),
});
export type Usage = v.InferOutput<typeof usageSchema>;

export const NO_USAGE: Usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Sum of two usages; estimated as soon as one part is. */
export function addUsage(a: Usage, b: Usage): Usage {
  return {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
    ...(a.estimated || b.estimated ? { estimated: true } : {}),
  };
}
