import { Buffer } from "node:buffer";
import { toDeclaration } from "../../lib/agent/deferred_tools.ts";
import type { ToolDeclaration } from "../../lib/providers/provider.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";

/** Returns the bytes of UTF-8 that a tool costs in a request of the chat-completions format. */
export function toolBytes(tool: Tool): number {
  return declarationBytes(toDeclaration(tool));
}

/** Returns the bytes of UTF-8 that all tools of a request cost in the chat-completions format. */
export function requestBytes(tools: readonly ToolDeclaration[]): number {
  return tools.reduce((sum, tool) => sum + declarationBytes(tool), 0);
}

/** Returns the bytes of UTF-8 that a declared tool costs in a request of the chat-completions format. */
export function declarationBytes({ name, description, parameters }: ToolDeclaration): number {
  return Buffer.byteLength(JSON.stringify({ type: "function", function: { name, description, parameters } }));
}
