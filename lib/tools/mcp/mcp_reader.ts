import * as v from "valibot";
import type { Config } from "../../config/config.ts";
import type { CallContext, ToolResult } from "../runtime/tool_call.ts";

/** Part of a tool call's context that reading from a server needs. */
export type ReadContext = Pick<CallContext, "signal" | "runId" | "sees" | "elicit" | "sample" | "progress">;

/** Prompts and resources of the MCP servers that may be used. All throw ToolError, and CancelError when the call's signal aborts. */
export interface McpReader {
  /** Lists the prompts of a server. @param server undefined: those of all servers */
  prompts(server: string | undefined, context: ReadContext): Promise<ToolResult>;
  /** Fills a prompt in and gives its messages. */
  prompt(
    given: { readonly server: string; readonly name: string; readonly values: Readonly<Record<string, string>> },
    context: ReadContext,
  ): Promise<ToolResult>;
  /** Lists the resources and the templates of resources of a server. @param server undefined: those of all servers */
  resources(server: string | undefined, context: ReadContext): Promise<ToolResult>;
  /** Reads a resource. */
  resource(given: { readonly server: string; readonly uri: string }, context: ReadContext): Promise<ToolResult>;
}

/** Fields of the definition that the tools share which read from servers. */
export const READS_SERVERS = {
  access: "network",
  // Lists, prompts and resources are read
  repeatable: true,
  outside: true,
  enabled: ({ security }: Config) => security.mcp.enabled,
  enabledBy: "[security.mcp] enabled = true",
  needs: ["mcpReader"],
} as const;

/** Field of their input that names the server. */
export const serverName = optionalText(64, "Name of the server; default: all, for a list");

/** Makes the schema of a text in their input that may be left out. */
export function optionalText(maxLength: number, description: string) {
  return v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(maxLength), v.description(description)));
}
