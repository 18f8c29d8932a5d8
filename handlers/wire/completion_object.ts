import type { CollectedReply } from "./collect_reply.ts";

/** What all parts of one reply share. */
export interface CompletionHead {
  /** `chatcmpl-` and the characters of the run's own id */
  readonly id: string;
  /** Seconds since the epoch */
  readonly created: number;
  readonly model: string;
}

/**
 * The JSON reply of a completion (DESIGN.md section 3), written around its texts: `JSON.stringify` of the whole takes twice as long.
 * `content` is null beside tool calls or a refusal without text.
 */
export function completionJson(head: CompletionHead, reply: CollectedReply): string {
  const { text, reasoning, refusal, toolCalls } = reply;
  const content = text === "" && (toolCalls.length > 0 || refusal !== "") ? null : text;
  const thought = reasoning === "" ? "" : `,"reasoning_content":${JSON.stringify(reasoning)}`;
  const calls = toolCalls.length === 0 ? "" : `,"tool_calls":${JSON.stringify(toolCalls)}`;
  const said = `"content":${JSON.stringify(content)},"refusal":${refusal === "" ? null : JSON.stringify(refusal)}`;
  const choice =
    `{"index":0,"message":{"role":"assistant",${said}${thought}${calls}},"logprobs":null,"finish_reason":"${reply.finishReason}"}`;
  const { id, created, model } = head;
  return (
    `{"id":${JSON.stringify(id)},"object":"chat.completion","created":${created},"model":${JSON.stringify(model)},` +
    `"choices":[${choice}],"usage":${JSON.stringify(reply.usage)}}`
  );
}
