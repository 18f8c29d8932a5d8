import type { CollectedReply } from "./collect_reply.ts";

/** What all parts of one reply share. */
export interface CompletionHead {
  /** `chatcmpl-` and random characters */
  readonly id: string;
  /** Seconds since the epoch */
  readonly created: number;
  readonly model: string;
}

/** The JSON reply of a completion (DESIGN.md section 3). `content` is null beside tool calls or a refusal without text. */
export function toCompletionObject(head: CompletionHead, reply: CollectedReply): unknown {
  const silent = reply.text === "" && (reply.toolCalls.length > 0 || reply.refusal !== "");
  return {
    id: head.id,
    object: "chat.completion",
    created: head.created,
    model: head.model,
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: silent ? null : reply.text,
          ...(reply.reasoning === "" ? {} : { reasoning_content: reply.reasoning }),
          refusal: reply.refusal === "" ? null : reply.refusal,
          ...(reply.toolCalls.length === 0 ? {} : { tool_calls: reply.toolCalls }),
        },
        logprobs: null,
        finish_reason: reply.finishReason,
      },
    ],
    usage: reply.usage,
  };
}
