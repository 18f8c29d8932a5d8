import { compileSchema, SchemaError } from "../../tools/runtime/json_schema.ts";
import type { ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolResult } from "../../tools/runtime/tool_call.ts";
import { aboutContent, labelOf, showContent } from "../../tools/runtime/tool_content.ts";
import type { McpResult, McpToolDefinition } from "./mcp_connection.ts";

/** Call whose result is read. */
export interface AnsweredCall {
  /** Name in the registry */
  readonly tool: string;
  readonly server: string;
  readonly definition: Pick<McpToolDefinition, "outputSchema">;
  readonly context: Pick<ToolContext, "sees">;
}

/** Tool that reads a link of a result. */
export const READER = "mcp_resource";

/**
 * Returns the result of a server's tool as the model and programs get it: texts as they are, a line for what is no text, pictures for a model
 * that sees. The executor cuts, masks and marks it as outside content.
 */
export function toToolResult(
  { content, structuredContent, isError }: McpResult<"tools/call">,
  { definition, context }: AnsweredCall,
): ToolResult {
  const shown = showContent(content, { sees: context.sees, reader: READER });
  const lines = content.length === 0 ? [] : [shown.output];
  const hasText = content.some(({ type }) => type === "text");
  if (structuredContent !== undefined && !hasText) lines.push(JSON.stringify(structuredContent));
  const fault = structuredContent === undefined ? undefined : faultOf(structuredContent, definition);
  if (fault !== undefined) lines.push(fault);
  return {
    output: lines.join("\n"),
    isError: isError === true,
    data: {
      content: aboutContent(content),
      ...(structuredContent === undefined ? {} : { structured_content: structuredContent }),
    },
    whole: {
      content: fault === undefined ? content : [...content, { type: "text", text: fault }],
      ...(structuredContent === undefined ? {} : { structured: structuredContent }),
    },
    ...(shown.pictures.length === 0 ? {} : { pictures: shown.pictures }),
  };
}

/** Returns a line about structured content that breaks the tool's own schema. undefined: it fits, or the schema cannot be checked here */
function faultOf(content: unknown, { outputSchema }: Pick<McpToolDefinition, "outputSchema">): string | undefined {
  if (outputSchema === undefined) return undefined;
  try {
    const { additionalProperties = true } = outputSchema;
    const fault = compileSchema({ ...outputSchema, additionalProperties }).check(content);
    if (fault === undefined) return undefined;
    return `[The structured result breaks the tool's own schema: ${labelOf(fault.path)} ${labelOf(fault.reason)}]`;
  } catch (error) {
    if (error instanceof SchemaError) return undefined;
    throw error;
  }
}
