import { Buffer } from "node:buffer";
import type { ContentBlock, EmbeddedResource } from "@modelcontextprotocol/client";
import { exactLine } from "../../base/text.ts";
import { compileSchema, SchemaError } from "../../tools/runtime/json_schema.ts";
import type { ToolContext } from "../../tools/runtime/tool.ts";
import type { ToolPicture, ToolResult } from "../../tools/runtime/tool_call.ts";
import type { McpResult, McpToolDefinition } from "./mcp_connection.ts";

/** Call whose result is read. */
export interface AnsweredCall {
  /** Name in the registry */
  readonly tool: string;
  readonly server: string;
  readonly definition: Pick<McpToolDefinition, "outputSchema">;
  readonly context: Pick<ToolContext, "sees">;
}

/** Blocks of a result that are shown, and characters of a name or an address in a line about one. */
const MAX_BLOCKS = 256;
const MAX_LABEL = 500;
/** Bytes of base64 that are decoded for one picture: what is larger is left out by the executor anyway. */
const MAX_PICTURE_BASE64 = 8 * 1_048_576;
const PICTURE_TYPES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);

/**
 * Returns the result of a server's tool as the model and programs get it: texts as they are, a line for what is no text, pictures for a model
 * that sees. The executor cuts, masks and marks it as outside content.
 */
export function toToolResult(
  { content, structuredContent, isError }: McpResult<"tools/call">,
  { definition, context }: AnsweredCall,
): ToolResult {
  const shown = showBlocks(content, context);
  const lines = content.length === 0 ? [] : [shown.output];
  const hasText = content.some(({ type }) => type === "text");
  if (structuredContent !== undefined && !hasText) lines.push(JSON.stringify(structuredContent));
  const fault = structuredContent === undefined ? undefined : faultOf(structuredContent, definition);
  if (fault !== undefined) lines.push(fault);
  const parts = content.slice(0, MAX_BLOCKS).map(aboutOf);
  return {
    output: lines.join("\n"),
    isError: isError === true,
    data: { content: parts, ...(structuredContent === undefined ? {} : { structured_content: structuredContent }) },
    ...(shown.pictures.length === 0 ? {} : { pictures: shown.pictures }),
  };
}

/** Returns the parts of a result as text for the model, with the pictures for a model that sees. */
export function showBlocks(
  blocks: readonly ContentBlock[],
  context: Pick<ToolContext, "sees">,
): { readonly output: string; readonly pictures: readonly ToolPicture[] } {
  const shown = blocks.slice(0, MAX_BLOCKS).map((block) => toShown(block, context));
  const lines = shown.map(({ text }) => text);
  if (blocks.length > MAX_BLOCKS) {
    lines.push(`[${blocks.length - MAX_BLOCKS} further parts of the result are left out]`);
  }
  return {
    output: lines.join("\n"),
    pictures: shown.flatMap(({ picture }) => (picture === undefined ? [] : [picture])),
  };
}

/** Part of a result as the model gets it. */
interface ShownPart {
  readonly text: string;
  readonly picture?: ToolPicture;
}

function toShown(block: ContentBlock, { sees }: Pick<ToolContext, "sees">): ShownPart {
  switch (block.type) {
    case "text":
      return { text: block.text };
    case "image":
      return toPicture(block, `image ${label(block.mimeType)}`, sees);
    case "audio":
      return { text: `[audio ${label(block.mimeType)}, ${bytesOf(block.data)} bytes: it is not given to models]` };
    case "resource_link": {
      const { uri, name, description, mimeType } = block;
      const type = mimeType === undefined ? "" : `, ${label(mimeType)}`;
      const about = description === undefined ? "" : `: ${label(description)}`;
      return { text: `[resource ${label(uri)} "${label(name)}"${type}${about}; mcp_resource reads it]` };
    }
    case "resource":
      return toResource(block, sees);
  }
}

function toResource({ resource }: EmbeddedResource, sees: boolean): ShownPart {
  const type = resource.mimeType === undefined ? "" : ` ${label(resource.mimeType)}`;
  const name = `resource ${label(resource.uri)}${type}`;
  if ("text" in resource) return { text: `[${name}]\n${resource.text}` };
  return toPicture({ data: resource.blob, mimeType: resource.mimeType ?? "" }, name, sees);
}

function toPicture(
  { data, mimeType }: { readonly data: string; readonly mimeType: string },
  name: string,
  sees: boolean,
): ShownPart {
  const size = `${bytesOf(data)} bytes`;
  if (!PICTURE_TYPES.has(mimeType)) return { text: `[${name}, ${size}: it is no text and no picture]` };
  if (!sees) return { text: `[${name}, ${size}: this model is not shown pictures]` };
  if (data.length > MAX_PICTURE_BASE64) return { text: `[${name}, ${size}: it is too large]` };
  return { text: `[${name}, ${size}]`, picture: { bytes: Buffer.from(data, "base64") } };
}

/** Says what a part is, for programs, without its bytes. */
function aboutOf(block: ContentBlock): Readonly<Record<string, unknown>> {
  switch (block.type) {
    case "text":
      return { type: "text", bytes: Buffer.byteLength(block.text) };
    case "image":
    case "audio":
      return { type: block.type, mime_type: label(block.mimeType), bytes: bytesOf(block.data) };
    case "resource_link":
      return { type: "resource_link", uri: label(block.uri), name: label(block.name) };
    case "resource":
      return { type: "resource", uri: label(block.resource.uri) };
  }
}

/** Returns a line about structured content that breaks the tool's own schema. undefined: it fits, or the schema cannot be checked here */
function faultOf(content: unknown, { outputSchema }: Pick<McpToolDefinition, "outputSchema">): string | undefined {
  if (outputSchema === undefined) return undefined;
  try {
    const fault = compileSchema({ ...outputSchema, additionalProperties: false }).check(content);
    if (fault === undefined || fault.reason === "is not allowed") return undefined;
    return `[The structured result breaks the tool's own schema: ${label(fault.path)} ${label(fault.reason)}]`;
  } catch (error) {
    if (error instanceof SchemaError) return undefined;
    throw error;
  }
}

function bytesOf(base64: string): number {
  return Math.floor(base64.replace(/=+$/, "").length * 3 / 4);
}

function label(words: string): string {
  return exactLine(words.length > MAX_LABEL ? `${words.slice(0, MAX_LABEL)}...` : words);
}
