import { ToolError } from "../../base/errors.ts";

/** Section of a patch: the change of one file. */
export type PatchSection =
  | { readonly kind: "add"; readonly path: string; readonly content: string }
  | { readonly kind: "delete"; readonly path: string }
  /** A file that the patch deletes and adds again */
  | { readonly kind: "rewrite"; readonly path: string; readonly content: string }
  | {
    readonly kind: "update";
    readonly path: string;
    readonly moveTo: string | undefined;
    /** Hunks in the order of the file. Empty only for a move */
    readonly hunks: readonly Hunk[];
  };

/** Group of lines of an update that belong together. */
export interface Hunk {
  /** Texts of the `@@` lines. Each is looked for after the one before, and the hunk's lines after the last */
  readonly anchors: readonly string[];
  readonly numbers: HunkNumbers | undefined;
  readonly lines: readonly HunkLine[];
  /** True when the hunk's first old line shows a byte order mark */
  readonly startOfFile: boolean;
  /** True when the hunk's last line is the last line of the file */
  readonly endOfFile: boolean;
  /** How the last line of the new file ends, where `\ No newline at end of file` tells it. undefined: as in the file before */
  readonly lastLine: "open" | "closed" | undefined;
}

/** Numbers and heading of `@@ -line,count +line,count @@ heading`, as git and diff write them. */
export interface HunkNumbers {
  /** First old line, counted from 1. Without old lines: the line before the place, 0 for the start of the file */
  readonly line: number;
  readonly count: number;
  /** Line above the place that begins with a letter; empty for none. git cuts the heading after 80 bytes, diff after 40 */
  readonly heading: string;
}

/** Line of a hunk. */
export interface HunkLine {
  readonly kind: "keep" | "remove" | "add";
  /** Without its line ending */
  readonly text: string;
  /** True when the patch ends the line with CRLF. Never set in a patch whose lines all do */
  readonly crlf: boolean;
}

interface Cursor {
  readonly lines: readonly string[];
  at: number;
}

const BEGIN = "*** Begin Patch";
const END = "*** End Patch";
const END_OF_FILE = "*** End of File";
const MOVE = "*** Move to:";
const SECTION = /^\*\*\* (Add|Delete|Update) File:(.*)$/;
const NUMBERS = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,\d{1,9})? @@(.*)$/;
/** Start of a line about the line before. The words behind it are in the language of the program that wrote them */
const NO_NEWLINE = "\\ ";
const NOT_LAST = 'only the last line can have "\\ No newline at end of file" below it';
/** First character of a text that tells its encoding */
export const BYTE_ORDER_MARK = "\ufeff";
/** `@@` lines with text above one hunk */
const MAX_ANCHORS = 16;
/** Files that one patch may change */
const MAX_SECTIONS = 200;

/**
 * Parses a patch. Looks at no file.
 * @throws {ToolError} `patch_malformed`, naming the line, counted from 1
 * Source: docs/design/tools.md "Files"
 */
export function parsePatch(patch: string): readonly PatchSection[] {
  const all = patch.trimEnd().split("\n");
  // The endings of a patch that is written with CRLF throughout say nothing about the files
  const lines = all[0]?.endsWith("\r") ? all.map((line) => line.replace(/\r$/, "")) : all;
  if (lines[0]?.trimEnd() !== BEGIN) throw malformed(1, `it must be "${BEGIN}"`);
  const end = lines.findIndex((line) => line.trimEnd() === END);
  if (end === -1) throw malformed(lines.length, `"${END}" is missing after it`);
  if (end !== lines.length - 1) throw malformed(end + 2, `nothing may follow "${END}"`);
  const cursor: Cursor = { lines: lines.slice(0, end), at: 1 };
  const sections: PatchSection[] = [];
  while (cursor.at < end) {
    if (sections.length === MAX_SECTIONS) {
      throw malformed(cursor.at + 1, `a patch changes at most ${MAX_SECTIONS} files`);
    }
    sections.push(parseSection(cursor));
  }
  if (sections.length === 0) throw malformed(end + 1, "the patch changes no file");
  return joinRewrites(sections);
}

/** Makes one section of a deletion and the addition of the same path behind it. */
function joinRewrites(sections: readonly PatchSection[]): readonly PatchSection[] {
  const isIn = (some: readonly PatchSection[], { path }: PatchSection, wanted: PatchSection["kind"]) =>
    some.some((other) => other.kind === wanted && other.path === path);
  return sections.flatMap((section, at): readonly PatchSection[] => {
    if (section.kind === "delete" && isIn(sections.slice(at + 1), section, "add")) return [];
    return section.kind === "add" && isIn(sections.slice(0, at), section, "delete")
      ? [{ ...section, kind: "rewrite" }]
      : [section];
  });
}

/** Returns every path that a patch names, for the policy. */
export function pathsOf(sections: readonly PatchSection[]): readonly string[] {
  return sections.flatMap((section) =>
    section.kind === "update" && section.moveTo !== undefined ? [section.path, section.moveTo] : [section.path]
  );
}

function parseSection(cursor: Cursor): PatchSection {
  const match = SECTION.exec((cursor.lines[cursor.at] ?? "").trimEnd());
  if (match === null) {
    throw malformed(cursor.at + 1, 'it must start with "*** Add File:", "*** Delete File:" or "*** Update File:"');
  }
  const path = pathOf(match[2] ?? "", cursor);
  cursor.at++;
  switch (match[1]) {
    case "Add":
      return { kind: "add", path, content: parseContent(cursor) };
    case "Delete":
      return { kind: "delete", path };
    default: {
      const moveTo = parseMove(cursor);
      const headerLine = cursor.at;
      const hunks: Hunk[] = [];
      while (!isSectionEnd(cursor)) hunks.push(parseHunk(cursor));
      if (hunks.length === 0 && moveTo === undefined) throw malformed(headerLine, "the section has no hunk");
      return { kind: "update", path, moveTo, hunks };
    }
  }
}

