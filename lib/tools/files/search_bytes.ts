import type { Buffer } from "node:buffer";
import type { LinePattern, RequiredBytes } from "./line_pattern.ts";

/** Line that matches: its number from 1, and its text, or the part around the match for a long line. */
export interface FoundLine {
  readonly line: number;
  readonly text: string;
}

/** Options of searchBytes. */
export interface SearchBytesOptions {
  readonly pattern: LinePattern;
  /** Lines to find at most */
  readonly limit: number;
  /** Called for each line; throws to end the search */
  readonly check: () => void;
}

/** UTF-16 units of a line that are searched */
const MAX_LINE = 10_000;
const MAX_SHOWN_LINE = 300;
const NEWLINE = 10;
/** Bytes of a line that are decoded: UTF-8 has at most three bytes for a unit of UTF-16 */
const MAX_LINE_BYTES = 3 * MAX_LINE + 3;

/**
 * Finds the lines of a UTF-8 text that match.
 *
 * When the pattern requires a literal, only lines with the literal's bytes are decoded and given to the engine. Bytes that are not
 * UTF-8 become U+FFFD.
 */
export function searchBytes(bytes: Buffer, options: SearchBytesOptions): FoundLine[] {
  const { required } = options.pattern;
  return required === undefined
    ? searchAll(bytes, options)
    : searchCandidates(bytes, createFinder(bytes, required), options);
}

function searchCandidates(bytes: Buffer, find: Finder, { pattern, limit, check }: SearchBytesOptions): FoundLine[] {
  const found: FoundLine[] = [];
  let line = 1;
  let counted = 0;
  for (let at = find(0); at !== -1 && found.length < limit;) {
    check();
    const start = at === 0 ? 0 : bytes.lastIndexOf(NEWLINE, at - 1) + 1;
    const newline = bytes.indexOf(NEWLINE, at);
    const end = newline === -1 ? bytes.length : newline;
    line += newlinesIn(bytes, counted, start);
    counted = start;
    const text = decode(bytes.subarray(start, Math.min(end, start + MAX_LINE_BYTES)), start === 0);
    const searched = lineOf(text, { start: 0, end: text.length });
    if (pattern.test(searched)) found.push({ line, text: excerpt(searched, pattern) });
    at = newline === -1 ? -1 : find(newline + 1);
  }
  return found;
}

function searchAll(bytes: Buffer, { pattern, limit, check }: SearchBytesOptions): FoundLine[] {
  const found: FoundLine[] = [];
  const text = decode(bytes, true);
  let line = 1;
  for (let start = 0; start < text.length && found.length < limit; line++) {
    check();
    const newline = text.indexOf("\n", start);
    const end = newline === -1 ? text.length : newline;
    const searched = lineOf(text, { start, end });
    if (pattern.test(searched)) found.push({ line, text: excerpt(searched, pattern) });
    start = end + 1;
  }
  return found;
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

function newlinesIn(bytes: Buffer, start: number, end: number): number {
  let count = 0;
  for (let at = bytes.indexOf(NEWLINE, start); at !== -1 && at < end; at = bytes.indexOf(NEWLINE, at + 1)) count++;
  return count;
}

const TEXT = new TextDecoder();
const WITHIN = new TextDecoder("utf-8", { ignoreBOM: true });

/** Decodes bytes. Only at the beginning of a file U+FEFF is a byte order mark, and left out. */
function decode(bytes: Uint8Array, atBeginning: boolean): string {
  return (atBeginning ? TEXT : WITHIN).decode(bytes);
}

/** Returns the searched part of a line, without the carriage return of its ending. */
function lineOf(text: string, { start, end }: { readonly start: number; readonly end: number }): string {
  const shownEnd = text[end - 1] === "\r" && end > start ? end - 1 : end;
  return text.slice(start, Math.min(shownEnd, start + MAX_LINE));
}

function excerpt(line: string, pattern: LinePattern): string {
  if (line.length <= MAX_SHOWN_LINE) return line;
  const start = Math.max(0, pattern.indexIn(line) - MAX_SHOWN_LINE / 3);
  const part = line.slice(start, start + MAX_SHOWN_LINE).toWellFormed();
  return `${start > 0 ? "..." : ""}${part}${start + MAX_SHOWN_LINE < line.length ? "..." : ""}`;
}
