import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { createMarkedText, type MarkedText, TextLayout } from "./text_layout.ts";
import { createTextPen, IDENTITY, START_STATE, type TextPen, type TextState, toMatrix } from "./text_pen.ts";
import type { PdfFile } from "./open_pdf.ts";
import { isKeyword, isSpace, parsePdfObject, PdfLexer } from "./pdf_parser.ts";
import { loadFont, type PdfFont } from "./pdf_font.ts";
import { EMPTY_DICT, isKind, type PdfDict, type PdfObject, textString } from "./pdf_object.ts";

const MAX_OPERANDS = 200;
const MAX_OPERAND_PARTS = 500_000;
const MAX_FORM_DEPTH = 10;
/** UTF-16 units of one page */
const MAX_PAGE_TEXT = 1_000_000;

/** The text that a page shows. */
export interface PageText {
  readonly text: string;
  /** Characters whose fonts do not say what they mean */
  readonly unknown: number;
  readonly pictures: number;
}

/** Options of reading one page's text. */
export interface PageTextOptions {
  readonly file: PdfFile;
  readonly budget: WorkBudget;
  /** Fonts of the whole document, by their dictionaries */
  readonly fonts: Map<PdfDict, PdfFont>;
}

/**
 * Returns the text that the operators of a page draw.
 * @throws {DocumentError} when the budget is used up, or `document_invalid`
 * Source: ISO 32000-2, sections 7.8, 8.10 and 9.4
 */
export function pageText(bytes: Uint8Array, resources: PdfDict, options: PageTextOptions): PageText {
  const page = new PageReader(options);
  page.run(bytes, { resources, start: START_STATE, depth: 0 });
  return page.result();
}

/** Contents that are run, and what their operators work on. */
interface Contents {
  readonly resources: PdfDict;
  readonly pen: TextPen;
  readonly marked: MarkedText;
  readonly lexer: PdfLexer;
  /** 0 for the contents of the page, 1 for those of a form in it */
  readonly depth: number;
}

interface RunOptions {
  readonly resources: PdfDict;
  readonly start: TextState;
  readonly depth: number;
}

/** Runs the contents of one page and of the forms in it. */
class PageReader {
  readonly #file: PdfFile;
  readonly #budget: WorkBudget;
  readonly #fonts: Map<PdfDict, PdfFont>;
  readonly #layout = new TextLayout();
  #unknown = 0;
  #pictures = 0;

  constructor({ file, budget, fonts }: PageTextOptions) {
    this.#file = file;
    this.#budget = budget;
    this.#fonts = fonts;
  }

