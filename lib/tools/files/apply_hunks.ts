import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import type { Hunk } from "./parse_patch.ts";

interface Line {
  readonly text: string;
  readonly ending: "" | "\n" | "\r\n";
}

/** Characters of a line of the patch that a message repeats */
const MAX_SHOWN = 80;

/**
 * Returns a text with the hunks of one update applied, one after the other from the top.
 *
 * Kept lines stay as they are in the file, white space included. New lines end like the line before them. The last line keeps its
 * newline, or the lack of one.
 * @param path for messages
 * @throws {ToolError} `patch_mismatch`, naming the hunk, counted from 1
 */
export function applyHunks(text: string, hunks: readonly Hunk[], path: string): string {
  const lines = splitLines(text);
  const finder = createLineFinder(lines.map((line) => line.text));
  const result: Line[] = [];
  let done = 0;
  for (const [i, hunk] of hunks.entries()) {
    const found = findHunk(hunk, { finder, from: done, count: lines.length });
    if (typeof found !== "number") {
      throw new ToolError("patch_mismatch", `Cannot apply the patch to ${shown(path)}: hunk ${i + 1}: ${found.reason}`);
    }
    for (; done < found; done++) result.push(lines[done] as Line); // `found` is below the length
    for (const line of hunk.lines) {
      const old = lines[done];
      if (line.kind === "add") result.push({ text: line.text, ending: endingNear(lines, done) });
      else {
        if (line.kind === "keep" && old !== undefined) result.push(old);
        done++;
      }
    }
  }
  return joinLines(result.concat(lines.slice(done)), lines);
}

interface Search {
  readonly finder: LineFinder;
  /** First line that may still change: the lines before were changed by earlier hunks */
  readonly from: number;
  readonly count: number;
}

function findHunk(hunk: Hunk, { finder, from, count }: Search): number | { readonly reason: string } {
  let after = from;
  for (const anchor of hunk.anchors) {
    const at = finder.find([anchor], after);
    if (typeof at !== "number") return notFound(`@@ ${anchor}`, at, finder.find([anchor], 0) !== undefined);
    after = at + 1;
  }
  const old = hunk.lines.filter((line) => line.kind !== "add").map((line) => line.text);
  if (old.length === 0) return hunk.anchors.length === 0 || hunk.endOfFile ? count : after;
  const first = old.find((line) => line.trim() !== "") ?? "";
  if (hunk.endOfFile) {
    const at = count - old.length;
    if (at >= after && finder.isAt(old, at)) return at;
    return { reason: `${quoted(first)} and what follows are not the last lines of the file` };
  }
  const at = finder.find(old, after);
  if (typeof at === "number") return at;
  // The line of the last anchor may be repeated as the hunk's first line
  const again = hunk.anchors.length > 0 && finder.isAt(old, after - 1) ? after - 1 : undefined;
  return again ?? notFound(first, at, finder.find(old, 0) !== undefined);
}

function notFound(line: string, found: "ambiguous" | undefined, isBefore: boolean): { readonly reason: string } {
  if (found === "ambiguous") {
    return { reason: `${quoted(line)} is at several places, white space apart; copy the lines exactly` };
  }
  if (isBefore) return { reason: `${quoted(line)} is only before the hunk above it; hunks go from the top down` };
  return { reason: `${quoted(line)} and what follows are not in the file; read it and copy the lines exactly` };
}

function quoted(line: string): string {
  return JSON.stringify(line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}...` : line);
}

function splitLines(text: string): readonly Line[] {
  const parts = text.split("\n");
  const last = parts.pop() ?? "";
  const lines = parts.map((part): Line =>
    part.endsWith("\r") ? { text: part.slice(0, -1), ending: "\r\n" } : { text: part, ending: "\n" }
  );
  return last === "" ? lines : [...lines, { text: last, ending: "" }];
}

function endingNear(lines: readonly Line[], at: number): Line["ending"] {
  return lines[at - 1]?.ending || lines[at]?.ending || lines[0]?.ending || "\n";
}

function joinLines(result: readonly Line[], before: readonly Line[]): string {
  const endsOpen = before.at(-1)?.ending === "";
  return result.map(({ text, ending }, i) => {
    if (i < result.length - 1) return text + (ending || endingNear(before, before.length - 1));
    return endsOpen ? text : text + ending;
  }).join("");
}

/** Finds parts of a patch in the lines of a file. */
export interface LineFinder {
  /**
   * Finds the line where `wanted` begins, from line `from` on: the first exact place. Without one, finds the only place that differs
   * in trailing white space alone, then the only place that differs in leading white space too.
   * @returns the index; undefined for no place; `ambiguous` for several places that differ in white space
   */
  find(wanted: readonly string[], from: number): number | "ambiguous" | undefined;
  /** Tells whether `wanted` begins at line `at`, apart from white space around the lines */
  isAt(wanted: readonly string[], at: number): boolean;
}

/** Comparisons of lines for one file: they take about 0.2 s */
const MAX_COMPARISONS = 5_000_000;
const FORMS: readonly ((line: string) => string)[] = [
  (line) => line,
  (line) => line.trimEnd(),
  (line) => line.trim(),
];

/** Creates the finder for a file. @param lines without their endings */
export function createLineFinder(lines: readonly string[]): LineFinder {
  const formed: (readonly string[] | undefined)[] = [lines];
  const linesIn = (form: number) => (formed[form] ??= lines.map(FORMS[form] ?? String));
  let left = MAX_COMPARISONS;
  const matches = (form: number, wanted: readonly string[], at: number): boolean => {
    const own = linesIn(form);
    for (const [i, line] of wanted.entries()) {
      if (--left < 0) {
        throw new ToolError(
          "patch_too_costly",
          "Cannot apply the patch: its lines occur too often in the file; add @@ lines with text that occurs once",
        );
      }
      if (own[at + i] !== line) return false;
    }
    return true;
  };
  return {
    find(wanted, from) {
      for (const [form, toForm] of FORMS.entries()) {
        const own = wanted.map(toForm);
        let found: number | undefined;
        for (let at = from; at + own.length <= lines.length; at++) {
          if (!matches(form, own, at)) continue;
          if (form === 0) return at;
          if (found !== undefined) return "ambiguous";
          found = at;
        }
        if (found !== undefined) return found;
      }
      return undefined;
    },
    isAt: (wanted, at) => FORMS.some((toForm, form) => matches(form, wanted.map(toForm), at)),
  };
}
