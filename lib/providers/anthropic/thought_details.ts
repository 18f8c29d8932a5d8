import type { Fields } from "../../base/join_fields.ts";
import { isRecord } from "../../base/json.ts";

/**
 * Thinking of Claude as a field of a chat completion, `reasoning_details`, in the form that OpenRouter gave it: clients that send the field
 * back with a call give Claude its signature, also where this gateway no longer knows the turn.
 * Source: https://openrouter.ai/docs/use-cases/reasoning-tokens "Preserving reasoning blocks"
 */
export const THOUGHT_DETAILS = "reasoning_details";
const FORMAT = "anthropic-claude-v1";

/** Returns a block of thinking, or of redacted thinking, as a detail. */
export function toThoughtDetail({ type, thinking, signature, data }: Fields, index: number): Fields {
  return type === "thinking"
    ? { type: "reasoning.text", text: thinking, signature, format: FORMAT, index }
    : { type: "reasoning.encrypted", data, format: FORMAT, index };
}

/** Returns the blocks of details that Claude has signed; of any others none. */
export function toThoughtBlocks(details: unknown): Record<string, unknown>[] {
  if (!Array.isArray(details)) return [];
  return details.flatMap((detail: unknown): Record<string, unknown>[] => {
    if (!isRecord(detail) || detail.format !== FORMAT) return [];
    const { type, text, signature, data } = detail;
    if (type === "reasoning.text" && typeof text === "string" && typeof signature === "string" && signature !== "") {
      return [{ type: "thinking", thinking: text, signature }];
    }
    return type === "reasoning.encrypted" && typeof data === "string" ? [{ type: "redacted_thinking", data }] : [];
  });
}
