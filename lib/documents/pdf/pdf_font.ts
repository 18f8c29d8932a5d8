import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { type CharacterMap, createCharacterMap, readCharacterMap, toCode } from "./character_map.ts";
import { type FontProgram, readFontProgram } from "./font_program.ts";
import type { PdfFile } from "./open_pdf.ts";
import { EMPTY_DICT, isKind, type PdfDict, type PdfObject, type PdfReader } from "./pdf_object.ts";
import { simpleEncoding } from "./simple_encoding.ts";

const MAX_WIDTHS = 70_000;
/** Encodings of predefined CMaps that a decoder is there for, by a part of their names */
const LEGACY: readonly (readonly [part: RegExp, label: string])[] = [
  [/^(GBK|GBKp|GBK2K|GB|GBpc|GBT|GBTpc)-/, "gb18030"],
  [/RKSJ/, "shift_jis"],
  [/^(B5pc|ETen|ETenms|HKscs|HKdla)-/, "big5"],
  [/^(KSC|KSCms|KSCpc)-/, "euc-kr"],
  [/^EUC-/, "euc-jp"],
];

/** Collections of characters that have a map to Unicode */
const ORDERINGS = ["GB1", "CNS1", "Japan1", "Korea1"];

/** A character of a string shown on a page. */
export interface Glyph {
  /** undefined when the font does not say what it means */
  readonly text: string | undefined;
  /** Way to the next character in sizes of the font: to the right, or up in a vertical font, where it is mostly below 0 */
  readonly width: number;
  /** True for the one-byte code of the space, which word spacing widens */
  readonly isSpace: boolean;
}

/** Decodes the strings that are drawn in one font. */
export interface PdfFont {
  /** True when the characters stand one below the other */
  readonly isVertical: boolean;
  /** Height of the letters in sizes of the font: about 1, save in a font whose glyphs have units of their own */
  readonly height: number;
  glyphs(bytes: string): readonly Glyph[];
}

/** Loads the font of a dictionary. Source: ISO 32000-2, sections 9.6, 9.7 and 9.10 */
export function loadFont(dict: PdfDict, file: PdfFile, budget: WorkBudget): PdfFont {
  const { reader } = file;
  const unicode = readMap(dict, "ToUnicode", { file, budget });
  return reader.name(dict, "Subtype") === "Type0"
    ? compositeFont(dict, { unicode, file, budget })
    : simpleFont(dict, { unicode, file, budget });
}

interface FontParts {
  readonly unicode: CharacterMap | undefined;
  readonly file: PdfFile;
  readonly budget: WorkBudget;
}

function simpleFont(dict: PdfDict, { unicode, file, budget }: FontParts): PdfFont {
  const { reader } = file;
  const program = lazyProgram(dict, { file, budget });
  const encoding = simpleEncoding(dict, { reader, ownText: (code) => program()?.textOfCode(code) });
  const first = reader.number(dict, "FirstChar") ?? 0;
  const widths = reader.array(dict, "Widths").slice(0, 256).map((width) => reader.resolve(width));
  const standard = widths.length === 0 ? standardWidths(reader.name(dict, "BaseFont") ?? "") : undefined;
  const missing = reader.number(reader.dict(dict, "FontDescriptor") ?? EMPTY_DICT, "MissingWidth") ?? 0;
  // The glyphs of a Type 3 font have a space of their own
  const [scale = 0.001] = reader.name(dict, "Subtype") === "Type3" ? reader.array(dict, "FontMatrix") : [0.001];
  const unit = typeof scale === "number" && scale > 0 ? scale : 0.001;
  const widthOf = (code: number) => {
    const width = standard === undefined ? widths[code - first] : standard(code);
    return (typeof width === "number" ? width : missing) * unit;
  };
  budget.keep(256);
  const known: Glyph[] = [];
  const glyphOf = (code: number): Glyph => ({
    text: textOf(unicode?.texts.get(code)) ?? encoding(code),
    width: widthOf(code),
    isSpace: code === 32,
  });
  return {
    isVertical: false,
    height: reader.name(dict, "Subtype") === "Type3" ? pictureHeight(dict, reader) : 1,
    glyphs(bytes) {
      budget.step(bytes.length);
      // Every character of a string is a byte
      return Array.from(bytes, (character) => {
        const code = character.charCodeAt(0);
        return known[code] ??= glyphOf(code);
      });
    },
  };
}

