import * as v from "valibot";

const count = v.pipe(v.number(), v.integer(), v.minValue(0));

/** Tokens of one model reply or of a whole run, in the words of the chat-completions format. */
export const usageSchema = v.object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  /** true when the provider reported nothing; absent: the figures are the provider's own */
  estimated: v.optional(v.boolean()),
  /** What they were estimated by: a tokenizer's vocabulary, or bytes/4 */
  estimated_by: v.optional(v.picklist(["tokenizer", "bytes"])),
});
export type Usage = v.InferOutput<typeof usageSchema>;

export const NO_USAGE: Usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Sum of two usages; estimated as soon as one part is, and by the rougher of the two ways. */
export function addUsage(a: Usage, b: Usage): Usage {
  return {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
    ...(a.estimated || b.estimated ? estimate(a, b) : {}),
  };
}

/** Where the figures come from, in one word. Records of before `estimated_by` were bytes/4. */
export function usageSource(usage: Usage): "provider" | "tokenizer" | "bytes" {
  return usage.estimated ? usage.estimated_by ?? "bytes" : "provider";
}

function estimate(a: Usage, b: Usage): Pick<Usage, "estimated" | "estimated_by"> {
  const rough = usageSource(a) === "bytes" || usageSource(b) === "bytes";
  return { estimated: true, estimated_by: rough ? "bytes" : "tokenizer" };
}
