import type { WorkBudget } from "../work_budget.ts";
import { isWord, PdfLexer, type PdfToken } from "./pdf_parser.ts";

const MAX_ENTRIES = 70_000;
const MAX_TEXT = 64;
const MAX_CODE_BYTES = 4;

/** A CMap: what the codes of a font's strings mean. */
export interface CharacterMap {
  /** Texts by code, as ToUnicode has them */
  readonly texts: ReadonlyMap<number, string>;
  /** Numbers of glyphs by code, as an encoding has them */
  readonly glyphs: ReadonlyMap<number, number>;
  /** Number of bytes of the code at a place of a string; undefined when the map does not say */
  codeBytes(bytes: string, at: number): number | undefined;
  /** Ranges of codes, by which the codes of a string are told apart */
  readonly spaces: readonly CodeSpace[];
}

/** A range of codes of one length. */
export interface CodeSpace {
  /** Number of bytes of a code */
  readonly bytes: number;
  readonly low: string;
  readonly high: string;
}

/** Never throws but for the budget: what is no CMap is an empty one. Source: ISO 32000-2, sections 9.7.5 and 9.10.3 */
export function readCharacterMap(bytes: Uint8Array, budget: WorkBudget): CharacterMap {
  const lexer = new PdfLexer(bytes);
  const decoder = new TextDecoder("utf-16be");
  const texts = new Map<number, string>();
  const glyphs = new Map<number, number>();
  const spaces: CodeSpace[] = [];
  let room = MAX_ENTRIES;
  const put = <T>(map: Map<number, T>, code: number, value: T) => {
    if (room <= 0) return;
    room--;
    budget.step();
    budget.keep(1);
    map.set(code, value);
  };

  /** Reads tokens up to the word that ends the section. */
  const section = (end: string, size: number, use: (items: readonly PdfToken[]) => void) => {
    for (let items: PdfToken[] = []; room > 0;) {
      budget.step(4);
      const token = lexer.next();
      if (isWord(token, end) || isWord(token, "")) return;
      items.push(token);
      if (items.length < size) continue;
      use(items);
      items = [];
    }
  };

  const range = (items: readonly PdfToken[]) => {
    const [low, high] = [codeOf(items[0]), codeOf(items[1])];
    const target = items[2];
    const last = low === undefined || high === undefined ? -1 : Math.min(high, low + 65_535);
    if (isWord(target ?? 0, "[")) {
      for (let code = low ?? 0;; code++) {
        budget.step(4);
        const token = lexer.next();
        if (isWord(token, "]") || isWord(token, "")) return;
        const text = textOf(token, decoder);
        if (text !== undefined && code <= last) put(texts, code, text);
      }
    }
    const text = textOf(target, decoder);
    for (let code = low ?? 0; text !== undefined && code <= last && room > 0; code++) {
      put(texts, code, advanced(text, code - (low ?? 0)));
    }
  };

  while (room > 0) {
    budget.step(4);
    const token = lexer.next();
    if (isWord(token, "")) break;
    if (isWord(token, "begincodespacerange")) {
      section("endcodespacerange", 2, ([low, high]) => {
        if (!isString(low) || !isString(high) || low.bytes.length > MAX_CODE_BYTES || spaces.length > 100) return;
        spaces.push({ bytes: low.bytes.length, low: low.bytes, high: high.bytes });
      });
    } else if (isWord(token, "beginbfchar")) {
      section("endbfchar", 2, ([from, to]) => {
        const [code, text] = [codeOf(from), textOf(to, decoder)];
        if (code !== undefined && text !== undefined) put(texts, code, text);
      });
    } else if (isWord(token, "beginbfrange")) section("endbfrange", 3, range);
    else if (isWord(token, "begincidchar")) {
      section("endcidchar", 2, ([from, to]) => {
        const code = codeOf(from);
        if (code !== undefined && typeof to === "number") put(glyphs, code, to);
      });
    } else if (isWord(token, "begincidrange")) {
      section("endcidrange", 3, ([from, to, first]) => {
        const [low, high] = [codeOf(from), codeOf(to)];
        if (low === undefined || high === undefined || typeof first !== "number") return;
        for (let code = low; code <= Math.min(high, low + 65_535) && room > 0; code++) {
          put(glyphs, code, first + code - low);
        }
      });
    }
  }
  return createCharacterMap({ texts, glyphs, spaces });
}

/** Creates a CMap of its parts. */
export function createCharacterMap(parts: Pick<CharacterMap, "texts" | "glyphs" | "spaces">): CharacterMap {
  return {
    ...parts,
    codeBytes: (text, at) => parts.spaces.find((space) => isInside(text.slice(at, at + space.bytes), space))?.bytes,
  };
}

function isString(token: PdfToken | undefined): token is Extract<PdfToken, { readonly kind: "string" }> {
  return typeof token === "object" && token.kind === "string";
}

function isInside(code: string, { bytes, low, high }: CodeSpace): boolean {
  if (code.length !== bytes) return false;
  for (let i = 0; i < bytes; i++) {
    const value = code.charCodeAt(i);
    if (value < low.charCodeAt(i) || value > high.charCodeAt(i)) return false;
  }
  return true;
}

function codeOf(token: PdfToken | undefined): number | undefined {
  if (!isString(token) || token.bytes.length === 0 || token.bytes.length > MAX_CODE_BYTES) return undefined;
  return toCode(token.bytes);
}

/** The number that bytes stand for, the first the highest. */
export function toCode(bytes: string): number {
  let code = 0;
  for (let i = 0; i < bytes.length; i++) code = code * 256 + bytes.charCodeAt(i);
  return code;
}

function textOf(token: PdfToken | undefined, decoder: { decode(bytes: Uint8Array): string }): string | undefined {
  if (!isString(token)) return undefined;
  const bytes = token.bytes.slice(0, MAX_TEXT);
  return bytes.length === 1 ? bytes : decoder.decode(Buffer.from(bytes, "latin1"));
}

/** The text of a later code of a range: its last character counts on. */
function advanced(text: string, by: number): string {
  if (by === 0 || text === "") return text;
  const last = text.charCodeAt(text.length - 1) + by;
  // Past the end of a plane of surrogates nothing is meant
  return text.slice(0, -1) + String.fromCharCode(last & 0xffff);
}
