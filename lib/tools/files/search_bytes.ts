import { Buffer } from "node:buffer";
import type { LinePattern, RequiredBytes } from "./line_pattern.ts";

/** Lines of a text that match. */
export interface SearchedText {
  readonly lines: readonly FoundLine[];
  /** Numbers of the lines that are longer than `LinePattern.maxLine`: their rest was not searched */
  readonly cutLines: readonly number[];
}

/** Line that matches: its number from 1, and its text, or the part around the match for a long line. */
export interface FoundLine {
  readonly line: number;
  readonly text: string;
  /** Byte of the line where the match starts, counted from 1. Set when `text` is a part of the line */
  readonly startByte?: number;
}

/** Options of searchBytes. */
export interface SearchBytesOptions {
  readonly pattern: LinePattern;
  /** Lines to find at most */
  readonly limit: number;
  /** Runs for each line; throws to end the search */
  readonly check: () => void;
}

const MAX_SHOWN_LINE = 300;
const NEWLINE = 10;

/**
 * Finds the lines of a UTF-8 text that match.
 *
 * When the pattern requires a literal, only lines with the literal's bytes are decoded and given to the engine. Bytes that are not
 * UTF-8 become U+FFFD.
 */
export function searchBytes(bytes: Buffer, options: SearchBytesOptions): SearchedText {
  const { required } = options.pattern;
  return required === undefined
    ? searchAll(bytes, options)
    : searchCandidates(bytes, createFinder(bytes, required), options);
}

function searchCandidates(bytes: Buffer, find: Finder, { pattern, limit, check }: SearchBytesOptions): SearchedText {
  const found = new FoundLines(bytes, pattern);
  for (let at = find(0); at !== -1 && found.lines.length < limit;) {
    check();
    const start = at === 0 ? 0 : bytes.lastIndexOf(NEWLINE, at - 1) + 1;
    const newline = bytes.indexOf(NEWLINE, at);
    const end = newline === -1 ? bytes.length : newline;
    // A unit of UTF-16 has at most three bytes of UTF-8. One unit more shows that the line is cut, and a carriage return is none
    const decoded = decode(bytes.subarray(start, Math.min(end, start + 3 * pattern.maxLine + 6)), start === 0);
    found.search(decoded, () => found.lineAt(start));
    at = newline === -1 ? -1 : find(newline + 1);
  }
  return found;
}

function searchAll(bytes: Buffer, { pattern, limit, check }: SearchBytesOptions): SearchedText {
  const found = new FoundLines(bytes, pattern);
  const text = decode(bytes, true);
  let line = 1;
  for (let start = 0; start < text.length && found.lines.length < limit; line++) {
    check();
    const newline = text.indexOf("\n", start);
    const end = newline === -1 ? text.length : newline;
    const number = line;
    found.search(text.slice(start, end), () => found.lineNumber(number));
    start = end + 1;
  }
  return found;
}

/** Line of the text: its number from 1, and the offset of its first byte. */
interface LinePlace {
  readonly line: number;
  readonly offset: number;
}

/** The lines found in a text so far. Goes from newline to newline only as far as somebody asks for a place. */
class FoundLines implements SearchedText {
  readonly lines: FoundLine[] = [];
  readonly cutLines: number[] = [];
  readonly #bytes: Buffer;
  readonly #pattern: LinePattern;
  #place: LinePlace = { line: 1, offset: 0 };

  constructor(bytes: Buffer, pattern: LinePattern) {
    this.#bytes = bytes;
    this.#pattern = pattern;
  }

