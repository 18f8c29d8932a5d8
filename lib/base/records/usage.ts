import * as v from "valibot";
import { isRecord } from "../json.ts";

/** Parts of a count, such as `cached_tokens`, by the vendor's own names */
const details = v.record(v.string(), v.unknown());
const count = v.pipe(v.number(), v.integer(), v.minValue(0));

/** Tokens of one model reply or of a whole run, in the words of the chat-completions format. */
export const usageSchema = v.object({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: v.optional(details),
  completion_tokens_details: v.optional(details),
  /** Other figures of the vendor, such as a price; a completion has them beside the counts */
  vendor: v.optional(details),
  /** true when the provider reported nothing; absent: the figures are the provider's own */
  estimated: v.optional(v.boolean()),
  /** Method of the estimate: a tokenizer's vocabulary, or bytes/4. */
  estimated_by: v.optional(v.picklist(["tokenizer", "bytes"])),
});
/** Tokens of one model reply or of a whole run. */
export type Usage = v.InferOutput<typeof usageSchema>;

/** Usage of a run that has asked no model yet. `addUsage` returns the other usage for it. */
export const NO_USAGE: Usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Adds two usages with all their details. The sum is estimated when one part is, by the rougher of the two methods. */
export function addUsage(a: Usage, b: Usage): Usage {
  if (a === NO_USAGE) return b;
  if (b === NO_USAGE) return a;
  return {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
    ...sumOf(a, b, "prompt_tokens_details"),
    ...sumOf(a, b, "completion_tokens_details"),
    ...sumOf(a, b, "vendor"),
    ...(a.estimated || b.estimated ? estimate(a, b) : {}),
  };
}

type Details = NonNullable<Usage["vendor"]>;

function sumOf(a: Usage, b: Usage, part: "prompt_tokens_details" | "completion_tokens_details" | "vendor") {
  const [left, right] = [a[part], b[part]];
  if (left === undefined && right === undefined) return undefined;
  return { [part]: addDetails(left ?? {}, right ?? {}) };
}

/** Adds numbers, also inside of objects; the later value of anything else. */
function addDetails(a: Details, b: Details): Details {
  const sum: Record<string, unknown> = { ...a };
  for (const [name, value] of Object.entries(b)) {
    const before = sum[name];
    if (typeof before === "number" && typeof value === "number") sum[name] = before + value;
    else if (isRecord(before) && isRecord(value)) sum[name] = addDetails(before, value);
    else sum[name] = value;
  }
  return sum;
}

/**
 * Returns true when the provider reported the usage of a call. Some local servers report zeros in place of nothing. The offline
 * provider, which is no model, reports `NO_USAGE` itself.
 */
export function isReported(usage: Usage | undefined): usage is Usage {
  return usage !== undefined && (usage.total_tokens > 0 || usage === NO_USAGE);
}

/** Tells where the figures come from, in one word. Records of before `estimated_by` were bytes/4. */
export function usageSource(usage: Usage): "provider" | "tokenizer" | "bytes" {
  return usage.estimated ? usage.estimated_by ?? "bytes" : "provider";
}

function estimate(a: Usage, b: Usage): Pick<Usage, "estimated" | "estimated_by"> {
  const rough = usageSource(a) === "bytes" || usageSource(b) === "bytes";
  return { estimated: true, estimated_by: rough ? "bytes" : "tokenizer" };
}
