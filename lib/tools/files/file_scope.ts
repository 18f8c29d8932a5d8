import { ToolError } from "../../base/errors.ts";
import { notThere } from "../../system/files/file_error.ts";
import type { FileScope, Inspected, InspectedFile } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import type { ToolContext } from "../runtime/tool.ts";
import { BYTE_ORDER_MARK } from "./parse_patch.ts";
import { decodeText } from "./read_text.ts";
import { uniformEnding, withEnding } from "./same_text.ts";

/** Returns the files that the reading tools may reach under the newest configuration. */
export function readScope(
  context: Pick<ToolContext, "workspaceRoot" | "allowSensitiveFileReads" | "config">,
): FileScope {
  return {
    workspaceRoot: context.workspaceRoot,
    allowedRoot: context.config.security.read_file.allowed_root,
    forbiddenPaths: context.config.autonomy.forbidden_paths,
    allowSensitive: context.allowSensitiveFileReads,
  };
}

/** Returns the files that the writing tools may reach under the newest configuration. */
export function writeScope(
  context: Pick<ToolContext, "workspaceRoot" | "allowSensitiveFileWrites" | "config">,
): FileScope {
  return {
    workspaceRoot: context.workspaceRoot,
    allowedRoot: context.config.security.write_file.allowed_root,
    forbiddenPaths: context.config.autonomy.forbidden_paths,
    allowSensitive: context.allowSensitiveFileWrites,
  };
}

/** Bytes that one call can take out of a file: as many as a tool's input may have */
const MAX_INPUT_BYTES = 1_048_576;

/**
 * Returns the bytes of a text that is about to be written.
 * @throws {ToolError} `file_too_large` over `[security.write_file] max_write_bytes`; `invalid_text` for half a character
 */
export function toWritable(path: string, text: string, context: Pick<ToolContext, "config">): Uint8Array {
  const maxBytes = context.config.security.write_file.max_write_bytes;
  if (!text.isWellFormed()) {
    throw new ToolError(
      "invalid_text",
      `Cannot write ${shown(path)}: the text has half a character, which UTF-8 cannot say`,
    );
  }
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxBytes) return bytes;
  throw new ToolError(
    "file_too_large",
    `Cannot write ${
      shown(path)
    }: it would have ${bytes.length} bytes; [security.write_file] max_write_bytes allows ${maxBytes}`,
  );
}

/**
 * Returns a whole text in the form of the file that it replaces: with a byte order mark, and CRLF where all lines of the file end so. A text
 * with one of its own keeps it. `kept` names what the text got from the file.
 */
export function likeFile(
  text: string,
  file: InspectedFile | undefined,
): { readonly text: string; readonly kept: readonly string[] } {
  const before = decodeText(file?.content ?? new Uint8Array(0)) ?? "";
  const mark = before.startsWith(BYTE_ORDER_MARK) && !text.startsWith(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK : "";
  const isCrlf = !text.includes("\r") && text.includes("\n") && uniformEnding(before) === "\r\n";
  return {
    text: mark + (isCrlf ? withEnding(text, "\r\n") : text),
    kept: [...(mark === "" ? [] : ["the byte order mark"]), ...(isCrlf ? ["the CRLF line ends"] : [])],
  };
}

/** Returns the largest size, in bytes, of a file to edit: a file over the limit may be below it after the edit. */
export function maxEditedBytes({ config }: Pick<ToolContext, "config">): number {
  return config.security.write_file.max_write_bytes + MAX_INPUT_BYTES;
}

/**
 * Returns the text of a file that is about to be edited.
 * @throws {ToolError} `not_found` when there is no file, `binary_file` when it is no UTF-8 text
 */
export function editableText(path: string, { file, like }: Inspected): string {
  if (file === undefined) throw notThere("edit", path, like);
  const text = decodeText(file.content ?? new Uint8Array(0));
  if (text !== undefined) return text;
  throw new ToolError("binary_file", `Cannot edit ${shown(path)}: it is not UTF-8 text`);
}