/** Returns the height of a Type 3 font by the box around its glyphs, where these are far from as high as the font is large. */
function pictureHeight(font: PdfDict, reader: PdfReader): number {
  const numbers = (key: string) =>
    reader.array(font, key).map((item) => reader.resolve(item)).map((item) => typeof item === "number" ? item : 0);
  const [, bottom = 0, , top = 0] = numbers("FontBBox");
  const [, , , unit = 0] = numbers("FontMatrix");
  const height = Math.abs((top - bottom) * unit);
  return height > 0 && Number.isFinite(height) && (height < 0.3 || height > 3) ? height : 1;
}

function compositeFont(dict: PdfDict, { unicode, file, budget }: FontParts): PdfFont {
  const { reader } = file;
  const [descendant] = reader.array(dict, "DescendantFonts");
  const resolved = reader.resolve(descendant);
  const font = isKind(resolved, "dict") ? resolved : EMPTY_DICT;
  const name = reader.name(dict, "Encoding") ?? "";
  const isVertical = /(^|-)V$/.test(name) ||
    reader.number(reader.dict(dict, "Encoding") ?? EMPTY_DICT, "WMode") === 1;
  const widths = readWidths(font, { isVertical, reader, budget });
  const missing = missingWidth(font, { isVertical, reader });
  const encoding = characterMapOf(dict, { file, budget });
  const meaning = meaningOf(font, { name, file, budget });
  return {
    isVertical,
    height: 1,
    glyphs(bytes) {
      budget.step(bytes.length * 4);
      const found: Glyph[] = [];
      for (let at = 0; at < bytes.length;) {
        const length = encoding?.codeBytes(bytes, at) ?? 2;
        const written = bytes.slice(at, at + length);
        const code = toCode(written);
        at += length;
        const character = encoding === undefined ? code : encoding.glyphs.get(code) ?? code;
        const text = textOf(unicode?.texts.get(code)) ?? meaning(written, character);
        found.push({ text, width: (widths.get(character) ?? missing) / 1000, isSpace: length === 1 && code === 32 });
      }
      return found;
    },
  };
}

/** Returns the CMap of a composite font: the embedded one with the one it builds on, or a predefined one. */
function characterMapOf(dict: PdfDict, { file, budget }: Pick<FontParts, "file" | "budget">): CharacterMap | undefined {
  const { reader } = file;
  const own = readMap(dict, "Encoding", { file, budget });
  const name = own === undefined
    ? reader.name(dict, "Encoding")
    : reader.name(reader.dict(dict, "Encoding") ?? EMPTY_DICT, "UseCMap");
  const base = name === undefined ? undefined : file.predefinedMap(name);
  if (own === undefined || base === undefined) return own ?? base;
  // Each font of the document keeps a copy
  budget.keep(base.glyphs.size);
  return createCharacterMap({
    texts: own.texts,
    glyphs: new Map([...base.glyphs, ...own.glyphs]),
    spaces: [...own.spaces, ...base.spaces],
  });
}

/**
 * Returns the meaning of a code that no map to Unicode has: by the predefined CMap, by the collection of characters, or by the font.
 * @returns a function of the code as it is written and of its character in the collection
 */
function meaningOf(
  font: PdfDict,
  { name, file, budget }: Pick<FontParts, "file" | "budget"> & { readonly name: string },
): (written: string, character: number) => string | undefined {
  const { reader } = file;
  if (/-(UCS2|UTF16)-/.test(name)) {
    const decoder = new TextDecoder("utf-16be");
    return (written) => decoder.decode(Buffer.from(written, "latin1"));
  }
  const system = reader.dict(font, "CIDSystemInfo") ?? EMPTY_DICT;
  const ordering = reader.string(system, "Ordering") ?? "";
  const collection = ORDERINGS.includes(ordering) ? `Adobe-${ordering}-UCS2` : "";
  const label = LEGACY.find(([part]) => part.test(name))?.[1];
  const decoder = label === undefined ? undefined : new TextDecoder(label);
  const program = lazyProgram(font, { file, budget });
  const toGlyph = glyphNumbers(font, file);
  return (written, character) => {
    return textOf(file.predefinedMap(collection)?.texts.get(character)) ??
      decoder?.decode(Buffer.from(written, "latin1")) ??
      program()?.textOfGlyph(toGlyph(character));
  };
}

/** Returns the map from characters of a composite font to the glyphs of its program. */
function glyphNumbers(font: PdfDict, { reader, decode }: PdfFile): (character: number) => number {
  const stream = reader.get(font, "CIDToGIDMap");
  const map = isKind(stream, "stream") ? orNothing(() => decode(stream)) : undefined;
  if (map === undefined) return (character) => character;
  return (character) => (map[character * 2] ?? 0) * 256 + (map[character * 2 + 1] ?? 0);
}

interface WidthOptions {
  readonly isVertical: boolean;
  readonly reader: PdfReader;
}

