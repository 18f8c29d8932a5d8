import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { optionalText, READS_SERVERS, serverName } from "./mcp_reader.ts";

/** `mcp_resource`: lists the resources that MCP servers offer, or reads one (docs/design/tools.md "MCP servers"). */
export const mcpResource = defineTool({
  name: "mcp_resource",
  description: "Lists the resources of MCP servers, or reads one by its URI",
  ...READS_SERVERS,
  input: v.strictObject({
    server: serverName,
    uri: optionalText(4_096, "URI of the resource; without it they are listed"),
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
