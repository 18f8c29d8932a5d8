import type { Message } from "../base/records/message.ts";
import type { ToolDeclaration } from "../providers/provider.ts";

/** Bytes a request's messages and tools take as JSON: an upper bound of its tokens, since one token is at least one byte. */
export function inputBytes(messages: readonly Message[], tools: readonly ToolDeclaration[]): number {
  let bytes = tools.length === 0 ? 0 : Buffer.byteLength(JSON.stringify(tools));
  for (const message of messages) bytes += messageBytes(message);
  return bytes;
}

/** Bytes of one message as JSON. */
export function messageBytes(message: Message): number {
  return Buffer.byteLength(JSON.stringify(message));
}

/** Tokens as bytes/4, rounded up: the common rule of thumb, marked `estimated` wherever it is shown. */
export function toTokens(bytes: number): number {
  return Math.ceil(bytes / 4);
}
