import type { CollectedReply } from "./collect_reply.ts";

/** What all parts of one reply share. */
export interface CompletionHead {
  /** `chatcmpl-` and the characters of the run's own id */
  readonly id: string;
  /** Seconds since the epoch */
  readonly created: number;
  readonly model: string;
}

/** The JSON reply of a completion (DESIGN.md section 3). `content` is null beside tool calls or a refusal without text. */
export function toCompletionObject(head: CompletionHead, reply: CollectedReply): unknown {
  const { text, reasoning, refusal, toolCalls } = reply;
  const message: Record<string, unknown> = {
    role: "assistant",
    content: text === "" && (toolCalls.length > 0 || refusal !== "") ? null : text,
    refusal: refusal === "" ? null : refusal,
  };
  if (reasoning !== "") message["reasoning_content"] = reasoning;
  if (toolCalls.length > 0) message["tool_calls"] = toolCalls;
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: reply.finishReason }],
    usage: reply.usage,
  };
}
