import { directionOfLetters, hasRtl, logicalText } from "./visual_line.ts";

/** Gaps in sizes of the font: wider than this is a space, than that a column of its own */
const SPACE_GAP = 0.13;
const COLUMN_GAP = 2.5;
/** Letters from right to left are joined, so a smaller gap is a space between them */
const RTL_SPACE_GAP = 0.1;
/** So far back the text goes on elsewhere on its line */
const BACK_GAP = -1;
/** Off the line by more than this it is another line, by more than that another paragraph */
const LINE_GAP = 0.55;
const PARAGRAPH_GAP = 1.85;
/** Letters that start so far back and are off the line by more than this stand above or below what was drawn last */
const STACKED_BACK = -0.2;
const STACKED_OFF = 0.25;
/** Letters so many times as high as others stand on another line unless their feet stand on that of the others */
const MUCH_HIGHER = 3;
/** Two texts so close together are one, drawn twice to look bold */
const SAME_PLACE = 0.15;
/** Pieces of a line with which a piece is compared */
const MAX_COMPARED = 200;
/** Direction of two texts that stand on one line: the cosine between them */
const SAME_DIRECTION = 0.95;

/** Letters that have a height, and figures: no accents, and none of the scripts whose letters are put above each other */
const STANDING = /[\p{Lu}\p{Ll}\p{N}]/u;
const MARKS = /^\p{M}+$/u;

/** Characters that Japanese and Chinese write one below the other */
const UPRIGHT = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303f\u30fb\u30fc\uff00-\uff60]$/u;
/** Distance of two of them, in sizes of the font, and of two columns of them */
const BELOW = [0.85, 1.15] as const;
const COLUMNS = [0.9, 3] as const;
const SAME_COLUMN = 0.3;

const LIGATURES: ReadonlyMap<string, string> = new Map([
  ...[["ﬀ", "ff"], ["ﬁ", "fi"], ["ﬂ", "fl"], ["ﬃ", "ffi"], ["ﬄ", "ffl"], ["ﬅ", "st"], ["ﬆ", "st"]] as const,
]);

/** A piece of text on a page, in the page's units. */
export interface TextPiece {
  readonly text: string;
  readonly start: Point;
  readonly end: Point;
  /** Height of its font */
  readonly size: number;
}

/** A point in units of the page. */
export interface Point {
  readonly x: number;
  readonly y: number;
}

/** A piece that says its direction, also where it has no width of its own. */
interface DirectedPiece extends TextPiece {
  readonly direction: Point;
}

/**
 * Puts the pieces of one page into lines, in the order in which the page draws them. Lines that hold letters from right to left are put in order at the end.
 */
export class TextLayout {
  /** Finished lines with the breaks between them: as text, or as pieces that are still in the order of their drawing */
  readonly #lines: (string | readonly DirectedPiece[])[] = [];
  #line: DirectedPiece[] = [];
  #lineText: string[] = [];
  #lineIsRtl = false;
  /** The line is a column of single characters */
  #lineIsColumn = false;
  #last: DirectedPiece | undefined;
  #ending = "";
  #length = 0;

  /** UTF-16 units so far */
  get length(): number {
    return this.#length;
  }

