import { dingbatText, FONT_LISTS, glyphText } from "./glyph_text.ts";
import { isKind, type PdfDict, type PdfObject, type PdfReader } from "./pdf_object.ts";

/** Returns the text of a character code; undefined when the font does not say it. */
export type CodeText = (code: number) => string | undefined;

/** Maps the codes of a font with one byte a character to text. Source: ISO 32000-2, section 9.6.5 */
export function simpleEncoding(font: PdfDict, { reader, ownText }: {
  readonly reader: PdfReader;
  /** The meaning of a code by the embedded font itself; read when the first code needs it */
  readonly ownText: CodeText;
}): CodeText {
  const encoding = reader.get(font, "Encoding");
  const named = isKind(encoding, "name") ? baseEncoding(encoding.name) : undefined;
  if (named !== undefined) return (code) => named(code) ?? ownText(code);
  const implied = impliedEncoding(font, reader);
  const own: CodeText = (code) => ownText(code) ?? implied(code);
  if (!isKind(encoding, "dict")) return own;
  const base = baseEncoding(reader.name(encoding, "BaseEncoding"));
  const differences = readDifferences(reader.array(encoding, "Differences"), reader);
  const isType3 = reader.name(font, "Subtype") === "Type3";
  return (code) => {
    const name = differences.get(code);
    if (name === undefined) return base?.(code) ?? own(code);
    if (name === ".notdef") return undefined;
    return glyphText(name) ?? ownText(code) ?? (isType3 ? numberedText(name, code) : undefined);
  };
}

/** Stands in a text for a character whose font does not say what it means. */
export const UNKNOWN_CHARACTER = "\ufffd";

/** A name that only repeats the code, as programs give to glyphs that are pictures: the codes of these are mostly those of Latin 1. */
function numberedText(name: string, code: number): string | undefined {
  const number = /^[A-Za-z]{1,2}(\d{1,3})$/.exec(name)?.[1];
  if (Number(number) !== code) return undefined;
  const isShown = (code > 32 && code < 127) || (code > 160 && code < 256);
  // Left out, the character would make two parts of a word another word
  return isShown ? String.fromCharCode(code) : UNKNOWN_CHARACTER;
}

/** Numbers and names that are looked at; each code needs one of each at most */
const MAX_DIFFERENCES = 1024;

/** Codes of their own, such as `39 /quotesingle 96 /grave`. */
function readDifferences(items: readonly PdfObject[], reader: PdfReader): Map<number, string> {
  const found = new Map<number, string>();
  let code = 0;
  for (const item of items.slice(0, MAX_DIFFERENCES)) {
    const value = reader.resolve(item);
    if (typeof value === "number") code = value;
    else if (isKind(value, "name") && code >= 0 && code < 256) found.set(code++, value.name);
  }
  return found;
}

/** Returns an encoding by the name that a file may give; undefined for another name. */
function baseEncoding(name: string | undefined): CodeText | undefined {
  switch (name) {
    case "WinAnsiEncoding":
      return winAnsiText;
    case "MacRomanEncoding":
      return macRomanText;
    case "MacExpertEncoding":
      return byNames(FONT_LISTS.MacExpertEncoding);
    case "StandardEncoding":
      return byNames(FONT_LISTS.StandardEncoding);
    default:
      return undefined;
  }
}

/** Returns the encoding of a font that names none. */
function impliedEncoding(font: PdfDict, reader: PdfReader): CodeText {
  const fontName = (reader.name(font, "BaseFont") ?? "").replace(/^[A-Z]{6}\+/, "");
  if (/^Symbol\b/.test(fontName)) return byNames(FONT_LISTS.Symbol);
  if (/^ZapfDingbats\b/.test(fontName)) return (code) => dingbatText(FONT_LISTS.ZapfDingbats[code] ?? "");
  return reader.name(font, "Subtype") === "TrueType" ? winAnsiText : byNames(FONT_LISTS.StandardEncoding);
}

function byNames(names: readonly string[]): CodeText {
  return (code) => glyphText(names[code] ?? "");
}

/** Mac OS 8.5 put the euro in the place of the currency sign. */
function macRomanText(code: number): string | undefined {
  return code === 0xdb ? "€" : glyphText(FONT_LISTS.MacRomanEncoding[code] ?? "");
}

/** Codes without a meaning are shown as bullets. */
function winAnsiText(code: number): string | undefined {
  return code < 32 ? undefined : glyphText(FONT_LISTS.WinAnsiEncoding[code] || "bullet");
}
