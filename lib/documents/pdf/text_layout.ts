/** Gaps in sizes of the font: wider than this is a space, than that a column of its own */
const SPACE_GAP = 0.18;
const COLUMN_GAP = 2.5;
/** So far back the text goes on elsewhere on its line */
const BACK_GAP = -1;
/** Off the line by more than this it is another line, by more than that another paragraph */
const LINE_GAP = 0.55;
const PARAGRAPH_GAP = 1.85;
/** Two texts so close together are one, drawn twice to look bold */
const SAME_PLACE = 0.15;
/** Direction of two texts that stand on one line: the cosine between them */
const SAME_DIRECTION = 0.95;

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

/** Puts the pieces of a page together, in the order in which the page draws them. */
export interface TextLayout {
  add(piece: TextPiece): void;
  /** UTF-16 units so far */
  readonly length: number;
  text(): string;
}

/** Creates an empty layout. */
export function createTextLayout(): TextLayout {
  const parts: string[] = [];
  let length = 0;
  let last: (TextPiece & { readonly direction: Point }) | undefined;
  let ending = "";
  const put = (text: string) => {
    if (text === "") return;
    parts.push(text);
    length += text.length;
    ending = text.slice(-2);
  };
  return {
    add(piece) {
      const text = cleaned(piece.text);
      const size = piece.size > 0 ? piece.size : last?.size ?? 1;
      const direction = directionOf(piece) ?? last?.direction ?? { x: 1, y: 0 };
      const blank = text.trim() === "";
      if (last !== undefined) {
        if (!blank && isDouble(piece, last, size)) return;
        const gap = gapBetween({ ...piece, size, direction }, last);
        if (blank && (gap === "line" || gap === "paragraph")) return;
        const between = { none: "", space: " ", column: "\t", line: "\n", paragraph: "\n\n" }[gap];
        const spaced = /\s$/.test(ending) || /^\s/.test(text);
        if (!(spaced && (gap === "space" || gap === "column"))) put(between);
      } else if (blank) return;
      put(text);
      last = { ...piece, size, direction };
    },
    get length() {
      return length;
    },
    text: () => parts.join("").split("\n").map((line) => line.trimEnd()).join("\n").trim(),
  };
}

type Gap = "none" | "space" | "column" | "line" | "paragraph";

function gapBetween(
  piece: TextPiece & { readonly direction: Point },
  last: TextPiece & { readonly direction: Point },
): Gap {
  const { direction } = last;
  const size = Math.max(piece.size, last.size);
  const [dx, dy] = [piece.start.x - last.end.x, piece.start.y - last.end.y];
  const along = (dx * direction.x + dy * direction.y) / size;
  const across = Math.abs(dx * direction.y - dy * direction.x) / size;
  const turned = direction.x * piece.direction.x + direction.y * piece.direction.y < SAME_DIRECTION;
  if (!Number.isFinite(along) || !Number.isFinite(across)) return "space";
  if (across > PARAGRAPH_GAP) return "paragraph";
  if (across > LINE_GAP || turned || along < BACK_GAP) return "line";
  return along > COLUMN_GAP ? "column" : along > SPACE_GAP ? "space" : "none";
}

function isDouble(piece: TextPiece, last: TextPiece, size: number): boolean {
  const near = (a: Point, b: Point) => Math.hypot(a.x - b.x, a.y - b.y) < SAME_PLACE * size;
  return piece.text === last.text && near(piece.start, last.start) && !near(last.start, last.end);
}

function directionOf({ start, end }: TextPiece): Point | undefined {
  const [x, y] = [end.x - start.x, end.y - start.y];
  const length = Math.hypot(x, y);
  return Number.isFinite(length) && length > 1e-6 ? { x: x / length, y: y / length } : undefined;
}

/** Ligatures as letters; no control characters, soft hyphens and marks of order without a width. */
function cleaned(text: string): string {
  // deno-lint-ignore no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b\ufeff]/g, "")
    .replace(/[\u00a0\u2000-\u200a\u202f]/g, " ")
    .replace(/[\ufb00-\ufb06]/g, (ligature) => LIGATURES.get(ligature) ?? ligature);
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
