import { ToolError } from "../../base/errors.ts";
import { toAscii } from "../../base/text.ts";

/** Line of a text file. */
export interface TextLine {
  /** Without its ending */
  readonly text: string;
  /** Empty for the last line of a file that does not end with a line feed */
  readonly ending: "" | "\n" | "\r\n";
}

/**
 * How much of a line counts when a line of a patch is compared with a line of a file, from the strictest:
 * - `ending`: the text, and CRLF at its end or not
 * - `text`: the text
 * - `composed`: the text, in composed characters (NFC)
 * - `trimmed_end`: as `composed`, without white space at its end
 * - `trimmed`: as `composed`, without white space around it
 * - `ascii`: as `trimmed`, and typographic dashes, quotes and blanks equal those of ASCII
 */
export type Exactness = "ending" | "text" | "composed" | "trimmed_end" | "trimmed" | "ascii";

const FORMS: Readonly<Record<Exactness, (text: string, crlf: boolean) => string>> = {
  ending: (text, crlf) => (crlf ? `${text}\r` : text),
  text: (text) => text,
  composed: (text) => text.normalize("NFC"),
  trimmed_end: (text) => text.normalize("NFC").trimEnd(),
  trimmed: (text) => text.normalize("NFC").trim(),
  ascii: (text) => toAscii(text.normalize("NFC")).trim(),
};

/** Steps from line to line for one file: they take about 0.5 s */
const MAX_STEPS = 10_000_000;

/** Splits a text into lines. A last line without characters is no line. */
export function splitLines(text: string): readonly TextLine[] {
  const parts = text.split("\n");
  const last = parts.pop() ?? "";
  const lines = parts.map((part): TextLine =>
    part.endsWith("\r") ? { text: part.slice(0, -1), ending: "\r\n" } : { text: part, ending: "\n" }
  );
  return last === "" ? lines : [...lines, { text: last, ending: "" }];
}

/** Line that an index looks for. */
export interface WantedLine {
  readonly text: string;
  readonly crlf: boolean;
}

/** Indentation of a line and how its text begins. */
export interface LineShape {
  /** Column at which the text begins, with tabs as wide as terminals show them */
  readonly indentation: number;
  /** `name`: with a letter, `_` or `$`, as a declaration does, and not a label alone. `closer`: with a bracket or brace */
  readonly start: "name" | "closer" | "other";
}

/** Finds consecutive lines in the lines of one file. */
export interface LineIndex {
  /** Lines of the file */
  readonly count: number;
  /** Returns the text of the line, without its ending. Empty behind the last line */
  textAt(at: number): string;
  /** Returns the shape of the line. undefined for a line without text */
  shapeAt(at: number): LineShape | undefined;
  /** Tells whether `wanted` begins at line `at`, counted from 0 */
  isAt(wanted: readonly WantedLine[], at: number, exactness: Exactness): boolean;
  /** Returns the lines, counted from 0 and in order, at which `wanted` begins: the first `max` that are `from` or behind it */
  find(wanted: readonly WantedLine[], options: FindOptions): readonly number[];
  /** Counts steps of a caller that goes from line to line. @throws {ToolError} `patch_too_costly` when there were too many */
  spend(steps: number): void;
}

/** Options of LineIndex.find. */
export interface FindOptions {
  readonly exactness: Exactness;
  /** Default 0 */
  readonly from?: number;
  /** Default: all */
  readonly max?: number;
}

/**
 * Creates the index of a file.
 *
 * A search looks only at the places of the wanted line that the file has least of. It ends with `patch_too_costly` where
 * even those are too many, so that no patch holds the gateway up.
 */
export function createLineIndex(lines: readonly TextLine[]): LineIndex {
  const shapes: (LineShape | null | undefined)[] = [];
  const forms = new Map<Exactness, FormedLines>();
  const formed = (exactness: Exactness): FormedLines => {
    const known = forms.get(exactness) ?? formLines(lines, exactness);
    forms.set(exactness, known);
    return known;
  };
  let left = MAX_STEPS;
  const spend = (steps: number) => {
    left -= steps;
    if (left >= 0) return;
    throw new ToolError(
      "patch_too_costly",
      "Cannot apply the patch: its lines occur too often in the file; add lines of context that occur once",
    );
  };
  const isAt = (own: FormedLines, wanted: readonly string[], at: number): boolean => {
    if (at < 0 || at + wanted.length > lines.length) return false;
    for (const [i, text] of wanted.entries()) {
      spend(1);
      if (own.texts[at + i] !== text) return false;
    }
    return true;
  };
  return {
    count: lines.length,
    spend,
    textAt: (at) => lines[at]?.text ?? "",
    shapeAt(at) {
      const known = shapes[at];
      if (known !== undefined) return known ?? undefined;
      const shape = shapeOf(lines[at]?.text ?? "");
      shapes[at] = shape ?? null;
      return shape;
    },
    isAt: (wanted, at, exactness) => isAt(formed(exactness), formWanted(wanted, exactness), at),
    find(wanted, { exactness, from = 0, max = Infinity }) {
      const own = formed(exactness);
      const texts = formWanted(wanted, exactness);
      const rarest = rarestOf(texts, own);
      if (texts.length === 1 && from === 0 && rarest.places.length <= max) return rarest.places;
      const found: number[] = [];
      for (const place of rarest.places) {
        spend(1);
        const at = place - rarest.offset;
        if (at < from || !isAt(own, texts, at)) continue;
        found.push(at);
        if (found.length === max) break;
      }
      return found;
    },
  };
}

interface FormedLines {
  readonly texts: readonly string[];
  /** Numbers of the lines by their text */
  readonly places: ReadonlyMap<string, readonly number[]>;
}

function formLines(lines: readonly TextLine[], exactness: Exactness): FormedLines {
  const toForm = FORMS[exactness];
  const texts = lines.map(({ text, ending }) => toForm(text, ending === "\r\n"));
  const places = new Map<string, number[]>();
  for (const [at, text] of texts.entries()) {
    const known = places.get(text);
    if (known === undefined) places.set(text, [at]);
    else known.push(at);
  }
  return { texts, places };
}

function formWanted(wanted: readonly WantedLine[], exactness: Exactness): readonly string[] {
  return wanted.map(({ text, crlf }) => FORMS[exactness](text, crlf));
}

function shapeOf(text: string): LineShape | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const isName = /^[A-Za-z_$]/.test(trimmed) && !/^\w+:$/.test(trimmed);
  const start = isName ? "name" : /^[()[\]{}]/.test(trimmed) ? "closer" : "other";
  return { indentation: indentationOf(text), start };
}

function indentationOf(text: string): number {
  let column = 0;
  for (const character of text) {
    if (character === "\t") column += 8 - (column % 8);
    else if (character === " ") column++;
    else break;
  }
  return column;
}

function rarestOf(
  texts: readonly string[],
  { places }: FormedLines,
): { readonly offset: number; readonly places: readonly number[] } {
  let offset = 0;
  let best: readonly number[] | undefined;
  for (const [i, text] of texts.entries()) {
    const known = places.get(text) ?? [];
    if (best === undefined || known.length < best.length) [offset, best] = [i, known];
  }
  return { offset, places: best ?? [] };
}
