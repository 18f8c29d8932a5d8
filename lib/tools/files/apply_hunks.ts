import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { createLineIndex, splitLines, type TextLine } from "./line_index.ts";
import { BYTE_ORDER_MARK, type Hunk, type HunkLine } from "./parse_patch.ts";
import { oldLinesOf, type PlacedHunk, placeHunks } from "./place_hunks.ts";
import { keepOwn } from "./same_text.ts";
import { createReindent, pairIndentations } from "./reindent.ts";

/**
 * Returns a text with the hunks of one update applied, or refuses the update. The rules of places are those of placeHunks.
 *
 * Kept lines stay as they are in the file, white space included. A byte order mark stays at the start, unless the patch shows it and takes
 * it away. The last line keeps its newline, or the lack of one, unless `\ No newline at end of file` in the patch tells it.
 * Where a changed line was found by other code points or ASCII quotes and dashes, the new one keeps the file's own in all that it repeats.
 * New lines end as the patch says when its lines have CRLF where the file has it, else like the old lines of their hunk. Where a place was
 * found by ignoring indentation, new lines are indented like the file.
 * @param path for messages
 * @throws {ToolError} `patch_mismatch`, naming the hunk, counted from 1
 */
export function applyHunks(text: string, hunks: readonly Hunk[], path: string): string {
  const isMarked = text.startsWith(BYTE_ORDER_MARK);
  const lines = splitLines(isMarked ? text.slice(1) : text);
  const marked = isMarked
    ? hunks.map((hunk) => splitMark(hunk, lines.length === 0))
    : hunks.map((hunk) => ({ hunk, takesMark: false }));
  const plain = marked.map(({ hunk }) => hunk);
  const places = placeHunks(plain, createLineIndex(lines), path);
  const file: PatchedFile = { lines, ending: commonEnding(lines), path };
  const result: TextLine[] = [];
  let done = 0;
  for (const [i, hunk] of plain.entries()) {
    const place = places[i] as PlacedHunk; // as many as hunks
    for (; done < place.at; done++) result.push(lines[done] as TextLine); // a place is in the file
    for (const line of newLines(hunk, { number: i + 1, place, file })) result.push(line);
    done += oldLinesOf(hunk).length;
  }
  for (; done < lines.length; done++) result.push(lines[done] as TextLine); // below the length
  const isMarkTaken = places[0]?.at === 0 && marked[0]?.takesMark === true;
  const mark = isMarked && !isMarkTaken ? BYTE_ORDER_MARK : "";
  return mark + joinLines(result, { isOpen: endsOpen(plain, lines), ending: file.ending ?? "\n" });
}

/**
 * Takes the byte order mark of the file out of a hunk that shows it.
 * @param isAlone set when the file has nothing else: the mark is a line for git, and none here
 */
function splitMark(hunk: Hunk, isAlone: boolean): { readonly hunk: Hunk; readonly takesMark: boolean } {
  const isMarked = (line: HunkLine | undefined) => line?.text.startsWith(BYTE_ORDER_MARK) === true;
  const firstOld = hunk.lines.find(({ kind }) => kind !== "add");
  const firstNew = hunk.lines.find(({ kind }) => kind !== "remove");
  const lines = hunk.lines
    .filter((line) => !isAlone || line !== firstOld || line.text !== BYTE_ORDER_MARK)
    .map((line) =>
      (line === firstOld || line === firstNew) && isMarked(line) ? { ...line, text: line.text.slice(1) } : line
    );
  return { hunk: { ...hunk, lines }, takesMark: hunk.startOfFile && !isMarked(firstNew) };
}

interface PatchedFile {
  readonly lines: readonly TextLine[];
  /** Ending of all lines that have one. undefined without lines, and for a file with both kinds */
  readonly ending: TextLine["ending"] | undefined;
  readonly path: string;
}

function commonEnding(lines: readonly TextLine[]): TextLine["ending"] | undefined {
  const endings = new Set(lines.map(({ ending }) => ending).filter((ending) => ending !== ""));
  return endings.size === 1 ? [...endings][0] : undefined;
}

interface HunkPlace {
  /** Number from 1, for messages */
  readonly number: number;
  readonly place: PlacedHunk;
  readonly file: PatchedFile;
}

