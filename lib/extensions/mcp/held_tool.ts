import { ToolError } from "../../base/errors.ts";
import type { Access, Tool } from "../../tools/runtime/tool.ts";
import type { ToolChange } from "./accepted_tools.ts";
import type { McpToolDefinition } from "./mcp_connection.ts";
import { mcpOrigin } from "./mcp_tool.ts";

/** Tool of a server that a person has not accepted, and what the catalogue knows of it. */
export interface HeldToolOptions {
  /** Name in the registry, such as `mcp__files__read` */
  readonly name: string;
  /** Name of the server */
  readonly server: string;
  readonly definition: Pick<McpToolDefinition, "digest">;
  readonly state: ToolChange["state"];
  /** Returns the access that the operator gave it, `network` without one. */
  readonly access: () => Access;
}

/**
 * Makes a tool that is off until a person accepts its definition. Every door then says why, as for any other tool that is off. No word of
 * the server is shown but the tool's name: description and schema are what the person has to look at first.
 */
export function createHeldTool({ name, server, definition, state, access }: HeldToolOptions): Tool {
  const done = state === "new" ? "added it" : "changed it";
  const refuse = (): never => {
    throw new ToolError("tool_held_back", `Cannot call "${name}": it is off; ${way}`);
  };
  const way = `run postern mcp changes ${server}: the server has ${done}, and nobody has accepted that yet`;
  return {
    name,
    description: `Held back: the MCP server "${server}" has ${done}, and nobody has accepted that yet`,
    get access() {
      return access();
    },
    source: "mcp",
    origin: mcpOrigin(server, definition),
    outside: true,
    enabled: () => false,
    wayOn: () => way,
    enabledBy: undefined,
    local: true,
    needs: [],
    inputSchema: undefined,
    prepare: refuse,
    execute: () => Promise.reject(new TypeError(`The tool "${name}" is off`)),
  };
}
