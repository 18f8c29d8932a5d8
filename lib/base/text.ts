import { lazily } from "./lazily.ts";

/**
 * Characters that a person cannot see, or that change what the person sees: controls, formats (bidirectional marks, zero width),
 * lone surrogates, private and unassigned ones, separators of lines, blanks other than the space, and what is ignored when drawn.
 * Slow to make, as all classes of Unicode.
 */
const UNSEEN = lazily(() => /[\p{C}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}]/gu);

/**
 * Spells out what a person would not see in a text to decide about, such as `\u202e`. A JSON text stays the same JSON.
 *
 * Newlines and spaces stay. The dashboard has the same in `exact_text.js`.
 */
export function exactText(text: string): string {
  return text.replace(
    UNSEEN(),
    (character) => (character === "\n" || character === " " ? character : spelled(character)),
  );
}

/** Spells out the same characters as `exactText`, and newlines too: the result is one line. */
export function exactLine(text: string): string {
  return exactText(text).replaceAll("\n", "\\n");
}

/**
 * Cuts a long text, and says so.
 * @param limit characters that are kept
 * @param digest SHA-256 of the whole, hexadecimal
 * @param length characters of the whole, where `text` is its beginning. Default: `text` is the whole
 */
export function cutText(
  text: string,
  { limit, digest, length = text.length }: {
    readonly limit: number;
    readonly digest: string;
    readonly length?: number;
  },
): string {
  if (length <= limit) return text;
  return `${text.slice(0, limit)} [cut: ${limit} of ${length} characters are shown; SHA-256 of the whole ${digest}]`;
}

/** Lists texts for a sentence, the first of them by name: `a, b and 3 more`. Empty for none. */
export function listSome(texts: readonly string[], most: number): string {
  const named = texts.slice(0, most).join(", ");
  return texts.length > most ? `${named} and ${texts.length - most} more` : named;
}

function spelled(character: string): string {
  let text = "";
  for (let i = 0; i < character.length; i++) text += `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  return text;
}

/** Returns a sentence with its first letter as a capital one. */
export function asSentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

/** Tells whether a text has characters of ASCII alone. */
export function isAscii(text: string): boolean {
  // deno-lint-ignore no-control-regex
  return /^[\x00-\x7f]*$/.test(text);
}

/** Replaces typographic dashes, quotes and blanks by those of ASCII, which models write in their place. */
export function toAscii(text: string): string {
  if (isAscii(text)) return text;
  return text
    .replaceAll(/[\u2010-\u2015\u2212]/g, "-")
    .replaceAll(/[\u2018-\u201b]/g, "'")
    .replaceAll(/[\u201c-\u201f]/g, '"')
    .replaceAll(/[\u00a0\u2002-\u200a\u202f\u205f\u3000]/g, " ");
}

/** Returns `text` up to `maxBytes` of UTF-8, never through a character. */
export function firstBytes(text: string, maxBytes: number): string {
  // No text of this many units can be too long
  if (text.length * 3 <= maxBytes) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return read === text.length ? text : text.slice(0, read);
}

/** Tells whether a text has more bytes of UTF-8 than `maxBytes`. */
export function isLonger(text: string, maxBytes: number): boolean {
  // A UTF-16 unit is one to three bytes, so most texts need no count
  return text.length > maxBytes || (text.length * 3 > maxBytes && Buffer.byteLength(text) > maxBytes);
}

/** Returns a text without these characters at its end. Takes linear time, which `/x+$/` does not: it tries the rest from each `x`. */
export function withoutEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

/** Encoding that a byte order mark names, where it is not UTF-8. */
export type Utf16 = "utf-16le" | "utf-16be";

/** Returns the encoding that the first two bytes of a text name as UTF-16. undefined: they are no such mark */
export function utf16Of(bytes: Uint8Array): Utf16 | undefined {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  return bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : undefined;
}

/** Returns the text of UTF-16 with its mark as UTF-8. undefined for what is no such text: another encoding, NUL, half a character. */
export function utf16ToUtf8(bytes: Uint8Array): Uint8Array | undefined {
  const encoding = utf16Of(bytes);
  if (encoding === undefined) return undefined;
  try {
    const text = new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.includes("\0") ? undefined : new TextEncoder().encode(text);
  } catch {
    return undefined;
  }
}