  add(drawn: TextPiece): void {
    const text = cleaned(drawn.text);
    const last = this.#last;
    const size = drawn.size > 0 ? drawn.size : last?.size ?? 1;
    const direction = directionOf(drawn) ?? last?.direction ?? { x: 1, y: 0 };
    const piece = { ...drawn, text, size, direction };
    const blank = text.trim() === "";
    if (last === undefined) {
      if (blank) return;
    } else {
      if (!blank && isDouble(piece, last, size)) return;
      const goesDown = (this.#line.length === 1 || this.#lineIsColumn) && isBelow(piece, last);
      const gap = goesDown
        ? "none"
        : this.#lineIsColumn && isNextColumn(piece, last)
        ? "line"
        : gapBetween(piece, last);
      // Words from right to left are drawn one before the other
      const goesOn = gap === "back" && (this.#lineIsRtl || hasRtl(text)) && (blank || !this.#liesOnLine(piece));
      if (blank && BREAKS[gap] !== undefined && !goesOn) return;
      if (!goesOn) this.#putGap(gap, text);
      this.#lineIsColumn = goesDown;
    }
    this.#put(text);
    this.#line.push(piece);
    this.#lineIsRtl ||= hasRtl(text);
    this.#last = piece;
  }

  text(): string {
    this.#endLine("");
    const balance = this.#lines.some((line) => typeof line !== "string")
      ? this.#lines.reduce((sum, line) => sum + directionOfLetters(plainText(line)), 0)
      : 0;
    const lines = this.#lines.map((line) => typeof line === "string" ? line : inReadingOrder(line, balance < 0));
    return lines.join("").split("\n").map((line) => line.trimEnd()).join("\n").trim();
  }

  /** Tells whether a piece is drawn over others of its line, as the shadow of a line is. */
  #liesOnLine(piece: DirectedPiece): boolean {
    if (MARKS.test(piece.text)) return false;
    const others = this.#line.slice(-MAX_COMPARED).filter(({ text }) => text.trim() !== "");
    return others.some((other) => overlap(piece, other)) && !others.some((other) => isDouble(piece, other, piece.size));
  }

  #putGap(gap: Gap, text: string): void {
    const end = BREAKS[gap];
    if (end !== undefined) return this.#endLine(end);
    const spaced = /\s$/.test(this.#ending) || /^\s/.test(text);
    if (!spaced) this.#put(gap === "none" ? "" : gap === "space" ? " " : "\t");
  }

  #put(text: string): void {
    if (text === "") return;
    this.#lineText.push(text);
    this.#length += text.length;
    this.#ending = text.slice(-2);
  }

  #endLine(end: string): void {
    this.#lines.push(this.#lineIsRtl ? this.#line : this.#lineText.join(""), end);
    this.#length += end.length;
    this.#ending = end;
    this.#line = [];
    this.#lineText = [];
    this.#lineIsRtl = false;
  }
}

function plainText(line: string | readonly TextPiece[]): string {
  return typeof line === "string" ? line : line.map(({ text }) => text).join("");
}

function inReadingOrder(pieces: readonly DirectedPiece[], rtl: boolean): string {
  const { direction } = pieces[0] ?? { direction: { x: 1, y: 0 } };
  const along = (point: Point) => point.x * direction.x + point.y * direction.y;
  const placed = pieces.map(({ text, start, end, size }) => {
    const [from, to] = [along(start), along(end)];
    return { text, size, left: Math.min(from, to), right: Math.max(from, to) };
  });
  const spaceOf = (gap: number) => gap > COLUMN_GAP ? "\t" : gap > RTL_SPACE_GAP ? " " : "";
  return logicalText(placed, { rtl, spaceOf });
}

/** `back` is another place on the same line, before what was drawn last */
type Gap = "none" | "space" | "column" | "back" | "line" | "paragraph";

const BREAKS: Readonly<Partial<Record<Gap, string>>> = { back: "\n", line: "\n", paragraph: "\n\n" };

function gapBetween(piece: DirectedPiece, last: DirectedPiece): Gap {
  const { direction } = last;
  const size = Math.max(piece.size, last.size);
  const [dx, dy] = [piece.start.x - last.end.x, piece.start.y - last.end.y];
  const along = (dx * direction.x + dy * direction.y) / size;
  const across = Math.abs(dx * direction.y - dy * direction.x) / size;
  const turned = direction.x * piece.direction.x + direction.y * piece.direction.y < SAME_DIRECTION;
  if (!Number.isFinite(along) || !Number.isFinite(across)) return "space";
  const isDown = direction.y < -SAME_DIRECTION && UPRIGHT.test(piece.text);
  if (across > (isDown ? COLUMNS[1] : PARAGRAPH_GAP)) return "paragraph";
  if (across > LINE_GAP || turned) return "line";
  const smaller = Math.min(piece.size, last.size);
  if (size > MUCH_HIGHER * smaller && across * size > LINE_GAP * smaller) return "line";
  const isStacked = along < STACKED_BACK && across > STACKED_OFF;
  if (isStacked && STANDING.test(piece.text) && STANDING.test(last.text)) return "line";
  if (along < BACK_GAP) return "back";
  return along > COLUMN_GAP ? "column" : along > SPACE_GAP ? "space" : "none";
}

