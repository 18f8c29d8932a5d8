import type { WorkBudget } from "../work_budget.ts";
import { FONT_LISTS } from "./glyph_text.ts";
import { latin1 } from "./pdf_parser.ts";

/** Operators of a top dictionary; those after 12 count from 1200 */
const CHARSET = 15;
const ENCODING = 16;
const CHAR_STRINGS = 17;
const REGISTRY = 1230;

/** Names in a CFF font. */
export interface CompactFont {
  /** Returns the name of the glyph that a one-byte code shows. */
  nameOfCode(code: number): string | undefined;
  /** Returns the name of a glyph by its number; undefined in a font whose glyphs have numbers alone. */
  nameOfGlyph(glyph: number): string | undefined;
}

/**
 * Reads the encoding and the names of the glyphs of a CFF font.
 * @throws {RangeError} when a table leads out of the font
 * Source: Adobe Technical Note 5176, The Compact Font Format Specification
 */
export function readCompactFont(bytes: Uint8Array, budget: WorkBudget): CompactFont {
  return new CompactFontReader(bytes, budget).read();
}

/** Offsets of the items of an INDEX, and where it ends. */
interface Index {
  readonly starts: readonly number[];
  readonly end: number;
}

class CompactFontReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #budget: WorkBudget;

  constructor(bytes: Uint8Array, budget: WorkBudget) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#budget = budget;
  }

  read(): CompactFont {
    const names = this.#index(this.#view.getUint8(2));
    const tops = this.#index(names.end);
    const strings = this.#index(tops.end);
    const top = this.#dict(tops.starts[0] ?? 0, tops.starts[1] ?? 0);
    if (top.has(REGISTRY)) return { nameOfCode: () => undefined, nameOfGlyph: () => undefined };
    const { cffStrings } = FONT_LISTS;
    const nameOf = (id: number) => {
      const [start, end] = [strings.starts[id - cffStrings.length], strings.starts[id - cffStrings.length + 1]];
      if (id < cffStrings.length) return cffStrings[id];
      return start === undefined || end === undefined ? undefined : latin1(this.#bytes.subarray(start, end));
    };
    const count = Math.max(this.#index(top.get(CHAR_STRINGS) ?? 0).starts.length - 1, 0);
    const glyphs = this.#charset(top.get(CHARSET) ?? 0, count, nameOf);
    const codes = this.#encoding(top.get(ENCODING) ?? 0, glyphs, nameOf);
    return { nameOfCode: (code) => codes[code], nameOfGlyph: (glyph) => glyphs[glyph] };
  }

  #index(at: number): Index {
    const count = this.#view.getUint16(at);
    if (count === 0) return { starts: [], end: at + 2 };
    const size = this.#view.getUint8(at + 2);
    const base = at + 2 + (count + 1) * size;
    this.#budget.keep(count);
    const starts = Array.from({ length: count + 1 }, (_, i) => {
      this.#budget.step();
      return base + this.#number(at + 3 + i * size, size);
    });
    return { starts, end: starts.at(-1) ?? base };
  }

  #number(at: number, size: number): number {
    let value = 0;
    for (let i = 0; i < size; i++) value = value * 256 + this.#view.getUint8(at + i);
    return value;
  }

  /** Returns the last operand of each operator, which is the only one of those that are looked at. */
  #dict(from: number, end: number): ReadonlyMap<number, number> {
    const found = new Map<number, number>();
    let operand = 0;
    for (let at = from; at < end;) {
      this.#budget.step();
      const first = this.#view.getUint8(at++);
      if (first <= 21) {
        found.set(first === 12 ? 1200 + this.#view.getUint8(at++) : first, operand);
        operand = 0;
      } else if (first === 28) {
        operand = this.#view.getInt16(at);
        at += 2;
      } else if (first === 29) {
        operand = this.#view.getInt32(at);
        at += 4;
      } else if (first === 30) { while ((this.#view.getUint8(at++) & 15) !== 15); }
      else if (first <= 246) operand = first - 139;
      else if (first <= 250) operand = (first - 247) * 256 + this.#view.getUint8(at++) + 108;
      else operand = -(first - 251) * 256 - this.#view.getUint8(at++) - 108;
    }
    return found;
  }

  /** Returns the names of the glyphs in their order. */
  #charset(at: number, count: number, nameOf: (id: number) => string | undefined): readonly (string | undefined)[] {
    if (at === 0) return FONT_LISTS.cffStrings.slice(0, 229);
    if (at === 1) return FONT_LISTS.expertCharset;
    if (at === 2) return FONT_LISTS.expertSubsetCharset;
    const format = this.#view.getUint8(at);
    const names: (string | undefined)[] = [".notdef"];
    this.#budget.keep(count);
    for (let next = at + 1; names.length < count;) {
      const id = this.#view.getUint16(next);
      const more = format === 0 ? 0 : this.#number(next + 2, format === 1 ? 1 : 2);
      next += format === 0 ? 2 : format === 1 ? 3 : 4;
      for (let i = 0; i <= more && names.length < count; i++) {
        this.#budget.step();
        names.push(nameOf(id + i));
      }
    }
    return names;
  }

  /** Returns the names of the glyphs by code. */
  #encoding(
    at: number,
    glyphs: readonly (string | undefined)[],
    nameOf: (id: number) => string | undefined,
  ): readonly (string | undefined)[] {
    if (at === 0) return FONT_LISTS.StandardEncoding;
    if (at === 1) return FONT_LISTS.MacExpertEncoding;
    const codes: (string | undefined)[] = [];
    const format = this.#view.getUint8(at);
    const count = this.#view.getUint8(at + 1);
    let next = at + 2;
    let glyph = 1;
    for (let i = 0; i < count; i++) {
      const first = this.#view.getUint8(next++);
      const more = (format & 127) === 0 ? 0 : this.#view.getUint8(next++);
      for (let code = first; code <= first + more; code++) codes[code] = glyphs[glyph++];
    }
    const supplements = (format & 128) === 0 ? 0 : this.#view.getUint8(next++);
    for (let i = 0; i < supplements; i++, next += 3) {
      codes[this.#view.getUint8(next)] = nameOf(this.#view.getUint16(next + 1));
    }
    return codes;
  }
}
