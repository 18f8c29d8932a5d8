import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { textString } from "./document_strings.ts";
import { apply, IDENTITY, type Matrix, multiply, toMatrix } from "./matrix.ts";
import type { PdfFile } from "./open_pdf.ts";
import { isKeyword, parsePdfObject } from "./parse_pdf_object.ts";
import { loadFont, type PdfFont } from "./pdf_font.ts";
import { createLexer, isSpace, type PdfLexer } from "./pdf_lexer.ts";
import { EMPTY_DICT, isKind, type PdfArray, type PdfDict, type PdfObject } from "./pdf_object.ts";
import { createTextLayout, type Point } from "./text_layout.ts";

const MAX_OPERANDS = 200;
const MAX_OPERAND_PARTS = 500_000;
const MAX_SAVED_STATES = 200;
const MAX_FORM_DEPTH = 10;
/** UTF-16 units of one page */
const MAX_PAGE_TEXT = 1_000_000;

/** What a page shows as text. */
export interface PageText {
  readonly text: string;
  /** Characters whose fonts do not say what they mean */
  readonly unknown: number;
  readonly pictures: number;
}

export interface PageTextOptions {
  readonly file: PdfFile;
  readonly budget: WorkBudget;
  /** Fonts of the whole document, by their dictionaries */
  readonly fonts: Map<PdfDict, PdfFont>;
}