/** Returns the way to the next character for characters that are not listed, in thousandths of the size. */
function missingWidth(font: PdfDict, { isVertical, reader }: WidthOptions): number {
  if (!isVertical) return reader.number(font, "DW") ?? 1000;
  const down = reader.resolve(reader.array(font, "DW2")[1]);
  return typeof down === "number" ? down : -1000;
}

/** `[first [w1 w2 ...] first last w ...]`. In a vertical font each way down is followed by the two numbers of an origin. */
function readWidths(
  font: PdfDict,
  { isVertical, reader, budget }: WidthOptions & { readonly budget: WorkBudget },
): Map<number, number> {
  const widths = new Map<number, number>();
  const items = reader.array(font, isVertical ? "W2" : "W").map((item) => reader.resolve(item));
  const each = isVertical ? 3 : 1;
  const put = (glyph: number, width: PdfObject | undefined) => {
    budget.step();
    if (typeof width !== "number" || widths.size >= MAX_WIDTHS) return;
    if (!widths.has(glyph)) budget.keep(1);
    widths.set(glyph, width);
  };
  for (let i = 0; i + 1 < items.length && widths.size < MAX_WIDTHS;) {
    budget.step(4);
    const [first, second, third] = [items[i], items[i + 1], items[i + 2]];
    if (typeof first !== "number") {
      i++;
    } else if (Array.isArray(second)) {
      second.forEach((width, at) => at % each === 0 && put(first + at / each, width));
      i += 2;
    } else {
      const last = typeof second === "number" ? Math.min(second, first + 65_535) : -1;
      for (let glyph = first; glyph <= last && widths.size < MAX_WIDTHS; glyph++) put(glyph, third);
      i += 2 + each;
    }
  }
  return widths;
}

function readMap(
  dict: PdfDict,
  key: string,
  { file, budget }: { readonly file: PdfFile; readonly budget: WorkBudget },
): CharacterMap | undefined {
  const stream = file.reader.get(dict, key);
  return isKind(stream, "stream") ? orNothing(() => readCharacterMap(file.decode(stream), budget)) : undefined;
}

/** Returns a function that reads the embedded font on its first call; undefined where there is none that can be read. */
function lazyProgram(
  font: PdfDict,
  { file: { reader, decode }, budget }: { readonly file: PdfFile; readonly budget: WorkBudget },
): () => FontProgram | undefined {
  let program: { readonly value: FontProgram | undefined } | undefined;
  return () => {
    if (program !== undefined) return program.value;
    program = { value: undefined };
    const descriptor = reader.dict(font, "FontDescriptor") ?? EMPTY_DICT;
    const stream = ["FontFile", "FontFile2", "FontFile3"].map((key) => reader.get(descriptor, key)).find((object) =>
      isKind(object, "stream")
    );
    if (isKind(stream, "stream")) program = { value: orNothing(() => readFontProgram(decode(stream), budget)) };
    return program.value;
  };
}

/** A damaged part of a font leaves what the rest of it says. */
function orNothing<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    // A table of a font that leads out of it
    if (error instanceof RangeError) return undefined;
    if (error instanceof DocumentError && ["document_invalid", "document_unsupported"].includes(error.code)) {
      return undefined;
    }
    throw error;
  }
}

/** Some writers map what they do not know to NUL. What is mapped to nothing has no text. */
function textOf(text: string | undefined): string | undefined {
  return text?.startsWith("\0") ? undefined : text;
}

/** Widths of ! to ~ in thousandths of the size, for the fonts that every reader has. Source: Adobe Core 14 AFM */
const HELVETICA =
  "278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 " +
  "584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278 " +
  "278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 " +
  "334 260 334 584";
const TIMES =
  "333 408 500 500 833 778 180 333 333 500 564 250 333 250 278 500 500 500 500 500 500 500 500 500 500 278 278 564 " +
  "564 564 444 921 722 667 667 722 611 556 722 722 333 389 722 611 889 722 722 556 722 667 556 611 722 722 944 722 722 611 333 " +
  "278 333 469 500 333 444 500 444 500 444 333 500 500 278 278 500 278 778 500 500 500 500 333 389 278 500 500 722 500 500 444 " +
  "480 200 480 541";

/** The width of a code in a font that says none; about right for any, exact for the regular standard ones. */
export function standardWidths(fontName: string): (code: number) => number {
  if (/courier|mono/i.test(fontName)) return () => 600;
  const serif = /times|roman|serif/i.test(fontName) && !/sans/i.test(fontName);
  const widths = (serif ? TIMES : HELVETICA).split(" ").map(Number);
  const space = serif ? 250 : 278;
  return (code) => (code === 32 ? space : widths[code - 33] ?? 556);
}
