import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** `mcp_prompt`: lists the prompts that MCP servers offer, or fills one in (docs/design/tools.md "MCP servers"). */
export const mcpPrompt = defineTool({
  name: "mcp_prompt",
  description: "Lists the prompts of MCP servers, or gives the messages of one, filled in",
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
    name: v.optional(
      v.pipe(
        v.string(),
        v.minLength(1),
        v.maxLength(256),
        v.description("Name of the prompt; without it they are listed"),
      ),
    ),
    arguments: v.optional(v.pipe(v.looseObject({}), v.description("Texts for the prompt's arguments, by name"))),
  }),
  check({ server, name, arguments: values }) {
    if (name === undefined && values !== undefined) throw missing("name");
    if (name !== undefined && server === undefined) throw missing("server");
    const wrong = Object.keys(values ?? {}).find((key) => typeof values?.[key] !== "string");
    if (wrong !== undefined) {
      throw new ToolError(
        "invalid_input",
        `Cannot call "mcp_prompt": "arguments.${wrong.slice(0, 64)}" must be a text`,
      );
    }
  },
  async run({ server, name, arguments: values = {} }, context) {
    const { mcpReader } = context.services;
    if (name === undefined) return await mcpReader.prompts(server, context);
    // They were just checked to be texts
    return await mcpReader.prompt({ server: server ?? "", name, values: values as Record<string, string> }, context);
  },
});

function missing(field: string): ToolError {
  return new ToolError("invalid_input", `Cannot call "mcp_prompt": "${field}" is missing`);
}
