import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { foldText, keepOwn, uniformEnding, withEnding } from "./same_text.ts";

/** Replacement of one text by another. */
export interface TextEdit {
  /** Text that is replaced. Not empty */
  readonly old_text: string;
  readonly new_text: string;
}

/**
 * Makes replacements one after the other; each must find its text exactly once in the result of those before.
 *
 * When all lines of the text end alike, the edits get the same line endings: a model sees and writes `\n`. A text that is not there exactly is
 * looked for once more in composed characters (NFC) and over mixed line ends; what the new text repeats of it stays as it is in the file.
 * @param path for messages
 * @throws {ToolError} `edit_mismatch` for a text that is missing or there more than once, with the number of the edit
 */
export function editText(text: string, edits: readonly TextEdit[], path: string): string {
  const ending = uniformEnding(text);
  const adapted = (part: string) => (ending === undefined ? part : withEnding(part, ending));
  let result = text;
  let left = MAX_FOLDED;
  for (const [i, edit] of edits.entries()) {
    const [oldText, newText] = [adapted(edit.old_text), adapted(edit.new_text)];
    const at = result.indexOf(oldText);
    if (at === -1) {
      left -= result.length;
      const replaced = left < 0 ? undefined : replaceSame(result, edit);
      if (replaced === "several") throw mismatch(path, i, SEVERAL);
      if (replaced !== undefined) {
        result = replaced.text;
        continue;
      }
      const change = i > 0 && text.includes(oldText) ? ", after the edits before it" : "";
      throw mismatch(path, i, `its old_text is not in the file${change}; read the file and copy the text exactly`);
    }
    if (result.indexOf(oldText, at + 1) !== -1) {
      throw mismatch(path, i, SEVERAL);
    }
    result = result.slice(0, at) + newText + result.slice(at + oldText.length);
  }
  return result;
}

const SEVERAL = "its old_text is in the file more than once; add the lines around it";
/** Characters that all second looks of one call go through: 0.5 s */
const MAX_FOLDED = 20_000_000;

/** Replaces a text that is there once in other code points or with other line ends. undefined: it is not there */
function replaceSame(
  text: string,
  { old_text: oldText, new_text: newText }: TextEdit,
): { readonly text: string } | "several" | undefined {
  const folded = foldText(text);
  const wanted = foldText(oldText).text;
  const found: { readonly from: number; readonly to: number }[] = [];
  for (let at = folded.text.indexOf(wanted); at !== -1 && found.length < 2; at = folded.text.indexOf(wanted, at + 1)) {
    const [from, to] = [folded.at(at), folded.at(at + wanted.length)];
    if (from !== undefined && to !== undefined) found.push({ from, to });
  }
  const [place] = found;
  if (place === undefined || found.length > 1) return place === undefined ? undefined : "several";
  const [before, after] = [text.slice(0, place.from), text.slice(place.to)];
  const near = /\r?\n(?=[^\n]*$)/.exec(before)?.[0] ?? /\r?\n/.exec(after)?.[0];
  const ending = near === "\r\n" ? near : "\n";
  const own = text.slice(place.from, place.to);
  return { text: before + keepOwn(withEnding(newText, "\n"), { own, old: withEnding(oldText, "\n"), ending }) + after };
}

function mismatch(path: string, index: number, reason: string): ToolError {
  return new ToolError("edit_mismatch", `Cannot edit ${shown(path)}: edits[${index}]: ${reason}`);
}
