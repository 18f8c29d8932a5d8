import { hash } from "node:crypto";
import type { ContentBlock } from "@modelcontextprotocol/client";
import { canonicalDigest, type JsonSchema, type ObjectJsonSchema } from "../../base/json.ts";
import { parseInput } from "../../tools/runtime/parse_input.ts";
import type { Access, PreparedCall, Tool, ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import type { McpConnection, McpToolDefinition } from "./mcp_connection.ts";

/** Tool of a server, and the ways to judge and to call it. */
export interface McpToolOptions {
  /** Name in the registry, as `mcp__files__read` */
  readonly name: string;
  readonly connection: McpConnection;
  readonly definition: McpToolDefinition;
  /** Returns the operator's word, `network` without one. */
  readonly access: () => Access;
}

const MAX_TOOL_NAME = 64;
/** Hexadecimal digits of the digest that ends a name which is not the tool's own. */
const DIGEST_LENGTH = 10;

/**
 * Returns the name of a server's tool in the registry. What models may not write becomes `_`. A name that is then another one, too long,
 * not plainly of this server, or like one with a digest, ends with a digest: so no tool can be given the name of another one.
 */
export function mcpToolName(server: string, tool: string): string {
  const plain = `mcp__${server}__${tool}`;
  const name = plain.replace(/[^a-zA-Z0-9_-]/g, "_");
  const isOfServer = plain.indexOf("__", "mcp__".length) === "mcp__".length + server.length;
  const isLikeDigest = new RegExp(`_[0-9a-f]{${DIGEST_LENGTH}}$`).test(name);
  if (name === plain && name.length <= MAX_TOOL_NAME && isOfServer && !isLikeDigest) return name;
  const digest = hash("sha256", JSON.stringify([server, tool])).slice(0, DIGEST_LENGTH);
  return `${name.slice(0, MAX_TOOL_NAME - DIGEST_LENGTH - 1)}_${digest}`;
}

/** Makes a tool of a server one of the gateway's. Its access is the operator's word, and its output is content from outside. */
export function createMcpTool({ name, connection, definition, access }: McpToolOptions): Tool {
  const inputSchema = toObjectSchema(definition.inputSchema);
  const fields = Object.keys(inputSchema.properties);
  const prepare = (text: string): PreparedCall => {
    const input = parseInput(text, { tool: name, fields, required: inputSchema.required ?? [], textField: undefined });
    return {
      input,
      digest: canonicalDigest(input),
      access: access(),
      effects: {},
      run: (context) => call({ connection, definition, input }, context),
    };
  };
  return {
    name,
    description: definition.description,
    get access() {
      return access();
    },
    source: "mcp",
    origin: `mcp ${connection.name}`,
    outside: true,
    enabled: () => true,
    enabledBy: undefined,
    needs: [],
    inputSchema,
    modelSchema: definition.inputSchema,
    prepare,
    execute: async (text, context) => await prepare(text).run(context),
  };
}

async function call(
  { connection, definition, input }: {
    readonly connection: McpConnection;
    readonly definition: McpToolDefinition;
    readonly input: Readonly<Record<string, unknown>>;
  },
  { signal, runId }: ToolContext,
): Promise<ToolResult> {
  const { content, isError } = await connection.request("tools/call", {
    name: definition.name,
    arguments: { ...input },
  }, {
    signal,
    owner: runId,
    digest: definition.digest,
  });
  return { output: content.map(textOf).join("\n"), isError: isError === true };
}

function textOf(block: ContentBlock): string {
  return block.type === "text" ? block.text : `[${block.type}]`;
}

/** Returns the schema of a server's tool as those of the gateway's own look: an object with named fields. */
function toObjectSchema(schema: JsonSchema): ObjectJsonSchema {
  const { properties, required } = schema;
  return {
    ...schema,
    type: "object",
    properties: isTable(properties) ? properties as ObjectJsonSchema["properties"] : {},
    required: Array.isArray(required) ? required.filter((name) => typeof name === "string") : [],
    additionalProperties: false,
  };
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