/** Returns the lines that stand in the file in place of a hunk's old lines. */
function newLines(hunk: Hunk, { number, place, file }: HunkPlace): readonly TextLine[] {
  const old = oldLinesOf(hunk);
  const oldTexts = file.lines.slice(place.at, place.at + old.length);
  const pairs = ignoresIndentation(place) ? pairIndentations(old, oldTexts.map(({ text }) => text)) : [];
  const reindent = createReindent(pairs);
  const endingOf = createEndings(hunk, { number, place, file });
  const ownOf = pairChanged(hunk, oldTexts);
  let done = 0;
  return hunk.lines.flatMap((line): readonly TextLine[] => {
    if (line.kind !== "add") {
      const own = oldTexts[done++];
      return line.kind === "keep" && own !== undefined ? [own] : [];
    }
    const text = reindent(line.text);
    if (text !== undefined) return [{ text: keepBody(text, ownOf.get(line)), ending: endingOf(line, done) }];
    throw mismatch(
      file.path,
      number,
      `it fits line ${place.at + 1} apart from the indentation, which does not tell how to indent ${
        JSON.stringify(line.text)
      }; copy the old lines with their white space`,
    );
  });
}

/** Line that a hunk removes, as the patch has it and as the file has it. */
interface RemovedLine {
  readonly old: string;
  readonly own: string;
}

/** Pairs the added lines with the removed ones between the same kept lines, in their order. */
function pairChanged(hunk: Hunk, oldTexts: readonly TextLine[]): ReadonlyMap<HunkLine, RemovedLine> {
  const pairs = new Map<HunkLine, RemovedLine>();
  let changed: { readonly removed: RemovedLine[]; readonly added: HunkLine[] } = { removed: [], added: [] };
  const settle = () => {
    for (const [i, removed] of changed.removed.entries()) {
      const line = changed.added[i];
      if (line !== undefined) pairs.set(line, removed);
    }
    changed = { removed: [], added: [] };
  };
  let done = 0;
  for (const line of hunk.lines) {
    const own = line.kind === "add" ? "" : oldTexts[done++]?.text ?? "";
    if (line.kind === "keep") settle();
    else if (line.kind === "add") changed.added.push(line);
    else changed.removed.push({ old: line.text.trim(), own: own.trim() });
  }
  settle();
  return pairs;
}

function keepBody(text: string, removed: RemovedLine | undefined): string {
  if (removed === undefined || removed.old === removed.own) return text;
  const body = text.trimStart();
  return text.slice(0, text.length - body.length) + keepOwn(body, removed);
}

function ignoresIndentation({ exactness }: PlacedHunk): boolean {
  return exactness === "trimmed" || exactness === "ascii";
}

/** Creates the function that returns the ending of a line that a hunk adds behind `done` of its old lines. */
function createEndings(
  hunk: Hunk,
  { number, place, file }: HunkPlace,
): (line: HunkLine, done: number) => TextLine["ending"] {
  const old = oldLinesOf(hunk);
  const isTold = place.exactness === "ending";
  const isContradicted = !isTold && old.some(({ crlf }) => crlf);
  const isEndingTold = isTold || hunk.lines.some(({ crlf }) => crlf);
  const isOpen = place.at + old.length === file.lines.length && endsOpen([hunk], file.lines);
  const isLast = (line: HunkLine) => isOpen && hunk.lines.at(-1) === line;
  const own = file.lines.slice(place.at, place.at + old.length).map(({ ending }) => ending);
  return (line, done) => {
    if (line.crlf && !isContradicted) return "\r\n";
    if (isTold) return "\n";
    const above = done === 0 && old.length > 0 ? file.lines[place.at - 1]?.ending : own[done - 1] || own[done - 2];
    const near = above || own[done];
    if (near) return near;
    // Line numbers and "\\ No newline" are made by git and diff, which show CRLF, or by a model, which does not
    const isDiff = hunk.numbers !== undefined || hunk.lastLine !== undefined;
    if (!isDiff) return file.ending ?? endingAround(file.lines, place.at);
    if (file.ending === "\r\n" && !isEndingTold && !isLast(line)) {
      throw mismatch(
        file.path,
        number,
        "the lines of the file end with CRLF, and the hunk does not show how its own end; add a line of context",
      );
    }
    return isEndingTold ? "\n" : file.ending ?? "\n";
  };
}

function endingAround(lines: readonly TextLine[], at: number): TextLine["ending"] {
  return lines[at - 1]?.ending || lines[at]?.ending || "\n";
}

/** Tells whether the new file ends without a newline. */
function endsOpen(hunks: readonly Hunk[], lines: readonly TextLine[]): boolean {
  const told = hunks.at(-1)?.lastLine;
  return told === undefined ? lines.at(-1)?.ending === "" : told === "open";
}

interface JoinOptions {
  readonly isOpen: boolean;
  /** Ending of lines that had none and need one */
  readonly ending: TextLine["ending"];
}

function joinLines(lines: readonly TextLine[], { isOpen, ending: missing }: JoinOptions): string {
  return lines.map(({ text, ending }, i) => {
    return isOpen && i === lines.length - 1 ? text : text + (ending || missing);
  }).join("");
}

function mismatch(path: string, hunk: number, reason: string): ToolError {
  return new ToolError("patch_mismatch", `Cannot apply the patch to ${shown(path)}: hunk ${hunk}: ${reason}`);
}
