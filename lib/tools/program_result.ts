import { Buffer } from "node:buffer";
import { type EmbeddedContent, MAX_PARTS, type ResourceLink, type ToolContent } from "./runtime/tool_content.ts";

/** Part of what a program returns, in the order that clients of MCP get it. */
export type ProgramPart =
  | { readonly type: "text"; readonly text: string }
  /** PNG, JPEG, WebP or GIF, which models that see are shown; or a sound. Models are told of what they are not given */
  | { readonly type: "image" | "audio"; readonly bytes: Uint8Array; readonly mimeType: string }
  /** Resource with its content */
  | {
    readonly type: "resource";
    readonly uri: string;
    readonly mimeType?: string | undefined;
    readonly content: string | Uint8Array;
  }
  | ResourceLink;

/** Options of toolResult. */
export interface ProgramToolResultOptions {
  /** JSON value for programs, beside the parts: the structured content of MCP, where it is an object. Default: none */
  readonly data?: unknown;
  /** true: the call failed, and the parts say why. Default false */
  readonly isError?: boolean;
}

/** Result of a tool in parts. Only toolResult makes one. */
export interface ProgramToolResult {
  /** Mark of the type. It exists in the types alone, so that no other object passes for a result */
  readonly "~result": true;
}

/** Result of a program's tool in the form that the executor takes. */
export interface WholeProgramResult {
  readonly content: readonly ToolContent[];
  readonly data: unknown;
  readonly isError: boolean;
}

/** Handle on a result that the program made with toolResult. */
export class MadeResult {
  readonly #result: WholeProgramResult;

  constructor(result: WholeProgramResult) {
    this.#result = result;
  }

  /** Returns the result behind a handle; undefined for anything else. */
  static resultOf(value: unknown): WholeProgramResult | undefined {
    return typeof value === "object" && value !== null && #result in value ? value.#result : undefined;
  }
}

/**
 * Makes the result of a tool from parts: text, pictures, sounds, resources. Models get the text, the pictures where they see, and a line for
 * each other part; clients of MCP get the parts as they are. Pictures: 3,932,160 bytes each. All parts that are no text: 8 MiB.
 * @throws {TypeError} for a part that is not of the form above, and for more than 256 parts
 */
export function programResult(
  parts: readonly ProgramPart[],
  { data, isError = false }: ProgramToolResultOptions = {},
): ProgramToolResult {
  return new MadeResult({ content: toToolContent(parts), data, isError }) as unknown as ProgramToolResult; // the mark is a type
}

/** Returns parts in the form of MCP, checked. @throws {TypeError} */
export function toToolContent(parts: readonly ProgramPart[]): readonly ToolContent[] {
  if (!Array.isArray(parts)) throw new TypeError("Cannot use the parts: they must be a list");
  if (parts.length > MAX_PARTS) throw new TypeError(`Cannot use ${parts.length} parts: at most ${MAX_PARTS} are taken`);
  return parts.map((part: ProgramPart, index) => {
    const content = toContent(part);
    if (content !== undefined) return content;
    throw new TypeError(
      `Cannot use part ${index + 1}: it is no text, image, audio, resource or resource_link with its fields`,
    );
  });
}

/** Returns one part in the form of MCP; undefined for what is none, since programs in JavaScript may give anything. */
export function toContent(part: ProgramPart): ToolContent | undefined {
  switch (part?.type) {
    case "text":
      return isText(part.text) ? { type: "text", text: part.text } : undefined;
    case "image":
    case "audio": {
      const { type, bytes, mimeType } = part;
      return bytes instanceof Uint8Array && isText(mimeType) ? { type, data: toBase64(bytes), mimeType } : undefined;
    }
    case "resource": {
      const resource = toEmbedded(part);
      return resource === undefined ? undefined : { type: "resource", resource };
    }
    case "resource_link": {
      const { uri, name, title, description, mimeType, size } = part;
      const isWhole = [uri, name].every(isText) && [title, description, mimeType].every(isTextOrNone);
      if (!isWhole || (size !== undefined && !Number.isSafeInteger(size))) return undefined;
      return { type: "resource_link", uri, name, title, description, mimeType, size };
    }
    default:
      return undefined;
  }
}

/** Returns a resource with its content in the form of MCP; undefined for what is none. */
export function toEmbedded(
  { uri, mimeType, content }: {
    readonly uri: string;
    readonly mimeType?: string | undefined;
    readonly content: string | Uint8Array;
  },
): EmbeddedContent | undefined {
  if (!isText(uri) || !isTextOrNone(mimeType)) return undefined;
  const about = { uri, ...(mimeType === undefined ? {} : { mimeType }) };
  if (content instanceof Uint8Array) return { ...about, blob: toBase64(content) };
  return isText(content) ? { ...about, text: content } : undefined;
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isTextOrNone(value: unknown): boolean {
  return value === undefined || isText(value);
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64");
}
