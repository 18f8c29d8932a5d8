import { ToolError } from "../../base/errors.ts";
import type { InspectedFile } from "../../system/files/files.ts";
import { shown } from "../../system/files/parse_path.ts";
import { decodeText } from "./read_text.ts";

/**
 * The text of a file that is about to be edited.
 * @throws {ToolError} `not_found` when there is no file, `binary_file` when it is no UTF-8 text
 */
export function editableText(path: string, file: InspectedFile | undefined): string {
  if (file === undefined) throw new ToolError("not_found", `Cannot edit ${shown(path)}: it does not exist`);
  const text = decodeText(file.content ?? new Uint8Array(0));
  if (text !== undefined) return text;
  throw new ToolError("binary_file", `Cannot edit ${shown(path)}: it is not UTF-8 text`);
}
