import { Buffer } from "node:buffer";
import { exactLine, withoutEnd } from "../../base/text.ts";

/** Resource inside a result: text, or bytes as base64. */
export type EmbeddedContent =
  & { readonly uri: string; readonly mimeType?: string | undefined }
  & ({ readonly text: string } | { readonly blob: string });

/** Address of a resource that the client may read. */
export interface ResourceLink {
  /** Kind of the part */
  readonly type: "resource_link";
  /** Address that the client reads the resource by */
  readonly uri: string;
  /** Name for programs and people */
  readonly name: string;
  /** Name for people in place of `name`. Default: none */
  readonly title?: string | undefined;
  /** Text about the content, for models and people. Default: none */
  readonly description?: string | undefined;
  /** Media type of the content, such as `text/csv`. Default: none is told */
  readonly mimeType?: string | undefined;
  /** Number of bytes */
  readonly size?: number | undefined;
}

/** Part of a result. `data` and `blob` are base64. Source: Model Context Protocol, "Tool Result" */
export type ToolContent =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "image" | "audio"; readonly data: string; readonly mimeType: string }
  | { readonly type: "resource"; readonly resource: EmbeddedContent }
  | ResourceLink;

/** Picture of a tool result. Its first bytes decide its format. */
export interface ToolPicture {
  readonly bytes: Uint8Array;
  /** File of the workspace that the tool saved the picture in, or read it from. Default: none */
  readonly savedAs?: string | undefined;
}

/** Bytes of one picture that a model is shown: 5 MiB as base64, the least of what the vendors take. */
export const MAX_PICTURE_BYTES = 3_932_160;

/** Options of `showContent`. */
export interface ShowOptions {
  /** True when the model is shown pictures */
  readonly sees: boolean;
  /** Name of the tool that reads what a link points to. Default: none does */
  readonly reader?: string;
}

/** Parts of a result that are shown, and characters of a name or an address in a line about one. */
export const MAX_PARTS = 256;
const MAX_LABEL = 500;
/** Bytes of base64 that are decoded for one picture: what is larger is left out by the executor anyway. */
const MAX_PICTURE_BASE64 = 8 * 1_048_576;
const PICTURE_TYPES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);

/** Returns the parts of a result as text for the model, with the pictures for a model that sees. */
export function showContent(
  content: readonly ToolContent[],
  options: ShowOptions,
): { readonly output: string; readonly pictures: readonly ToolPicture[] } {
  const shown = content.slice(0, MAX_PARTS).map((block) => toShown(block, options));
  const lines = shown.map(({ text }) => text);
  if (content.length > MAX_PARTS) {
    lines.push(`[${content.length - MAX_PARTS} further parts of the result are left out]`);
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

function toShown(block: ToolContent, { sees, reader }: ShowOptions): ShownPart {
  switch (block.type) {
    case "text":
      return { text: block.text };
    case "image":
      return toPicture(block, `image ${labelOf(block.mimeType)}`, sees);
    case "audio":
      return { text: `[audio ${labelOf(block.mimeType)}, ${bytesOf(block.data)} bytes: it is not given to models]` };
    case "resource_link": {
      const { uri, name, description, mimeType } = block;
      const type = mimeType === undefined ? "" : `, ${labelOf(mimeType)}`;
      const about = description === undefined ? "" : `: ${labelOf(description)}`;
      return {
        text: `[resource ${labelOf(uri)} "${labelOf(name)}"${type}${about}${
          reader === undefined ? "" : `; ${reader} reads it`
        }]`,
      };
    }
    case "resource":
      return toResource(block, sees);
  }
}

function toResource({ resource }: Extract<ToolContent, { type: "resource" }>, sees: boolean): ShownPart {
  const type = resource.mimeType === undefined ? "" : ` ${labelOf(resource.mimeType)}`;
  const name = `resource ${labelOf(resource.uri)}${type}`;
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

/** Says what each part is, for programs, without its bytes. */
export function aboutContent(content: readonly ToolContent[]): readonly Readonly<Record<string, unknown>>[] {
  return content.slice(0, MAX_PARTS).map(aboutOf);
}

function aboutOf(block: ToolContent): Readonly<Record<string, unknown>> {
  switch (block.type) {
    case "text":
      return { type: "text", bytes: Buffer.byteLength(block.text) };
    case "image":
    case "audio":
      return { type: block.type, mime_type: labelOf(block.mimeType), bytes: bytesOf(block.data) };
    case "resource_link":
      return { type: "resource_link", uri: labelOf(block.uri), name: labelOf(block.name) };
    case "resource":
      return { type: "resource", uri: labelOf(block.resource.uri) };
  }
}

function bytesOf(base64: string): number {
  return Math.floor(withoutEnd(base64, "=").length * 3 / 4);
}

/** Returns words of somebody else as one short line. */
export function labelOf(words: string): string {
  return exactLine(words.length > MAX_LABEL ? `${words.slice(0, MAX_LABEL)}...` : words);
}