/** Tells whether an upright character stands right below another one, as in a text that is written downwards. */
function isBelow(piece: DirectedPiece, last: DirectedPiece): boolean {
  const size = Math.max(piece.size, last.size);
  const down = (last.start.y - piece.start.y) / size;
  return UPRIGHT.test(piece.text) && UPRIGHT.test(last.text) && piece.direction.x > SAME_DIRECTION &&
    Math.abs(piece.start.x - last.start.x) < SAME_COLUMN * size && down > BELOW[0] && down < BELOW[1];
}

function isNextColumn(piece: DirectedPiece, last: DirectedPiece): boolean {
  const left = (last.start.x - piece.start.x) / Math.max(piece.size, last.size);
  return UPRIGHT.test(piece.text) && piece.start.y > last.start.y && left > COLUMNS[0] && left < COLUMNS[1];
}

function isDouble(piece: TextPiece, last: TextPiece, size: number): boolean {
  const near = (a: Point, b: Point) => Math.hypot(a.x - b.x, a.y - b.y) < SAME_PLACE * size;
  return piece.text === last.text && near(piece.start, last.start) && !near(last.start, last.end);
}

/** Tells whether two pieces of a line share more than half the width of the narrower one. */
function overlap(piece: DirectedPiece, other: DirectedPiece): boolean {
  const { direction } = other;
  const along = (point: Point) => point.x * direction.x + point.y * direction.y;
  const [from, to] = [along(piece.start), along(piece.end)].sort((a, b) => a - b);
  const [otherFrom, otherTo] = [along(other.start), along(other.end)].sort((a, b) => a - b);
  if (from === undefined || to === undefined || otherFrom === undefined || otherTo === undefined) return false;
  const shared = Math.min(to, otherTo) - Math.max(from, otherFrom);
  return shared > Math.min(to - from, otherTo - otherFrom) / 2;
}

function directionOf({ start, end }: TextPiece): Point | undefined {
  const [x, y] = [end.x - start.x, end.y - start.y];
  const length = Math.hypot(x, y);
  return Number.isFinite(length) && length > 1e-6 ? { x: x / length, y: y / length } : undefined;
}

/** Ligatures and forms of Arabic and Hebrew letters as letters; no control characters, soft hyphens and marks of order without a width. */
function cleaned(text: string): string {
  // deno-lint-ignore no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b\ufeff]/g, "")
    .replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "")
    .replace(/[\u00a0\u2000-\u200a\u202f]/g, " ")
    .replace(/[\ufb00-\ufb06]/g, (ligature) => LIGATURES.get(ligature) ?? ligature)
    .replace(/[\ufb1d-\ufdff\ufe70-\ufefc]/g, (form) => form.normalize("NFKC").trim());
}

const MAX_MARKS = 200;

/** Puts pieces into a layout; where marks say what the pieces mean, that in their place. Source: ISO 32000-2, sections 14.6 and 14.9.4 */
export interface MarkedText {
  /** @param replacement the text of all that follows, up to the end of the mark; undefined: the pieces speak for themselves */
  begin(replacement: string | undefined): void;
  end(): void;
  /** Ends the marks that were left open */
  close(): void;
  add(piece: TextPiece): void;
}

interface Mark {
  readonly replacement: string | undefined;
  drawn: TextPiece | undefined;
}

/** Creates marked text that draws into a layout. */
export function createMarkedText(layout: TextLayout): MarkedText {
  const marks: Mark[] = [];
  const end = () => {
    const mark = marks.pop();
    if (mark?.drawn !== undefined) layout.add({ ...mark.drawn, text: mark.replacement ?? "" });
  };
  return {
    begin(replacement) {
      if (marks.length < MAX_MARKS) marks.push({ replacement, drawn: undefined });
    },
    end,
    close() {
      while (marks.length > 0) end();
    },
    add(piece) {
      // The outermost replacement stands for those inside it
      const mark = marks.find(({ replacement }) => replacement !== undefined);
      if (mark === undefined) layout.add(piece);
      else mark.drawn = mark.drawn === undefined ? piece : { ...mark.drawn, end: piece.end };
    },
  };
}
