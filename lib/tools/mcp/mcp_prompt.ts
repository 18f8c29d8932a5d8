import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { optionalText, READS_SERVERS, serverName } from "./mcp_reader.ts";

/** `mcp_prompt`: lists the prompts that MCP servers offer, or fills one in (docs/design/tools.md "MCP servers"). */
export const mcpPrompt = defineTool({
  name: "mcp_prompt",
  description: "Lists the prompts of MCP servers, or gives the messages of one, filled in",
  ...READS_SERVERS,
  input: v.strictObject({
    server: serverName,
    name: optionalText(256, "Name of the prompt; without it they are listed"),
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
    // `check` has made sure that all values are texts
    return await mcpReader.prompt({ server: server ?? "", name, values: values as Record<string, string> }, context);
  },
});

function missing(field: string): ToolError {
  return new ToolError("invalid_input", `Cannot call "mcp_prompt": "${field}" is missing`);
}