  /** Searches a line. @param text without its line feed, or only a part that is longer than what is searched */
  search(text: string, placeOf: () => LinePlace): void {
    const { maxLine } = this.#pattern;
    const whole = text.endsWith("\r") ? text.slice(0, -1) : text;
    const isCut = whole.length > maxLine;
    const searched = isCut ? whole.slice(0, maxLine) : whole;
    const matches = this.#pattern.test(searched);
    if (!matches && !isCut) return;
    const place = placeOf();
    if (isCut) this.cutLines.push(place.line);
    if (matches) this.lines.push(this.#found(whole, { searched, place }));
  }

  /** Returns the place of the line that begins at a byte. Called with growing offsets. */
  lineAt(offset: number): LinePlace {
    let { line } = this.#place;
    for (let at = this.#newlineFrom(this.#place.offset); at !== -1 && at < offset; at = this.#newlineFrom(at + 1)) {
      line++;
    }
    return this.#place = { line, offset };
  }

  /** Returns the place of a line. Called with growing numbers of lines that the text has. */
  lineNumber(line: number): LinePlace {
    let { offset } = this.#place;
    for (let left = line - this.#place.line; left > 0; left--) offset = this.#newlineFrom(offset) + 1;
    return this.#place = { line, offset };
  }

  #newlineFrom(offset: number): number {
    return this.#bytes.indexOf(NEWLINE, offset);
  }

  #found(whole: string, { searched, place }: { readonly searched: string; readonly place: LinePlace }): FoundLine {
    const { line, offset } = place;
    if (whole.length <= MAX_SHOWN_LINE) return { line, text: whole };
    const at = this.#pattern.indexIn(searched);
    const start = Math.max(0, at - MAX_SHOWN_LINE / 3);
    const part = whole.slice(start, start + MAX_SHOWN_LINE).toWellFormed();
    const text = `${start > 0 ? "..." : ""}${part}${start + MAX_SHOWN_LINE < whole.length ? "..." : ""}`;
    return { line, text, startByte: 1 + bytesBefore(this.#bytes.subarray(offset), whole.slice(0, at), offset === 0) };
  }
}

const BYTE_ORDER_MARK = Buffer.from("\ufeff");

/** Returns how many bytes were decoded to a text. @param bytes begin with those of the text */
function bytesBefore(bytes: Buffer, text: string, atBeginning: boolean): number {
  let at = atBeginning && bytes.subarray(0, 3).equals(BYTE_ORDER_MARK) ? 3 : 0;
  for (const [index, part] of text.split("\ufffd").entries()) {
    if (index > 0) at += replacedBytes(bytes.subarray(at, at + 3));
    at += Buffer.byteLength(part);
  }
  return at;
}

/** Returns how many of up to three bytes were decoded to one U+FFFD. */
function replacedBytes(bytes: Uint8Array): number {
  for (let count = bytes.length; count > 1; count--) {
    if (decode(bytes.subarray(0, count), false) === "\ufffd") return count;
  }
  return 1;
}

/** Returns where a required literal begins next, or -1. Called with growing positions. */
type Finder = (from: number) => number;
const NOWHERE = () => -1;

function createFinder(bytes: Buffer, required: RequiredBytes): Finder {
  const lowered = createLowered(bytes);
  const finderOf = (one: RequiredBytes): Finder => {
    switch (one.kind) {
      case "literal":
        return one.caseless ? lowered(one.bytes) : (from) => bytes.indexOf(one.bytes, from);
      case "all": {
        const each = one.of.map((part) => ({ find: finderOf(part), length: shortest(part) }));
        if (each.some(({ find }) => find(0) === -1)) return NOWHERE;
        // The text has all of them. The longest literal leads to the fewest lines
        return each.sort((a, b) => b.length - a.length)[0]?.find ?? NOWHERE;
      }
      case "any":
        return findFirst(one.of.map(finderOf));
    }
  };
  return finderOf(required);
}

function findFirst(finders: readonly Finder[]): Finder {
  const each = finders.map((find) => ({ find, at: find(0) }));
  return (from) => {
    let first = -1;
    for (const one of each) {
      // A literal that was found further on, or nowhere, is not looked for again
      if (one.at !== -1 && one.at < from) one.at = one.find(from);
      if (one.at !== -1 && (first === -1 || one.at < first)) first = one.at;
    }
    return first;
  };
}

/** Creates finders in the bytes with A-Z in lower case. The lower-case text is made at the first use; each character of it is a byte. */
function createLowered(bytes: Buffer): (literal: Uint8Array) => Finder {
  let text: string | undefined;
  return (literal) => {
    text ??= bytes.toString("latin1").toLowerCase();
    const searched = text;
    const word = new TextDecoder().decode(literal);
    return (from) => searched.indexOf(word, from);
  };
}

function shortest(required: RequiredBytes): number {
  return required.kind === "literal" ? required.bytes.length : Math.min(...required.of.map(shortest));
}

const TEXT = new TextDecoder();
const WITHIN = new TextDecoder("utf-8", { ignoreBOM: true });

/** Decodes bytes. Only at the beginning of a file U+FEFF is a byte order mark, and left out. */
function decode(bytes: Uint8Array, atBeginning: boolean): string {
  return (atBeginning ? TEXT : WITHIN).decode(bytes);
}
