import { glyphText } from "./glyph_text.ts";
import { isKind, type PdfDict, type PdfObject, type PdfReader } from "./pdf_object.ts";

/** StandardEncoding from 0xA1 on; a space where it has nothing. Source: ISO 32000-2, annex D.2 */
const STANDARD_UPPER =
  "¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ –†‡· ¶•‚„”»…‰ ¿ `´ˆ˜¯˘˙¨ ˚¸ ˝˛ˇ—                Æ ª    ŁØŒº     æ   ı  łøœß    ";
/** WinAnsiEncoding from 0x80 to 0x9f; not every Node decodes it */
const WINDOWS_UPPER = "€•‚ƒ„…†‡ˆ‰Š‹Œ•Ž••‘’“”•–—˜™š›œ•žŸ";
/** Letters of the Symbol font, A to Z and a to z */
const SYMBOL_CAPITALS = "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ";
const SYMBOL_SMALL = "αβχδεφγηιϕκλμνοπθρστυϖωξψζ";
/** Other signs of the Symbol font */
const SYMBOL_SIGNS: ReadonlyMap<number, string> = new Map([
  ...[[0xa3, "≤"], [0xa5, "∞"], [0xac, "←"], [0xae, "→"], [0xb0, "°"], [0xb1, "±"], [0xb3, "≥"], [0xb4, "×"]] as const,
  ...[[0xb7, "•"], [0xb8, "÷"], [0xb9, "≠"], [0xba, "≡"], [0xbb, "≈"], [0xbc, "…"], [0xce, "∈"], [0xd6, "√"]] as const,
  ...[[0xd9, "∧"], [0xda, "∨"], [0xde, "⇒"], [0xe5, "∑"], [0xf2, "∫"]] as const,
]);

/** The text of a character code; undefined when the font does not say it. */
export type CodeText = (code: number) => string | undefined;

/** Sources of a font's encoding. */
export interface EncodingOptions {
  readonly reader: PdfReader;
  /** The readable beginning of the embedded Type 1 font, where there is one */
  readonly program: string | undefined;
}

/** Maps the codes of a font with one byte a character to text. Source: ISO 32000-2, section 9.6.5 */
export function simpleEncoding(font: PdfDict, { reader, program }: EncodingOptions): CodeText {
  const encoding = reader.get(font, "Encoding");
  const named = isKind(encoding, "name") ? encoding.name : undefined;
  const own = programEncoding(program);
  const withOwn = (base: CodeText): CodeText => (own === undefined ? base : (code) => own.get(code) ?? base(code));
  if (named !== undefined) return baseEncoding(named, { font, reader });
  if (!isKind(encoding, "dict")) return withOwn(baseEncoding(undefined, { font, reader }));
  const baseName = reader.name(encoding, "BaseEncoding");
  const standard = baseEncoding(baseName, { font, reader });
  const base = baseName === undefined ? withOwn(standard) : standard;
  const differences = readDifferences(reader.array(encoding, "Differences"), reader);
  return (code) => (differences.has(code) ? differences.get(code) : base(code));
}

/** The encoding that an embedded Type 1 font has in its readable beginning: `dup 15 /bullet put`. */
function programEncoding(program: string | undefined): Map<number, string | undefined> | undefined {
  if (program === undefined) return undefined;
  const found = new Map<number, string | undefined>();
  for (const [, code, name = ""] of program.matchAll(/dup\s{1,9}(\d{1,3})\s{0,9}\/([^\s/]{1,64})\s{1,9}put/g)) {
    found.set(Number(code), glyphText(name));
  }
  return found;
}

/** Codes of their own, as `39 /quotesingle 96 /grave`. */
function readDifferences(items: readonly PdfObject[], reader: PdfReader): Map<number, string | undefined> {
  const found = new Map<number, string | undefined>();
  let code = 0;
  for (const item of items) {
    const value = reader.resolve(item);
    if (typeof value === "number") code = value;
    else if (isKind(value, "name") && code >= 0 && code < 256) found.set(code++, glyphText(value.name));
  }
  return found;
}

function baseEncoding(
  name: string | undefined,
  { font, reader }: { readonly font: PdfDict; readonly reader: PdfReader },
): CodeText {
  if (name === "WinAnsiEncoding") return winAnsiText;
  if (name === "MacRomanEncoding") return macRoman();
  const fontName = reader.name(font, "BaseFont") ?? "";
  if (name === undefined && /^(?:[A-Z]{6}\+)?Symbol\b/.test(fontName)) return symbolText;
  return name === undefined && reader.name(font, "Subtype") === "TrueType" ? winAnsiText : standardText;
}

/** Codes without a meaning are shown as bullets. */
function winAnsiText(code: number): string | undefined {
  if (code < 32) return undefined;
  if (code >= 0x80 && code < 0xa0) return WINDOWS_UPPER[code - 0x80];
  return code === 127 ? "•" : String.fromCharCode(code);
}

function macRoman(): CodeText {
  const decoder = new TextDecoder("macintosh");
  return (code) => (code < 32 ? undefined : decoder.decode(Uint8Array.of(code)));
}

function standardText(code: number): string | undefined {
  if (code < 32 || code === 127) return undefined;
  if (code === 0x27) return "’";
  if (code === 0x60) return "‘";
  if (code < 127) return String.fromCharCode(code);
  const text = STANDARD_UPPER[code - 0xa1];
  return text === " " ? undefined : text;
}

function symbolText(code: number): string | undefined {
  if (code >= 65 && code <= 90) return SYMBOL_CAPITALS[code - 65];
  if (code >= 97 && code <= 122) return SYMBOL_SMALL[code - 97];
  return SYMBOL_SIGNS.get(code) ?? (code >= 32 && code < 127 ? String.fromCharCode(code) : undefined);
}