function parseContent(cursor: Cursor): string {
  let content = "";
  for (; !isSectionEnd(cursor); cursor.at++) {
    const line = cursor.lines[cursor.at] ?? "";
    if (line.startsWith(NO_NEWLINE) && content !== "") {
      cursor.at++;
      if (!isSectionEnd(cursor)) throw malformed(cursor.at + 1, NOT_LAST);
      return content.slice(0, -1);
    }
    if (!line.startsWith("+")) throw malformed(cursor.at + 1, 'each line of a new file must start with "+"');
    content += `${line.slice(1)}\n`;
  }
  return content;
}

function parseMove(cursor: Cursor): string | undefined {
  const line = cursor.lines[cursor.at];
  if (!line?.startsWith(MOVE)) return undefined;
  const path = pathOf(line.slice(MOVE.length), cursor);
  cursor.at++;
  return path;
}

function parseHunk(cursor: Cursor): Hunk {
  const firstLine = cursor.at + 1;
  const anchors: string[] = [];
  let numbers: HunkNumbers | undefined;
  for (; cursor.lines[cursor.at]?.startsWith("@@"); cursor.at++) {
    const line = (cursor.lines[cursor.at] ?? "").replace(/\r$/, "");
    const found = parseNumbers(line);
    if (found !== undefined && numbers !== undefined) throw malformed(cursor.at, "the hunk has no lines");
    numbers ??= found;
    const anchor = found === undefined ? line.slice(2).replace(/^ /, "") : "";
    if (anchor.trim() !== "") anchors.push(anchor);
    if (anchors.length > MAX_ANCHORS) throw malformed(cursor.at + 1, `a hunk has at most ${MAX_ANCHORS} headings`);
  }
  const body = parseLines(cursor);
  if (body.lines.length === 0) throw malformed(firstLine, "the hunk has no lines");
  const first = body.lines.find(({ kind }) => kind !== "add");
  return { anchors, numbers, startOfFile: first?.text.startsWith(BYTE_ORDER_MARK) === true, ...body };
}

function parseNumbers(line: string): HunkNumbers | undefined {
  const match = NUMBERS.exec(line);
  if (match === null) return undefined;
  const [, start, count = "1", heading = ""] = match;
  return { line: Number(start), count: Number(count), heading: heading.trim() };
}

function parseLines(cursor: Cursor): Pick<Hunk, "lines" | "endOfFile" | "lastLine"> {
  const lines: HunkLine[] = [];
  const ended = { old: false, new: false };
  for (; !isSectionEnd(cursor) && !cursor.lines[cursor.at]?.startsWith("@@"); cursor.at++) {
    const text = cursor.lines[cursor.at] ?? "";
    if (text.trimEnd() === END_OF_FILE) {
      cursor.at++;
      return { lines, endOfFile: true, lastLine: lastLineOf(lines, ended) };
    }
    const before = lines.at(-1);
    if (text.startsWith(NO_NEWLINE) && before !== undefined) {
      if (before.kind !== "add") ended.old = true;
      if (before.kind !== "remove") ended.new = true;
      // Without a line feed behind it, a carriage return is a character of the line
      if (before.crlf) lines.splice(-1, 1, { ...before, text: `${before.text}\r`, crlf: false });
      continue;
    }
    const line = parseLine(text, cursor);
    if ((ended.old && line.kind !== "add") || (ended.new && line.kind !== "remove")) {
      throw malformed(cursor.at + 1, NOT_LAST);
    }
    lines.push(line);
  }
  return { lines, endOfFile: ended.old || ended.new, lastLine: lastLineOf(lines, ended) };
}

function lastLineOf(
  lines: readonly HunkLine[],
  ended: { readonly old: boolean; readonly new: boolean },
): Hunk["lastLine"] {
  if (!ended.old && !ended.new) return undefined;
  if (!ended.new) return "closed";
  // A line that is kept ends as it does in the file
  return lines.findLast(({ kind }) => kind !== "remove")?.kind === "keep" ? undefined : "open";
}

function parseLine(line: string, cursor: Cursor): HunkLine {
  const crlf = line.endsWith("\r");
  const text = line.slice(1, crlf ? -1 : undefined);
  switch (line[0]) {
    case "+":
      return { kind: "add", text, crlf };
    case "-":
      return { kind: "remove", text, crlf };
    case " ":
      return { kind: "keep", text, crlf };
    // An empty line that has lost the space at its start
    case "\r":
    case undefined:
      return { kind: "keep", text: "", crlf };
    default:
      throw malformed(cursor.at + 1, 'each line of a hunk must start with a space, "-" or "+"');
  }
}

function isSectionEnd({ lines, at }: Cursor): boolean {
  const line = lines[at];
  return line === undefined || (line.startsWith("*** ") && line.trimEnd() !== END_OF_FILE);
}

function pathOf(text: string, cursor: Cursor): string {
  const path = text.trim();
  if (path === "") throw malformed(cursor.at + 1, "the path is missing");
  return path;
}

function malformed(line: number, reason: string): ToolError {
  return new ToolError("patch_malformed", `Cannot read the patch: line ${line}: ${reason}`);
}
