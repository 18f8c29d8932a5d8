import type { Fields } from "../../lib/base/join_fields.ts";
import type { Usage } from "../../lib/base/records/usage.ts";
import type { CollectedReply } from "./collect_reply.ts";

/** Members that all chunks of one reply share. */
export interface CompletionHead {
  /** `chatcmpl-` and the characters of the run's own id */
  readonly id: string;
  /** Seconds since the epoch */
  readonly created: number;
  readonly model: string;
}

/**
 * Returns the JSON reply of a completion. The JSON is written by hand around its texts: `JSON.stringify` of the whole takes twice as long.
 * `content` is null beside tool calls or a refusal without text.
 * Source: docs/design/completions.md "Replies and streams"
 */
export function completionJson(head: CompletionHead, reply: CollectedReply): string {
  const { text, reasoning, refusal, toolCalls, fields } = reply;
  const content = text === "" && (toolCalls.length > 0 || refusal !== "") ? null : text;
  const thought = reasoning === "" ? "" : `,"reasoning_content":${JSON.stringify(reasoning)}`;
  const calls = toolCalls.length === 0 ? "" : `,"tool_calls":${JSON.stringify(toolCalls)}`;
  const said = `"content":${JSON.stringify(content)},"refusal":${refusal === "" ? null : JSON.stringify(refusal)}`;
  const message = `{"role":"assistant",${said}${thought}${calls}${following(fields?.message)}}`;
  const logprobs = fields?.choice?.["logprobs"] === undefined ? `"logprobs":null,` : "";
  const reason = `"finish_reason":"${reply.finishReason}"`;
  const choice = `{"index":0,"message":${message},${logprobs}${reason}${following(fields?.choice)}}`;
  const { id, created, model } = head;
  return (
    `{"id":${JSON.stringify(id)},"object":"chat.completion","created":${created},"model":${JSON.stringify(model)},` +
    `"choices":[${choice}],"usage":${usageJson(reply.usage)}${following(fields?.reply)}}`
  );
}

/** Returns the JSON of a usage, with the vendor's own figures beside the counts. */
export function usageJson(usage: Usage): string {
  if (usage.vendor === undefined) return JSON.stringify(usage);
  const { vendor, ...known } = usage;
  return JSON.stringify({ ...vendor, ...known });
}

/** JSON of the members, each after a comma. */
function following(fields: Fields | undefined): string {
  const text = fields === undefined ? "" : JSON.stringify(fields).slice(1, -1);
  return text === "" ? "" : `,${text}`;
}
