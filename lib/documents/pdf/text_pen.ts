import type { Glyph, PdfFont } from "./pdf_font.ts";
import type { PdfObject } from "./pdf_object.ts";
import { UNKNOWN_CHARACTER } from "./simple_encoding.ts";
import type { Point, TextPiece } from "./text_layout.ts";
import { hasRtl } from "./visual_line.ts";

/** `[a b c d e f]`. Source: ISO 32000-2, section 8.3.4 */
export type Matrix = readonly [number, number, number, number, number, number];

/** The matrix that changes nothing. */
export const IDENTITY: Matrix = [1, 0, 0, 1, 0, 0];

/** First `inner`, then `outer`. */
export function multiply(inner: Matrix, outer: Matrix): Matrix {
  const [a, b, c, d, e, f] = inner;
  const [oa, ob, oc, od, oe, of] = outer;
  return [
    a * oa + b * oc,
    a * ob + b * od,
    c * oa + d * oc,
    c * ob + d * od,
    e * oa + f * oc + oe,
    e * ob + f * od + of,
  ];
}

/** Where a matrix puts a point. */
export function apply([a, b, c, d, e, f]: Matrix, { x, y }: Point): Point {
  return { x: a * x + c * y + e, y: b * x + d * y + f };
}

/** Six numbers as a matrix; the identity for anything else. */
export function toMatrix(items: readonly PdfObject[]): Matrix {
  const numbers = items.filter((item): item is number => typeof item === "number");
  const [a, b, c, d, e, f] = numbers;
  if (a === undefined || b === undefined || c === undefined || d === undefined || e === undefined || f === undefined) {
    return IDENTITY;
  }
  return [a, b, c, d, e, f];
}

const MAX_SAVED_STATES = 200;
/** Characters of one string that are looked at */
const MAX_STRING = 1_000_000;
/** Space between characters that is as wide as one between words, in sizes of the font */
const WIDE_SPACE = 0.13;
/** A move back by this share of the space between characters undoes it */
const UNDOING = 0.75;
/** Space between characters that only columns of single characters have, in sizes of the font */
const COLUMN_SPACE = 1;

/** The settings of text and place that `q` saves and `Q` brings back. */
export interface TextState {
  /** From the contents' units to the page's */
  readonly matrix: Matrix;
  readonly font: PdfFont | undefined;
  readonly size: number;
  readonly characterSpace: number;
  readonly wordSpace: number;
  /** 1 is the width of the font itself */
  readonly stretch: number;
  readonly leading: number;
  readonly rise: number;
}

/** Settings at the beginning of a page. */
export const START_STATE: TextState = {
  matrix: IDENTITY,
  font: undefined,
  size: 1,
  characterSpace: 0,
  wordSpace: 0,
  stretch: 1,
  leading: 0,
  rise: 0,
};

/** A string as it was drawn. */
export interface DrawnText extends TextPiece {
  /** Characters whose font does not say what they mean; in the text they are left out or stand as U+FFFD */
  readonly unknown: number;
}

/** Draws strings where the operators of text say. Source: ISO 32000-2, sections 8.4 and 9.4 */
export interface TextPen {
  readonly state: TextState;
  set(changes: Partial<TextState>): void;
  save(): void;
  restore(): void;
  /** Changes the units of what follows */
  transform(matrix: Matrix): void;
  setTextMatrix(matrix: Matrix): void;
  /** To a line that starts so far from the start of this one */
  moveLine(x: number, y: number): void;
  /** To the next line, by the leading */
  nextLine(): void;
  /** @param bytes as in PdfString */
  show(bytes: string): void;
  /** Shows strings, and between them moves back on the line, in thousandths of the size */
  showAll(items: readonly (string | number)[]): void;
}

/** Creates a pen that turns text operators into drawn text. */
export function createTextPen(start: TextState, draw: (text: DrawnText) => void): TextPen {
  const saved: TextState[] = [];
  let state = start;
  let textMatrix = IDENTITY;
  let lineMatrix = IDENTITY;

  const advance = (by: number) => {
    const isVertical = state.font?.isVertical === true;
    textMatrix = multiply([1, 0, 0, 1, isVertical ? 0 : by * state.stretch, isVertical ? by : 0], textMatrix);
  };
  const place = () => apply(multiply(textMatrix, state.matrix), { x: 0, y: state.rise });
  const moveLine = (x: number, y: number) => {
    lineMatrix = multiply([1, 0, 0, 1, x, y], lineMatrix);
    textMatrix = lineMatrix;
  };

  /** @param endsAtGlyph true when the space after the last character is none of the text's */
  const show = (glyphs: readonly Glyph[], endsAtGlyph = false) => {
    const { size, characterSpace, wordSpace } = state;
    const from = place();
    let text = "";
    let width = 0;
    let unknown = 0;
    for (const glyph of glyphs) {
      if (glyph.text === undefined || glyph.text === UNKNOWN_CHARACTER) unknown++;
      text += glyph.text ?? "";
      width += glyph.width * size + characterSpace + (glyph.isSpace ? wordSpace : 0);
    }
    const space = endsAtGlyph ? characterSpace : 0;
    advance(width - space);
    const end = place();
    advance(space);
    const [, , c, d] = multiply(textMatrix, state.matrix);
    draw({ text, start: from, end, size: heightOf(state) * Math.hypot(c, d), unknown });
  };
  const showString = (bytes: string, isApart = spaceOf(state) > COLUMN_SPACE) => {
    const { font } = state;
    if (font === undefined) return;
    const glyphs = font.glyphs(bytes.slice(0, MAX_STRING));
    // The place of each glyph decides what is read after what
    const byGlyph = isApart || glyphs.some(({ text }) => text !== undefined && hasRtl(text));
    if (byGlyph) { for (const glyph of glyphs) show([glyph], isApart); }
    else show(glyphs);
  };

  return {
    get state() {
      return state;
    },
    set(changes) {
      state = { ...state, ...changes };
    },
    save() {
      if (saved.length < MAX_SAVED_STATES) saved.push(state);
    },
    restore() {
      state = saved.pop() ?? state;
    },
    transform(matrix) {
      state = { ...state, matrix: multiply(matrix, state.matrix) };
    },
    setTextMatrix(matrix) {
      textMatrix = lineMatrix = matrix;
    },
    moveLine,
    nextLine: () => moveLine(0, -state.leading),
    show: (bytes) => showString(bytes),
    showAll(items) {
      const space = spaceOf(state);
      const undoing = (state.characterSpace / state.size) * 1000 * UNDOING;
      const isUndone = (item: string | number) => typeof item === "number" && item > undoing;
      const isApart = space > COLUMN_SPACE || (space > WIDE_SPACE && items.some(isUndone));
      for (const item of items) {
        if (typeof item === "string") showString(item, isApart);
        else advance((-item / 1000) * state.size);
      }
    },
  };
}

function heightOf({ size, font }: TextState): number {
  return Math.abs(size) * (font?.height ?? 1);
}

/** Returns the space between characters in heights of the font. */
function spaceOf(state: TextState): number {
  return state.characterSpace / heightOf(state);
}
