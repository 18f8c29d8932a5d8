import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** `mcp_resource`: lists the resources that MCP servers offer, or reads one (docs/design/tools.md "MCP servers"). */
export const mcpResource = defineTool({
  name: "mcp_resource",
  description: "Lists the resources of MCP servers, or reads one by its URI",
  access: "network",
  outside: true,
  enabled: ({ security }) => security.mcp.enabled,
  enabledBy: "[security.mcp] enabled = true",
  needs: ["mcpReader"],
  input: v.strictObject({
    server: v.optional(
      v.pipe(
        v.string(),
        v.minLength(1),
        v.maxLength(64),
        v.description("Name of the server; default: all, for a list"),
      ),
    ),
    uri: v.optional(
      v.pipe(
        v.string(),
        v.minLength(1),
        v.maxLength(4_096),
        v.description("URI of the resource; without it they are listed"),
      ),
    ),
  }),
  check({ server, uri }) {
    if (uri === undefined || server !== undefined) return;
    throw new ToolError("invalid_input", 'Cannot call "mcp_resource": "server" is missing');
  },
  async run({ server, uri }, context) {
    const { mcpReader } = context.services;
    if (uri === undefined) return await mcpReader.resources(server, context);
    return await mcpReader.resource({ server: server ?? "", uri }, context);
  },
});
