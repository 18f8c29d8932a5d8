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

const GREEK =
  "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma1 sigma tau " +
  "upsilon phi chi psi omega";

/** Name and text in turn. Source: Adobe Glyph List 2.0, what European and mathematical texts use of it */
const WORDS =
  "exclam ! quotedbl \" numbersign # dollar $ percent % ampersand & quotesingle ' parenleft ( parenright ) " +
  "asterisk * plus + comma , hyphen - minus − period . slash / zero 0 one 1 two 2 three 3 four 4 five 5 six 6 seven 7 eight 8 " +
  "nine 9 colon : semicolon ; less < equal = greater > question ? at @ bracketleft [ backslash \\ bracketright ] asciicircum ^ " +
  "underscore _ grave ` braceleft { bar | braceright } asciitilde ~ exclamdown ¡ cent ¢ sterling £ currency ¤ yen ¥ brokenbar ¦ " +
  "section § dieresis ¨ copyright © ordfeminine ª guillemotleft « logicalnot ¬ registered ® macron ¯ degree ° plusminus ± " +
  "twosuperior ² threesuperior ³ onesuperior ¹ acute ´ paragraph ¶ periodcentered · cedilla ¸ ordmasculine º guillemotright » " +
  "onequarter ¼ onehalf ½ threequarters ¾ questiondown ¿ AE Æ ae æ Eth Ð eth ð multiply × Oslash Ø oslash ø Thorn Þ thorn þ " +
  "germandbls ß divide ÷ Lslash Ł lslash ł OE Œ oe œ dotlessi ı dotlessj ȷ Dcroat Đ dcroat đ Hbar Ħ hbar ħ ff ff fi fi fl fl " +
  "ffi ffi ffl ffl quoteleft ‘ quoteright ’ quotesinglbase ‚ quotedblleft “ quotedblright ” quotedblbase „ guilsinglleft ‹ " +
  "guilsinglright › dagger † daggerdbl ‡ bullet • ellipsis … perthousand ‰ endash – emdash — fraction ⁄ Euro € trademark ™ " +
  "florin ƒ circumflex ˆ tilde ˜ caron ˇ breve ˘ dotaccent ˙ ring ˚ ogonek ˛ hungarumlaut ˝ arrowleft ← arrowup ↑ arrowright → " +
  "arrowdown ↓ arrowboth ↔ arrowdblright ⇒ arrowdblleft ⇐ arrowdblboth ⇔ universal ∀ existential ∃ element ∈ notelement ∉ " +
  "product ∏ summation ∑ radical √ infinity ∞ proportional ∝ intersection ∩ union ∪ integral ∫ similar ∼ approxequal ≈ " +
  "notequal ≠ equivalence ≡ lessequal ≤ greaterequal ≥ propersubset ⊂ propersuperset ⊃ reflexsubset ⊆ reflexsuperset ⊇ " +
  "circleplus ⊕ circlemultiply ⊗ logicaland ∧ logicalor ∨ partialdiff ∂ gradient ∇ emptyset ∅ angle ∠ perpendicular ⊥ " +
  "therefore ∴ dotmath ⋅ asteriskmath ∗ lozenge ◊ filledbox ■ H22073 □ checkmark ✓ nbspace \u00a0 sfthyphen \u00ad " +
  "visiblespace \u2423 minute ′ second ″ estimated ℮ numero № afii61352 № Omega1 Ω mu1 µ";

const TEXTS: ReadonlyMap<string, string> = new Map([["space", " "], ...pairs(), ...greek()]);

/**
 * The text of a glyph by its name; undefined for names that mean nothing outside of their font.
 * Source: Adobe Glyph List Specification, section 2
 */
export function glyphText(name: string): string | undefined {
  const [base = ""] = name.split(".", 1);
  if (base === "") return undefined;
  const parts = base.split("_", 10).map(partText);
  return parts.includes(undefined) ? undefined : parts.join("");
}

function partText(name: string): string | undefined {
  if (/^[A-Za-z]$/.test(name)) return name;
  const known = TEXTS.get(name);
  if (known !== undefined) return known;
  const [, dotless, letter = "", accent = ""] = ACCENTED.exec(name) ?? [];
  if (dotless !== undefined) return `${letter}${ACCENTS[accent] ?? ""}`.normalize("NFC");
  const cyrillic = /^afii100(\d\d)$/.exec(name)?.[1];
  if (cyrillic !== undefined) return cyrillicText(Number(cyrillic));
  const codes = /^uni((?:[0-9A-F]{4}){1,8})$/.exec(name)?.[1] ?? /^u([0-9A-F]{4,6})$/.exec(name)?.[1];
  if (codes === undefined) return undefined;
  const numbers = name.startsWith("uni") ? codes.match(/.{4}/g) ?? [] : [codes];
  return numbers.map((code) => fromCode(Number.parseInt(code, 16))).join("");
}

/** A character by its number; the replacement character for a number that is none. */
function fromCode(code: number): string {
  return code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? "\ufffd" : String.fromCodePoint(code);
}

/** afii10017 to afii10049 are the capitals, afii10065 to afii10097 the small letters, Ё standing after Е. */
function cyrillicText(number: number): string | undefined {
  const small = number >= 65;
  const at = number - (small ? 65 : 17);
  if (at < 0 || at > 32) return undefined;
  if (at === 6) return small ? "ё" : "Ё";
  return String.fromCharCode((small ? 0x430 : 0x410) + (at > 6 ? at - 1 : at));
}

function pairs(): (readonly [string, string])[] {
  const words = WORDS.split(" ");
  return words.flatMap((name, i) => (i % 2 === 0 ? [[name, words[i + 1] ?? ""] as const] : []));
}

function greek(): (readonly [string, string])[] {
  return GREEK.split(" ").flatMap((name, i) => {
    const capital = name.slice(0, 1).toUpperCase() + name.slice(1);
    return [[name, String.fromCharCode(0x3b1 + i)], [capital, String.fromCharCode(0x391 + i)]] as const;
  });
}
