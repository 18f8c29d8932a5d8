import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";

/** One replacement. */
export interface TextEdit {
  /** Not empty */
  readonly old_text: string;
  readonly new_text: string;
}

/**
 * Makes replacements one after the other; each finds its text exactly once in what the ones before left.
 *
 * Where all lines of the text end alike, the edits' lines are taken to end so too: a model sees and writes `\n`.
 * @param path for messages
 * @throws {ToolError} `edit_mismatch`: a text that is not there or there more than once, by the number of the edit
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

export type LineEnding = "\n" | "\r\n";

/** How the lines of a text end; undefined when it has none or both. */
export function uniformEnding(text: string): LineEnding | undefined {
  const newlines = count(text, "\n");
  if (newlines === 0) return undefined;
  const returns = count(text, "\r\n");
  if (returns === newlines) return "\r\n";
  return returns === 0 ? "\n" : undefined;
}

/** A text with all its lines ending alike. */
export function withEnding(text: string, ending: LineEnding): string {
  return text.replaceAll(/\r?\n/g, ending);
}

function count(text: string, part: string): number {
  let found = 0;
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) found++;
  return found;
}
