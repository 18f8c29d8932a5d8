import type { Tool, ToolAnnotations } from "@modelcontextprotocol/server";
import { hasScope, type Scope } from "../../lib/base/records/caller.ts";
import { toldWords } from "../../lib/tools/runtime/told_words.ts";
import type { ToolExecutor, ToolInfo } from "../../lib/tools/runtime/tool_executor.ts";
import { RUN_TOOLS } from "./run_tools.ts";

/** Returns the enabled tools as MCP describes them, by name, and those for runs where the scopes allow them. */
export function toOfferedTools(tools: Pick<ToolExecutor, "list">, scopes: readonly Scope[]): readonly Tool[] {
  const known = tools.list();
  const names = new Set(known.map(({ name }) => name));
  const forRuns = Object.values(RUN_TOOLS).filter(({ access, tool }) =>
    hasScope(scopes, access) && !names.has(tool.name)
  );
  const offered = [...known.filter(({ enabled }) => enabled).map(toMcpTool), ...forRuns.map(({ tool }) => tool)];
  return offered.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function toMcpTool({ name, access, source, ...words }: ToolInfo): Tool {
  const { description, schema } = toldWords(source, { description: words.description, schema: words.input_schema });
  return {
    name,
    description,
    // The SDK's type leaves no room for `readonly`
    inputSchema: (schema ?? ANY_INPUT) as Tool["inputSchema"],
    annotations: annotationsOf(access),
  };
}

/** Schema of a tool that takes a text of its own. */
const ANY_INPUT = { type: "object" } as const;

/** Returns the hints for clients that an access gives. They are hints alone: the policy decides about each call. */
export function annotationsOf(access: ToolInfo["access"]): ToolAnnotations {
  switch (access) {
    case "read":
      return { readOnlyHint: true, destructiveHint: false, openWorldHint: false };
    case "state":
      return { readOnlyHint: false, destructiveHint: false, openWorldHint: false };
    case "write":
      return { readOnlyHint: false, destructiveHint: true, openWorldHint: false };
    case "network":
      return { readOnlyHint: false, destructiveHint: true, openWorldHint: true };
  }
}
