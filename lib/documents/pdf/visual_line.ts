/** A piece of a line, in the order of places from left to right. */
export interface LinePiece {
  readonly text: string;
  /** Places on the line, in units of the page */
  readonly left: number;
  readonly right: number;
  /** Height of its font */
  readonly size: number;
}

/** Letters and marks of the scripts that are written from right to left, with their presentation forms. */
const RTL =
  /[\u0590-\u065f\u066d-\u06ef\u06fa-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const LETTER = /\p{L}/u;
const DIGIT = /\p{Nd}/u;
const MARKS = /^\p{M}+$/u;
/** Signs that belong to a number when they stand between two digits, and those that do beside one */
const SEPARATOR = /^[.,:/+\-\u2212\u066b\u066c]$/;
const UNIT = /^[%$€£¥₪#°‰\u066a]$/;
const SPACE = /\s/;
/** Two glyphs so close together are one, drawn twice to look bold, in sizes of the font */
const SAME_PLACE = 0.15;
/** A letter that is nearer to a mark than another one by so many sizes of the font has the mark */
const NEAR = 0.6;

const MIRRORED: ReadonlyMap<string, string> = new Map(
  ["()", "[]", "{}", "<>", "«»", "‹›", "⟨⟩"].flatMap(([open = "", close = ""]) => [[open, close], [close, open]]),
);

/** Tells whether a text holds something that is written from right to left. */
export function hasRtl(text: string): boolean {
  return RTL.test(text);
}

/** Counts the letters of both directions; above 0 there are more from left to right. */
export function directionOfLetters(text: string): number {
  let balance = 0;
  for (const character of text) {
    if (RTL.test(character)) balance--;
    else if (LETTER.test(character)) balance++;
  }
  return balance;
}

/** Options of logicalText. */
export interface LineOptions {
  /** True when the page is written from right to left */
  readonly rtl: boolean;
  /** Returns the white space between two pieces, by their distance in sizes of the font */
  spaceOf(gap: number): string;
}

/**
 * Returns the text of a line in the order in which it is read, from pieces in the order in which they are seen.
 *
 * Letters from right to left are turned round; numbers and words from left to right keep their own order. A piece that holds letters
 * from right to left is one glyph, whose text is in reading order.
 * Source: Unicode Standard Annex 9, whose levels are undone here without the controls that a page does not show
 */
export function logicalText(pieces: readonly LinePiece[], options: LineOptions): string {
  const items = resolved(visualItems(pieces, options));
  return (options.rtl ? turned(items) : withTurnedRuns(items)).join("");
}

type Kind = "rtl" | "ltr" | "number" | "separator" | "unit" | "other";

interface Item {
  readonly text: string;
  readonly kind: Kind;
}

/** A glyph with the marks on it, or a text from left to right. */
interface Cluster {
  readonly piece: LinePiece;
  readonly marks: string[];
}

/**
 * Puts marks to the glyphs they stand on.
 *
 * A program that draws in the order of places draws a mark before its letter, one that draws in the order of reading after it.
 */
function clustersOf(pieces: readonly LinePiece[]): readonly Cluster[] {
  const clusters: Cluster[] = [];
  let waiting: LinePiece[] = [];
  for (const piece of pieces) {
    if (MARKS.test(piece.text)) {
      waiting.push(piece);
      continue;
    }
    const previous = clusters.at(-1);
    const own: string[] = [];
    for (const mark of waiting) {
      if (previous !== undefined && belongsToFirst(mark, previous.piece, piece)) previous.marks.push(mark.text);
      else own.push(mark.text);
    }
    waiting = [];
    clusters.push({ piece, marks: own.reverse() });
  }
  for (const { text } of waiting) clusters.at(-1)?.marks.push(text);
  return clusters;
}

function belongsToFirst(mark: LinePiece, first: LinePiece, second: LinePiece): boolean {
  const distance = ({ left, right }: LinePiece) => Math.max(left - mark.left, mark.left - right, 0);
  const difference = distance(first) - distance(second);
  return Math.abs(difference) > NEAR * mark.size ? difference < 0 : first.left > second.left;
}

/** Returns what is seen from left to right: glyphs with their marks, other characters one by one, and the space between. */
function visualItems(pieces: readonly LinePiece[], { spaceOf }: LineOptions): readonly Item[] {
  const items: Item[] = [];
  let last: LinePiece | undefined;
  const clusters = clustersOf(pieces).toSorted((a, b) => a.piece.left - b.piece.left);
  for (const { piece, marks } of withoutCoveredBlanks(clusters)) {
    if (last !== undefined && isDouble(piece, last)) continue;
    if (last !== undefined && !SPACE.test(last.text.slice(-1)) && !SPACE.test(piece.text.slice(0, 1))) {
      const space = spaceOf((piece.left - last.right) / Math.max(piece.size, last.size));
      if (space !== "") items.push({ text: space, kind: "other" });
    }
    if (hasRtl(piece.text)) items.push({ text: piece.text + marks.join(""), kind: "rtl" });
    else {
      for (const text of piece.text) items.push({ text, kind: kindOf(text) });
      if (marks.length > 0) items.push({ text: marks.join(""), kind: "rtl" });
    }
    last = last !== undefined && last.right > piece.right ? last : piece;
  }
  return items;
}

/** Leaves out blanks that a letter is drawn over: the place of the letters says where a word ends. */
function withoutCoveredBlanks(clusters: readonly Cluster[]): readonly Cluster[] {
  const isBlank = ({ piece }: Cluster) => piece.text.trim() === "";
  const covered = new Set<Cluster>();
  let next = Infinity;
  for (const cluster of clusters.toReversed()) {
    if (!isBlank(cluster)) next = cluster.piece.left;
    else if (next < middleOf(cluster.piece)) covered.add(cluster);
  }
  let reached = -Infinity;
  for (const cluster of clusters) {
    if (!isBlank(cluster)) reached = Math.max(reached, cluster.piece.right);
    else if (reached > middleOf(cluster.piece)) covered.add(cluster);
  }
  return clusters.filter((cluster) => !covered.has(cluster));
}

function middleOf({ left, right }: LinePiece): number {
  return (left + right) / 2;
}

function isDouble(piece: LinePiece, last: LinePiece): boolean {
  return piece.text === last.text && piece.left - last.left < SAME_PLACE * piece.size && last.right > last.left &&
    !SPACE.test(piece.text);
}

function kindOf(text: string): Kind {
  if (LETTER.test(text)) return "ltr";
  if (DIGIT.test(text)) return "number";
  return SEPARATOR.test(text) ? "separator" : UNIT.test(text) ? "unit" : "other";
}

/** Makes signs that belong to a number a part of it. */
function resolved(items: readonly Item[]): readonly Item[] {
  const isNumber = (i: number) => items[i]?.kind === "number";
  return items.map((item, i) => {
    const joins = (item.kind === "separator" && isNumber(i - 1) && isNumber(i + 1)) ||
      (item.kind === "unit" && (isNumber(i - 1) || isNumber(i + 1)));
    return joins ? { text: item.text, kind: "number" } : item;
  });
}

/** Turns a line from right to left round; what is written from left to right in it keeps its order. */
function turned(items: readonly Item[]): readonly string[] {
  const parts: string[] = [];
  let stretch: Stretch = { end: 0, lastLetter: -1, last: -1 };
  for (let i = 0; i < items.length;) {
    if (i >= stretch.end) stretch = stretchAt(items, i);
    const end = endOfLtr(items, i, stretch);
    if (end > i) parts.push(items.slice(i, end).map(({ text }) => text).join(""));
    else parts.push(MIRRORED.get(items[i]?.text ?? "") ?? items[i]?.text ?? "");
    i = Math.max(end, i + 1);
  }
  return parts.reverse();
}

/** Items up to the next one from right to left, by their places. It is looked for once, however many numbers stand before it. */
interface Stretch {
  readonly end: number;
  /** The last letter from left to right; -1 without one */
  readonly lastLetter: number;
  /** The last letter or number */
  readonly last: number;
}

function stretchAt(items: readonly Item[], from: number): Stretch {
  let end = from;
  let lastLetter = -1;
  let last = -1;
  for (; end < items.length && items[end]?.kind !== "rtl"; end++) {
    if (items[end]?.kind === "ltr") lastLetter = last = end;
    else if (items[end]?.kind === "number") last = end;
  }
  return { end: Math.max(end, from + 1), lastLetter, last };
}

/** Returns where the words from left to right, or the number, that start at `from` end; `from` when none starts there. */
function endOfLtr(items: readonly Item[], from: number, { lastLetter, last }: Stretch): number {
  const kind = items[from]?.kind;
  if (kind !== "ltr" && kind !== "number") return from;
  if (lastLetter >= from) return last + 1;
  // Two numbers side by side are read from right to left
  let end = from;
  while (items[end]?.kind === "number") end++;
  return end;
}

/** Turns only the runs from right to left in a line from left to right. */
function withTurnedRuns(items: readonly Item[]): readonly string[] {
  const parts: string[] = [];
  for (let i = 0; i < items.length;) {
    let end = i;
    if (items[i]?.kind === "rtl") {
      for (let at = i; at < items.length && items[at]?.kind !== "ltr"; at++) {
        if (items[at]?.kind === "rtl") end = at + 1;
      }
    }
    if (end > i) parts.push(turned(items.slice(i, end)).join(""));
    else parts.push(items[i]?.text ?? "");
    i = Math.max(end, i + 1);
  }
  return parts;
}
