import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import type { ToolContext } from "../runtime/tool.ts";

/** The most that one call can take out of a file: as long as a tool's input may be */
const MAX_INPUT_BYTES = 1_048_576;

/**
 * The bytes of a text that is about to be written.
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

/** The most a file may have to be edited: what is over the limit now may be below it afterwards. */
export function maxEditedBytes({ config }: Pick<ToolContext, "config">): number {
  return config.security.write_file.max_write_bytes + MAX_INPUT_BYTES;
}
