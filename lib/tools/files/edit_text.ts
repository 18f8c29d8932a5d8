import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";

/** Replacement of one text by another. */
export interface TextEdit {
  /** Text that is replaced. Not empty */
  readonly old_text: string;
  readonly new_text: string;
}

/**
 * Makes replacements one after the other; each must find its text exactly once in the result of those before.
 *
 * When all lines of the text end alike, the edits get the same line endings: a model sees and writes `\n`.
 * @param path for messages
 * @throws {ToolError} `edit_mismatch` for a text that is missing or there more than once, with the number of the edit
 */
export function editText(text: string, edits: readonly TextEdit[], path: string): string {
  const ending = uniformEnding(text);
  const adapted = (part: string) => (ending === undefined ? part : withEnding(part, ending));
  let result = text;
  for (const [i, edit] of edits.entries()) {
    const [oldText, newText] = [adapted(edit.old_text), adapted(edit.new_text)];
    const at = result.indexOf(oldText);
    if (at === -1) {
      const change = i > 0 && text.includes(oldText) ? ", after the edits before it" : "";
      throw mismatch(path, i, `its old_text is not in the file${change}; read the file and copy the text exactly`);
    }
    if (result.indexOf(oldText, at + 1) !== -1) {
      throw mismatch(path, i, "its old_text is in the file more than once; add the lines around it");
    }
    result = result.slice(0, at) + newText + result.slice(at + oldText.length);
  }
  return result;
}

function mismatch(path: string, index: number, reason: string): ToolError {
  return new ToolError("edit_mismatch", `Cannot edit ${shown(path)}: edits[${index}]: ${reason}`);
}

/** Characters that end a line. */
export type LineEnding = "\n" | "\r\n";

/** Returns the line ending of a text. undefined when the text has no line ending, or both kinds. */
export function uniformEnding(text: string): LineEnding | undefined {
  const newlines = count(text, "\n");
  if (newlines === 0) return undefined;
  const returns = count(text, "\r\n");
  if (returns === newlines) return "\r\n";
  return returns === 0 ? "\n" : undefined;
}

/** Returns a text with this line ending on all its lines. */
export function withEnding(text: string, ending: LineEnding): string {
  return text.replaceAll(/\r?\n/g, ending);
}

function count(text: string, part: string): number {
  let found = 0;
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) found++;
  return found;
}
