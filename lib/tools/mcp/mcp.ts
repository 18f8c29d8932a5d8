import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import { mcpToolName } from "./mcp_tool_name.ts";

/**
 * `mcp`: calls a tool of an MCP server by the names that the server gives (docs/design/tools.md "MCP servers").
 *
 * The call is decided, approved and recorded as if the model had called that tool by its own name, `mcp__<server>__<tool>`.
 */
export const mcp = defineTool({
  name: "mcp",
  description: "Calls a tool of an MCP server by its own name; the same as calling mcp__<server>__<tool>",
  // The widest that a server's tool may have. The call of a server's tool has that tool's own access
  access: "network",
  accessOf: () => "read",
  outside: true,
  enabled: ({ security }) => security.mcp.enabled,
  enabledBy: "[security.mcp] enabled = true",
  needs: [],
  input: v.strictObject({
    server: v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Name of the server")),
    tool: v.pipe(v.string(), v.minLength(1), v.maxLength(128), v.description("Name of its tool")),
    arguments: v.optional(v.pipe(v.looseObject({}), v.description("Input of the tool; default {}"))),
  }),
  standsFor: ({ server, tool, arguments: given = {} }) => ({
    tool: mcpToolName(server, tool),
    input: JSON.stringify(given),
    source: "mcp",
    owner: `mcp ${server}`,
  }),
  run: ({ server, tool }) => Promise.reject(new TypeError(`The call stands for ${mcpToolName(server, tool)}`)),
});