/** Lasts beyond the saving and restoring of a text object. */
interface State {
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

const START: State = {
  matrix: IDENTITY,
  font: undefined,
  size: 1,
  characterSpace: 0,
  wordSpace: 0,
  stretch: 1,
  leading: 0,
  rise: 0,
};

/** Text that stands for what is drawn inside its marks, as the letters of a word that is divided. */
interface Replacement {
  readonly text: string;
  drawn: { readonly start: Point; end: Point; readonly size: number } | undefined;
}

/**
 * The text that the operators of a page draw.
 * @throws {DocumentError} when the budget is used up
 * Source: ISO 32000-2, sections 7.8, 8.10 and 9.4
 */
export function pageText(
  contents: Uint8Array,
  resources: PdfDict,
  { file, budget, fonts }: PageTextOptions,
): PageText {
  const { reader } = file;
  const layout = createTextLayout();
  let unknown = 0;
  let pictures = 0;

  const fontOf = (dict: PdfDict): PdfFont => {
    const known = fonts.get(dict);
    if (known !== undefined) return known;
    const font = loadFont(dict, file, budget);
    fonts.set(dict, font);
    return font;
  };

  const run = (
    bytes: Uint8Array,
    own: PdfDict,
    { start, depth }: { readonly start: State; readonly depth: number },
  ): void => {
    const lexer = createLexer(bytes);
    const saved: State[] = [];
    const marks: (Replacement | undefined)[] = [];
    let state = start;
    let textMatrix = IDENTITY;
    let lineMatrix = IDENTITY;
    let operands: PdfObject[] = [];

    const number = (index: number) => {
      const value = operands[index];
      return typeof value === "number" ? value : 0;
    };
    const moveLine = (x: number, y: number) => {
      lineMatrix = multiply([1, 0, 0, 1, x, y], lineMatrix);
      textMatrix = lineMatrix;
    };
    const advance = (by: number) => {
      textMatrix = multiply([1, 0, 0, 1, by, 0], textMatrix);
    };
    const place = () => apply(multiply(textMatrix, state.matrix), { x: 0, y: state.rise });
    const draw = (text: string, from: Point) => {
      const [, , c, d] = multiply(textMatrix, state.matrix);
      const piece = { start: from, end: place(), size: Math.abs(state.size) * Math.hypot(c, d) };
      const replacement = marks.find((mark) => mark !== undefined);
      if (replacement === undefined) layout.add({ ...piece, text });
      else if (replacement.drawn === undefined) replacement.drawn = piece;
      else replacement.drawn.end = piece.end;
    };
    const show = (object: PdfObject | undefined) => {
      if (!isKind(object, "string") || state.font === undefined) return;
      const from = place();
      let text = "";
      let width = 0;
      for (const glyph of state.font.glyphs(object.bytes.slice(0, MAX_PAGE_TEXT))) {
        if (glyph.text === undefined) unknown++;
        else text += glyph.text;
        width += glyph.width * state.size + state.characterSpace + (glyph.isSpace ? state.wordSpace : 0);
      }
      advance(width * state.stretch);
      draw(text, from);
    };
    const showAll = (items: PdfObject | undefined) => {
      if (!Array.isArray(items)) return;
      for (const item of items as PdfArray) {
        if (typeof item === "number") advance((-item / 1000) * state.size * state.stretch);
        else show(item);
      }
    };
    const endMark = () => {
      const mark = marks.pop();
      if (mark?.drawn !== undefined) layout.add({ ...mark.drawn, text: mark.text });
    };
    const external = (name: PdfObject | undefined) => {
      if (!isKind(name, "name")) return;
      const object = reader.get(reader.dict(own, "XObject") ?? EMPTY_DICT, name.name);
      if (!isKind(object, "stream")) return;
      if (reader.name(object.dict, "Subtype") === "Image") pictures++;
      if (reader.name(object.dict, "Subtype") !== "Form" || depth >= MAX_FORM_DEPTH) return;
      const matrix = multiply(
        toMatrix(reader.array(object.dict, "Matrix").map((item) => reader.resolve(item))),
        state.matrix,
      );
      run(file.decode(object), reader.dict(object.dict, "Resources") ?? own, {
        start: { ...state, matrix },
        depth: depth + 1,
      });
    };

    const operate = (word: string): void => {
      switch (word) {
        case "q":
          if (saved.length < MAX_SAVED_STATES) saved.push(state);
          return;
        case "Q":
          state = saved.pop() ?? state;
          return;
        case "cm":
          state = { ...state, matrix: multiply(toMatrix(operands), state.matrix) };
          return;
        case "BT":
          textMatrix = lineMatrix = IDENTITY;
          return;
        case "Tf": {
          const [name] = operands;
          const dict = isKind(name, "name")
            ? reader.dict(reader.dict(own, "Font") ?? EMPTY_DICT, name.name)
            : undefined;
          state = { ...state, font: dict === undefined ? undefined : fontOf(dict), size: number(1) };
          return;
        }
        case "gs": {
          const [name] = operands;
          const dict = isKind(name, "name")
            ? reader.dict(reader.dict(own, "ExtGState") ?? EMPTY_DICT, name.name)
            : undefined;
          const [font, size] = dict === undefined ? [] : reader.array(dict, "Font");
          const found = reader.resolve(font);
          if (isKind(found, "dict")) {
            state = { ...state, font: fontOf(found), size: typeof size === "number" ? size : 1 };
          }
          return;
        }
        case "Tc":
          state = { ...state, characterSpace: number(0) };
          return;
        case "Tw":
          state = { ...state, wordSpace: number(0) };
          return;
        case "Tz":
          state = { ...state, stretch: number(0) / 100 };
          return;
        case "TL":
          state = { ...state, leading: number(0) };
          return;
        case "Ts":
          state = { ...state, rise: number(0) };
          return;
        case "Td":
          moveLine(number(0), number(1));
          return;
        case "TD":
          state = { ...state, leading: -number(1) };
          moveLine(number(0), number(1));
          return;
        case "Tm":
          textMatrix = lineMatrix = toMatrix(operands);
          return;
        case "T*":
          moveLine(0, -state.leading);
          return;
        case "Tj":
          show(operands[0]);
          return;
        case "TJ":
          showAll(operands[0]);
          return;
        case "'":
          moveLine(0, -state.leading);
          show(operands[0]);
          return;
        case '"':
          state = { ...state, wordSpace: number(0), characterSpace: number(1) };
          moveLine(0, -state.leading);
          show(operands[2]);
          return;
        case "BMC":
        case "BDC":
          if (marks.length < MAX_SAVED_STATES) marks.push(replacementOf(operands[1], own));
          return;
        case "EMC":
          endMark();
          return;
        case "Do":
          external(operands[0]);
          return;
        case "ID":
          skipPicture(lexer);
          return;
      }
    };

    // What an operator works on is gone after it, so its parts are counted one operator at a time
    let kept = 0;
    const keep = (parts: number) => {
      kept += parts;
      if (kept > MAX_OPERAND_PARTS) {
        throw new DocumentError("document_invalid", "an operator of it has too many operands");
      }
    };
    const options = { budget: { step: budget.step, keep }, references: false };
    while (layout.length < MAX_PAGE_TEXT) {
      const object = parsePdfObject(lexer, options);
      if (!isKeyword(object)) {
        if (operands.length < MAX_OPERANDS) operands.push(object);
        continue;
      }
      if (object.word === "") break;
      budget.step(8);
      operate(object.word);
      operands = [];
      kept = 0;
    }
    while (marks.length > 0) endMark();
  };

  const replacementOf = (properties: PdfObject | undefined, own: PdfDict): Replacement | undefined => {
    const dict = isKind(properties, "name")
      ? reader.dict(reader.dict(own, "Properties") ?? EMPTY_DICT, properties.name)
      : isKind(properties, "dict")
      ? properties
      : undefined;
    const text = dict === undefined ? undefined : reader.string(dict, "ActualText");
    return text === undefined ? undefined : { text: textString(text), drawn: undefined };
  };

  run(contents, resources, { start: START, depth: 0 });
  return { text: layout.text(), unknown, pictures };
}

/** A picture among the operators ends with `EI` between white space. */
function skipPicture(lexer: PdfLexer): void {
  const { bytes } = lexer;
  for (let at = lexer.position + 1; at < bytes.length; at++) {
    at = bytes.indexOf(0x45, at);
    if (at === -1) break;
    const end = bytes[at + 2];
    if (bytes[at + 1] !== 0x49 || !isSpace(bytes[at - 1]) || (end !== undefined && !isSpace(end))) continue;
    lexer.position = at + 2;
    return;
  }
  lexer.position = bytes.length;
}