  run(bytes: Uint8Array, { resources, start, depth }: RunOptions): void {
    const lexer = new PdfLexer(bytes);
    const marked = createMarkedText(this.#layout);
    const pen = createTextPen(start, (drawn) => {
      this.#budget.step(16);
      this.#unknown += drawn.unknown;
      marked.add(drawn);
    });
    let operands: PdfObject[] = [];
    // Operands are gone after their operator, so their parts are counted one operator at a time
    let kept = 0;
    const keep = (parts: number) => {
      kept += parts;
      if (kept > MAX_OPERAND_PARTS) {
        throw new DocumentError("document_invalid", "an operator of it has too many operands");
      }
    };
    const options = { budget: { step: this.#budget.step, keep }, references: false };
    while (this.#layout.length < MAX_PAGE_TEXT) {
      const object = parsePdfObject(lexer, options);
      if (!isKeyword(object)) {
        if (operands.length < MAX_OPERANDS) operands.push(object);
        continue;
      }
      if (object.word === "") break;
      this.#budget.step(8);
      this.#operate(object.word, operands, { resources, pen, marked, lexer, depth });
      operands = [];
      kept = 0;
    }
    marked.close();
  }

  result(): PageText {
    return { text: this.#layout.text(), unknown: this.#unknown, pictures: this.#pictures };
  }

  /** Runs one operator. The ones that need the document are here, the others only move the pen. */
  #operate(word: string, operands: readonly PdfObject[], contents: Contents): void {
    const { pen, marked, lexer } = contents;
    const [first, second] = operands;
    switch (word) {
      case "Tf":
        return pen.set({ font: this.#fontOf(this.#named("Font", first, contents)), size: toNumber(second) });
      case "gs":
        return this.#setGraphicsState(this.#named("ExtGState", first, contents), pen);
      case "BMC":
      case "BDC":
        return marked.begin(this.#replacementOf(second, contents));
      case "EMC":
        return marked.end();
      case "Do":
        return this.#runExternal(this.#named("XObject", first, contents), contents);
      case "ID":
        return skipPicture(lexer);
      default:
        return movePen(pen, word, operands);
    }
  }

  /** Returns a resource of a kind by its name. */
  #named(kind: string, name: PdfObject | undefined, { resources }: Contents): PdfObject {
    const { reader } = this.#file;
    return isKind(name, "name") ? reader.get(reader.dict(resources, kind) ?? EMPTY_DICT, name.name) : null;
  }

  #fontOf(object: PdfObject): PdfFont | undefined {
    if (!isKind(object, "dict")) return undefined;
    const font = this.#fonts.get(object) ?? loadFont(object, this.#file, this.#budget);
    this.#fonts.set(object, font);
    return font;
  }

  #setGraphicsState(settings: PdfObject, pen: TextPen): void {
    const { reader } = this.#file;
    const [font, size] = isKind(settings, "dict") ? reader.array(settings, "Font") : [];
    if (font !== undefined) pen.set({ font: this.#fontOf(reader.resolve(font)), size: toNumber(size) });
  }

  /** Counts a picture, and runs the contents of a form. */
  #runExternal(object: PdfObject, { resources, pen, depth }: Contents): void {
    if (!isKind(object, "stream")) return;
    const { reader } = this.#file;
    const kind = reader.name(object.dict, "Subtype");
    if (kind === "Image") this.#pictures++;
    if (kind !== "Form" || depth >= MAX_FORM_DEPTH) return;
    pen.save();
    pen.transform(toMatrix(reader.array(object.dict, "Matrix").map((item) => reader.resolve(item))));
    const own = reader.dict(object.dict, "Resources") ?? resources;
    this.run(this.#file.decode(object), { resources: own, start: pen.state, depth: depth + 1 });
    pen.restore();
  }

  /** Returns the text that a mark's properties give in place of the marked glyphs, such as a divided word in one piece. */
  #replacementOf(properties: PdfObject | undefined, contents: Contents): string | undefined {
    const dict = isKind(properties, "dict") ? properties : this.#named("Properties", properties, contents);
    const text = isKind(dict, "dict") ? this.#file.reader.string(dict, "ActualText") : undefined;
    if (text === undefined) return undefined;
    this.#budget.step(text.length);
    return textString(text);
  }
}

/** Runs an operator that sets or moves the pen, or draws with it. Other operators do nothing to text. */
function movePen(pen: TextPen, word: string, operands: readonly PdfObject[]): void {
  const [first, second, third] = operands;
  switch (word) {
    case "q":
      return pen.save();
    case "Q":
      return pen.restore();
    case "cm":
      return pen.transform(toMatrix(operands));
    case "BT":
      return pen.setTextMatrix(IDENTITY);
    case "Tc":
      return pen.set({ characterSpace: toNumber(first) });
    case "Tw":
      return pen.set({ wordSpace: toNumber(first) });
    case "Tz":
      return pen.set({ stretch: toNumber(first) / 100 });
    case "TL":
      return pen.set({ leading: toNumber(first) });
    case "Ts":
      return pen.set({ rise: toNumber(first) });
    case "Td":
      return pen.moveLine(toNumber(first), toNumber(second));
    case "TD":
      pen.set({ leading: -toNumber(second) });
      return pen.moveLine(toNumber(first), toNumber(second));
    case "Tm":
      return pen.setTextMatrix(toMatrix(operands));
    case "T*":
      return pen.nextLine();
    case "Tj":
      return show(pen, first);
    case "TJ":
      return showAll(pen, first);
    case "'":
      pen.nextLine();
      return show(pen, first);
    case '"':
      pen.set({ wordSpace: toNumber(first), characterSpace: toNumber(second) });
      pen.nextLine();
      return show(pen, third);
  }
}

function show(pen: TextPen, object: PdfObject | undefined): void {
  if (isKind(object, "string")) pen.show(object.bytes);
}

/** Strings, and between them numbers that move them closer. */
function showAll(pen: TextPen, items: PdfObject | undefined): void {
  if (!Array.isArray(items)) return;
  pen.showAll(
    // Narrowing leaves out lists that are readonly
    (items as readonly PdfObject[]).flatMap<string | number>((item) =>
      typeof item === "number" ? [item] : isKind(item, "string") ? [item.bytes] : []
    ),
  );
}

function toNumber(object: PdfObject | undefined): number {
  return typeof object === "number" ? object : 0;
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
