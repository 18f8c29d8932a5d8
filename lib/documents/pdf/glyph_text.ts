import { inflateRawSync } from "node:zlib";
import { FONT_DATA } from "./font_data.ts";

/** Lists of names in the data of fonts. An encoding has a name for each code, or "". */
export interface FontLists {
  readonly StandardEncoding: readonly string[];
  readonly MacRomanEncoding: readonly string[];
  readonly WinAnsiEncoding: readonly string[];
  readonly MacExpertEncoding: readonly string[];
  readonly Symbol: readonly string[];
  readonly ZapfDingbats: readonly string[];
  /** Strings that every CFF font knows by number */
  readonly cffStrings: readonly string[];
  readonly expertCharset: readonly string[];
  readonly expertSubsetCharset: readonly string[];
  /** Names of the glyphs that every TrueType font knows by number */
  readonly macGlyphs: readonly string[];
}

// The data is written by scripts/font_data.ts in exactly this form
const DATA = JSON.parse(inflateRawSync(Buffer.from(FONT_DATA, "base64")).toString()) as
  & { readonly [name in keyof FontLists]: string }
  & { readonly names: string; readonly dingbats: string };

/** Encodings and lists of names that fonts refer to. */
export const FONT_LISTS: FontLists = {
  StandardEncoding: DATA.StandardEncoding.split(" "),
  MacRomanEncoding: DATA.MacRomanEncoding.split(" "),
  WinAnsiEncoding: DATA.WinAnsiEncoding.split(" "),
  MacExpertEncoding: DATA.MacExpertEncoding.split(" "),
  Symbol: DATA.Symbol.split(" "),
  ZapfDingbats: DATA.ZapfDingbats.split(" "),
  cffStrings: DATA.cffStrings.split(" "),
  expertCharset: DATA.expertCharset.split(" "),
  expertSubsetCharset: DATA.expertSubsetCharset.split(" "),
  macGlyphs: DATA.macGlyphs.split(" "),
};

/** Names of accents, as they end the name of a letter, and the marks that combine with it. */
const ACCENTS: Readonly<Record<string, string>> = {
  acute: "\u0301",
  grave: "\u0300",
  circumflex: "\u0302",
  dieresis: "\u0308",
  tilde: "\u0303",
  caron: "\u030c",
  cedilla: "\u0327",
  commaaccent: "\u0327",
  ogonek: "\u0328",
  ring: "\u030a",
  macron: "\u0304",
  breve: "\u0306",
  dotaccent: "\u0307",
  hungarumlaut: "\u030b",
};

const ACCENTED = new RegExp(`^(dotless|)([A-Za-z])(${Object.keys(ACCENTS).join("|")})$`);
/** Forms of a figure or letter, as fonts with old figures and small capitals name them */
const FORM = /^(.+?)(?:oldstyle|small|fitted|superior|inferior|taboldstyle|prop|lining)$/;

/** Names that fonts of TeX use and the list has not, or has as signs where the fonts mean letters; name and text in turn. */
const OWN =
  "Delta Δ Omega Ω mu μ mu1 µ dotlessj ȷ Dcroat Đ visiblespace ␣ nbspace \u00a0 sfthyphen \u00ad ff ff fi fi fl fl ffi ffi ffl ffl " +
  "Germandbls SS suppress / arrowhookleft ↩ arrowhookright ↪ mapsto ↦ perthousandzero ‱ minusplus ∓ angbracketleft ⟨ " +
  "angbracketright ⟩ negationslash \u0338 epsilon1 ϵ rho1 ϱ pi1 ϖ lscript ℓ star ⋆ latticetop ⊤ square □ vector \u20d7 slurabove ⁀ " +
  "slurbelow ‿ turnstileleft ⊢ turnstileright ⊣ floorleft ⌊ floorright ⌋ ceilingleft ⌈ ceilingright ⌉ unionmulti ⊎ interrobang ‽ " +
  "Ng Ŋ ng ŋ Tbar Ŧ tbar ŧ compwordmark \u200c cwm \u200c zeroslash 0";

const TEXTS: ReadonlyMap<string, string> = new Map([...pairs(DATA.names.split("\n")), ...pairs(OWN.split(" "))]);
const DINGBATS: ReadonlyMap<string, string> = new Map(pairs(DATA.dingbats.split("\n")));

/**
 * Returns the text of a glyph by its name; undefined for names that mean nothing outside of their font.
 * Source: Adobe Glyph List Specification, section 2
 */
export function glyphText(name: string): string | undefined {
  const [base = ""] = name.split(".", 1);
  if (base === "") return undefined;
  const parts = base.split("_", 10).map(partText);
  return parts.includes(undefined) ? undefined : parts.join("");
}

/** Returns the text of a glyph of ZapfDingbats by its name, such as `a19`. */
export function dingbatText(name: string): string | undefined {
  return DINGBATS.get(name) ?? glyphText(name);
}

function partText(name: string): string | undefined {
  const known = TEXTS.get(name);
  if (known !== undefined) return known;
  const [, dotless, letter = "", accent = ""] = ACCENTED.exec(name) ?? [];
  if (dotless !== undefined) return `${letter}${ACCENTS[accent] ?? ""}`.normalize("NFC");
  const codes = /^uni((?:[0-9A-F]{4}){1,8})$/.exec(name)?.[1] ?? /^u([0-9A-F]{4,6})$/.exec(name)?.[1];
  if (codes === undefined) return TEXTS.get(FORM.exec(name)?.[1] ?? "");
  const numbers = name.startsWith("uni") ? codes.match(/.{4}/g) ?? [] : [codes];
  return numbers.map((code) => fromCode(Number.parseInt(code, 16))).join("");
}

/** A character by its number; the replacement character for a number that is none. */
function fromCode(code: number): string {
  return code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? "\ufffd" : String.fromCodePoint(code);
}

function pairs(words: readonly string[]): (readonly [string, string])[] {
  return words.flatMap((name, i) => (i % 2 === 0 ? [[name, words[i + 1] ?? ""] as const] : []));
}
