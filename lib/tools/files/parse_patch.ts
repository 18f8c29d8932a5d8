import { ToolError } from "../../base/errors.ts";

/** Section of a patch: the change of one file. */
export type PatchSection =
  | { readonly kind: "add"; readonly path: string; readonly content: string }
  | { readonly kind: "delete"; readonly path: string }
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
  readonly lines: readonly HunkLine[];
  /** Set when the hunk's last line is the last line of the file */
  readonly endOfFile: boolean;
}

/** Line of a hunk. */
export interface HunkLine {
  readonly kind: "keep" | "remove" | "add";
  /** Without its line ending */
  readonly text: string;
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
/** Line numbers and heading that git and diff write behind `@@`. They are not used: the heading may be cut */
const UNIFIED = /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/;
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
  return sections;
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
  for (; cursor.lines[cursor.at]?.startsWith("@@"); cursor.at++) {
    const line = cursor.lines[cursor.at] ?? "";
    const anchor = UNIFIED.test(line) ? "" : line.slice(2).replace(/^ /, "").replace(/\r$/, "");
    if (anchor.trim() !== "") anchors.push(anchor);
  }
  const lines: HunkLine[] = [];
  let endOfFile = false;
  for (; !isSectionEnd(cursor) && !cursor.lines[cursor.at]?.startsWith("@@"); cursor.at++) {
    const line = cursor.lines[cursor.at] ?? "";
    if (line.trimEnd() === END_OF_FILE) {
      endOfFile = true;
      cursor.at++;
      break;
    }
    if (!line.startsWith("\\ No newline")) lines.push(parseLine(line, cursor));
  }
  if (lines.length === 0) throw malformed(firstLine, "the hunk has no lines");
  return { anchors, lines, endOfFile };
}

function parseLine(line: string, cursor: Cursor): HunkLine {
  const text = line.slice(1).replace(/\r$/, "");
  switch (line[0]) {
    case "+":
      return { kind: "add", text };
    case "-":
      return { kind: "remove", text };
    case " ":
      return { kind: "keep", text };
    // An empty line that has lost the space at its start
    case "\r":
    case undefined:
      return { kind: "keep", text: "" };
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
