import type { Message } from "../base/records/message.ts";
import { isImagePart, textOf } from "../base/records/message.ts";
import type { ModelParameters, ProviderRequest, ToolDeclaration } from "../providers/provider.ts";
import { thinkingTokens } from "../providers/thinking_tokens.ts";
import type { TokenCounter } from "./token_counter.ts";

/** What an image may cost, however it is given: more than common models count for one. */
const IMAGE_TOKENS = 4096;
/** A tool result of 200 characters with the line that says so, and its envelope */
const SHORTENED_RESULT_TOKENS = 120;
/** What the common templates put around a message */
const MESSAGE_TOKENS = 4;
/** Bytes that the formats put around a tool, and around both lists */
const TOOL_ENVELOPE = 64;
const LIST_ENVELOPES = 16;
/** What vendors tell a model about the use of tools, unseen by us */
const TOOL_USE_TOKENS = 400;

/** Bytes a request's messages and tools take as JSON: an upper bound of the tokens of its text, since one token is at least one byte. */
export function inputBytes(messages: readonly Message[], tools: readonly ToolDeclaration[]): number {
  let bytes = tools.length === 0 ? 0 : Buffer.byteLength(JSON.stringify(tools));
  for (const message of messages) bytes += messageBytes(message);
  return bytes;
}

/** Bytes of the text that is sent whatever else is shortened or left out: that of the last message. */
export function lastBytes(messages: readonly Message[]): number {
  return Buffer.byteLength(textOf(messages.at(-1)?.content ?? null));
}

/** Bytes of one message as JSON. */
export function messageBytes(message: Message): number {
  return Buffer.byteLength(JSON.stringify(message));
}

/** Tokens messages take, as a window is counted: bytes/4. */
export function messageTokens(messages: readonly Message[]): number {
  return messages.reduce((sum, message) => sum + toTokens(messageBytes(message)), 0);
}

/** The same with tool results cut as far as `fitContext` cuts them before it leaves anything out. */
export function shortenedTokens(messages: readonly Message[]): number {
  return messages.reduce((sum, message) => {
    const tokens = toTokens(messageBytes(message));
    return sum + (message.role === "tool" ? Math.min(tokens, SHORTENED_RESULT_TOKENS) : tokens);
  }, 0);
}

/** Upper bound of the tokens a request's input may cost: its bytes, and a flat sum for each image in place of those. */
export function maxInputTokens({ messages, tools, parameters }: ProviderRequest): number {
  let tokens = inputBytes(messages, tools) + messages.length + LIST_ENVELOPES;
  if (tools.length > 0) tokens += tools.length * TOOL_ENVELOPE + TOOL_USE_TOKENS;
  for (const { content } of messages) {
    if (!Array.isArray(content)) continue;
    for (const part of content) {
      if (isImagePart(part)) tokens += IMAGE_TOKENS - part.image_url.url.length;
    }
  }
  const { response_format: format, passed } = parameters;
  if (passed !== undefined) tokens += Buffer.byteLength(JSON.stringify(passed.body));
  return format === undefined ? tokens : tokens + Buffer.byteLength(JSON.stringify(format));
}

/** Upper bound of what the model may say beyond the output limit: some vendors let it think on top of it. */
export function maxThinkingTokens({ reasoning_effort: effort }: ModelParameters): number {
  return effort === undefined ? 0 : thinkingTokens(effort);
}

/** Tokens as bytes/4, rounded up: the common rule of thumb, marked `estimated` wherever it is shown. */
export function toTokens(bytes: number): number {
  return Math.ceil(bytes / 4);
}

/** Tokens of a request's input by a counter, which sees its text alone. */
export function countInput({ messages, tools }: ProviderRequest, count: TokenCounter): number {
  let tokens = tools.length === 0 ? 0 : count(JSON.stringify(tools));
  for (const message of messages) {
    tokens += MESSAGE_TOKENS + count(textOf(message.content));
    if (message.role !== "assistant") continue;
    for (const { function: called } of message.tool_calls ?? []) tokens += count(`${called.name} ${called.arguments}`);
  }
  return tokens;
}
