import type { Usage } from "../base/records/usage.ts";

/** A JSON object whose members are not known yet. */
export type JsonRecord = { readonly [key: string]: unknown };

/** Whether a parsed JSON value is an object. */
export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value when it is a string with something in it. */
export function stringOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The value when it is a count: a whole number from 0. */
export function countOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** Usage in the words of the chat-completions format; undefined when a figure is missing. A missing total is the sum. */
export function usageOf(value: unknown): Usage | undefined {
  if (!isRecord(value)) return undefined;
  const prompt = countOf(value["prompt_tokens"]);
  const completion = countOf(value["completion_tokens"]);
  if (prompt === undefined || completion === undefined) return undefined;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: countOf(value["total_tokens"]) ?? prompt + completion,
  };
}
