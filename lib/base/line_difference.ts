import { formatPatch, OMIT_HEADERS, structuredPatch, type StructuredPatchHunk } from "diff";
import { firstBytes } from "./text.ts";

/** Bounds of a difference. */
export interface DifferenceBounds {
  /** Lines around a change that are shown too. Default 3 */
  readonly context?: number | undefined;
  /** Bytes of UTF-8 of the whole difference. Default 65,536 */
  readonly maxBytes?: number | undefined;
  /** Says that the texts are parts, as of a file: nothing is told of a line break that their ends lack. Default false */
  readonly ofParts?: boolean | undefined;
}

const MAX_BYTES = 65_536;
/** Lines that are taken away and added, up to which the shortest difference is looked for. Beyond it a part is shown as replaced whole */
const MAX_EDITS = 500;

/**
 * Returns the difference between two texts, in the unified format without the names of files, as `patch` and `git apply` take it behind
 * these. Empty for equal texts. A long one is cut with a line that says so.
 */
export function lineDifference(before: string, after: string, bounds: DifferenceBounds = {}): string {
  const { context = 3, maxBytes = MAX_BYTES, ofParts = false } = bounds;
  if (before === after) return "";
  const [old, now] = ofParts ? [ended(before), ended(after)] : [before, after];
  const names = { oldFileName: undefined, newFileName: undefined, oldHeader: undefined, newHeader: undefined };
  const patch = structuredPatch("", "", old, now, "", "", { context, maxEditLength: MAX_EDITS }) ??
    { ...names, hunks: [replacedWhole(old, now, context)] };
  const text = formatPatch(patch, OMIT_HEADERS).slice(0, -1);
  const cut = firstBytes(text, maxBytes);
  return cut === text ? text : `${cut}\n... the difference goes on; ${maxBytes} bytes of it are shown`;
}

function ended(text: string): string {
  return text === "" ? "" : `${text}\n`;
}

/** Returns the change that replaces all lines but those that both texts begin or end with. */
function replacedWhole(before: string, after: string, context: number): StructuredPatchHunk {
  const [old, now] = [linesOf(before), linesOf(after)];
  const most = Math.min(old.length, now.length);
  let head = 0;
  while (head < most && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < most - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  const start = Math.max(0, head - context);
  const rest = Math.max(0, tail - context);
  const lines = [
    ...signed(" ", old.slice(start, head)),
    ...signed("-", old.slice(head, old.length - tail)),
    ...signed("+", now.slice(head, now.length - tail)),
    ...signed(" ", old.slice(old.length - tail, old.length - rest)),
  ];
  const [oldLines, newLines] = [old.length - rest - start, now.length - rest - start];
  return { oldStart: start + 1, oldLines, newStart: start + 1, newLines, lines };
}

/** Returns the lines with their line breaks. */
function linesOf(text: string): readonly string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function signed(sign: string, lines: readonly string[]): readonly string[] {
  return lines.flatMap((line) =>
    line.endsWith("\n") ? [sign + line.slice(0, -1)] : [sign + line, "\\ No newline at end of file"]
  );
}
