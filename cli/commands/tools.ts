import { nearest } from "../../lib/config/nearest.ts";
import type { ToolInfo } from "../../lib/tools/runtime/tool_door.ts";
import { UsageError } from "../cli_error.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/to_table.ts";

const TOOL = { type: "positional", required: true, description: "Name of the tool, from postern tools list" } as const;

/** `postern tools list` */
export const toolsListCommand = defineCliCommand({
  args: {},
  example: "postern tools list",
  async run(context) {
    const tools = await readTools(context);
    const rows = tools.map((
      { name, access, enabled, description, reason },
    ) => [name, access, enabled ? "on" : "off", enabled ? firstSentence(description) : (reason ?? "")]);
    context.print(tools, toTable(["NAME", "ACCESS", "STATE", "ABOUT"], rows));
    return EXIT.ok;
  },
});

/** `postern tools info <tool>` */
export const toolsInfoCommand = defineCliCommand({
  args: { tool: TOOL },
  example: "postern tools info read_file",
  async run(context, { tool: name }) {
    const tool = findTool(await readTools(context), name);
    const properties = Object.entries(tool.input_schema?.properties ?? {}).map(([key, schema]) => {
      const needed = tool.input_schema?.required?.includes(key) ? "required" : "optional";
      const about = String(schema["description"] ?? "") + oneOf(schema["enum"]);
      return [`  ${key}`, String(schema["type"] ?? "any"), needed, about];
    });
    const state = tool.enabled ? "on" : `off: ${tool.reason}`;
    const input = properties.length === 0 ? "" : `\n\nInput\n${toTable(["  FIELD", "TYPE", "", "ABOUT"], properties)}`;
    context.print(tool, `${tool.name} (${tool.access}, ${tool.source}), ${state}\n\n${tool.description}${input}`);
    return EXIT.ok;
  },
});

/** `postern tools schema <tool>`: JSON, with or without --json. */
export const toolsSchemaCommand = defineCliCommand({
  args: { tool: TOOL },
  example: "postern tools schema read_file",
  async run(context, { tool: name }) {
    const schema = findTool(await readTools(context), name).input_schema ?? null;
    context.print(schema, JSON.stringify(schema, null, 2));
    return EXIT.ok;
  },
});

/** The tool of this name. @throws {UsageError} with the nearest name */
export function findTool<T extends { readonly name: string }>(tools: readonly T[], name: string): T {
  const tool = tools.find((candidate) => candidate.name === name);
  if (tool !== undefined) return tool;
  const meant = nearest(name, tools.map((candidate) => candidate.name));
  throw new UsageError(
    `Cannot find the tool "${name}": ${meant === undefined ? "see postern tools list" : `did you mean "${meant}"?`}`,
  );
}

/** All tools the gateway knows. */
export async function listTools(gateway: ReachedGateway): Promise<readonly ToolInfo[]> {
  return (await gateway.request({ method: "GET", path: "/v1/tools" }) as { data: readonly ToolInfo[] }).data;
}

async function readTools(context: CommandContext): Promise<readonly ToolInfo[]> {
  const gateway = await reachGateway(context, { agent: false });
  try {
    return await listTools(gateway);
  } finally {
    await gateway.close();
  }
}

function oneOf(values: unknown): string {
  return Array.isArray(values) ? `: one of ${values.join(", ")}` : "";
}

function firstSentence(text: string): string {
  return /^.*?[.](?=\s|$)/s.exec(text)?.[0].replace(/\s+/g, " ").slice(0, -1) ?? text;
}
