import { Buffer } from "node:buffer";
import { brotliDecompressSync } from "node:zlib";
import { lazily } from "../../base/lazily.ts";
import type { WorkBudget } from "../work_budget.ts";
import { type CharacterMap, type CodeSpace, createCharacterMap } from "./character_map.ts";
import { CMAP_DATA } from "./cmap_data.ts";

const MAX_DEPTH = 4;

/** The maps by their names */
const predefined = lazily((): ReadonlyMap<string, Uint8Array> => {
  const bytes = brotliDecompressSync(Buffer.from(CMAP_DATA, "base64"));
  let at = bytes.indexOf("\n") + 1;
  // The script writes exactly this
  const lengths = JSON.parse(bytes.toString("latin1", 0, at)) as readonly (readonly [name: string, length: number])[];
  return new Map(lengths.map(([name, length]) => [name, bytes.subarray(at, at += length)]));
});

/** Kinds of entries in a file; they stand in the highest three bits of an item's first byte. */
const CODE_SPACE = 0;
const NOT_DEFINED = 1;
const GLYPH = 2;
const GLYPH_RANGE = 3;
const TEXT = 4;
const TEXT_RANGE = 5;
const HEAD = 7;

/**
 * Reads one of Adobe's predefined CMaps by the name that a document uses; only then are they expanded, which takes 7 ms.
 * @returns undefined when there is none of that name
 * Source: ISO 32000-2, section 9.7.5.2; the form of the files is that of pdf.js, `src/core/binary_cmap.js`
 */
export function readPredefinedMap(name: string, budget: WorkBudget, depth = 0): CharacterMap | undefined {
  const bytes = depth > MAX_DEPTH ? undefined : predefined().get(name);
  return bytes && new BinaryMapReader(bytes, budget).read((base) => readPredefinedMap(base, budget, depth + 1));
}

class BinaryMapReader {
  readonly #bytes: Uint8Array;
  readonly #budget: WorkBudget;
  readonly #texts = new Map<number, string>();
  readonly #glyphs = new Map<number, number>();
  readonly #spaces: CodeSpace[] = [];
  readonly #decoder = new TextDecoder("utf-16be");
  #at = 1;

  constructor(bytes: Uint8Array, budget: WorkBudget) {
    this.#bytes = bytes;
    this.#budget = budget;
  }

  read(baseOf: (name: string) => CharacterMap | undefined): CharacterMap {
    let base: CharacterMap | undefined;
    while (this.#at < this.#bytes.length) {
      const first = this.#byte();
      const kind = first >> 5;
      if (kind === HEAD) {
        const text = this.#string();
        if ((first & 31) === 1) base = baseOf(text);
      } else this.#section(kind, { consecutive: (first & 16) !== 0, size: (first & 15) + 1 });
    }
    this.#budget.keep((base?.glyphs.size ?? 0) + this.#glyphs.size + this.#texts.size);
    const texts = new Map([...base?.texts ?? [], ...this.#texts]);
    const glyphs = new Map([...base?.glyphs ?? [], ...this.#glyphs]);
    return createCharacterMap({ texts, glyphs, spaces: [...this.#spaces, ...base?.spaces ?? []] });
  }

  /** Reads entries of one kind. Each counts on from the one before it. */
  #section(kind: number, { consecutive, size }: { readonly consecutive: boolean; readonly size: number }): void {
    const count = this.#number();
    const isText = kind === TEXT || kind === TEXT_RANGE;
    const isRange = kind !== GLYPH && kind !== TEXT;
    const codeBytes = isText ? 2 : size;
    let end = -1;
    let glyph = -1;
    let text = new Uint8Array(size);
    for (let i = 0; i < count; i++) {
      const start = i === 0 ? this.#fixed(codeBytes) : consecutive ? end + 1 : end + 1 + this.#number();
      end = isRange ? start + this.#number() : start;
      switch (kind) {
        case CODE_SPACE:
          this.#spaces.push({ bytes: size, low: toBytes(start, size), high: toBytes(end, size) });
          break;
        case NOT_DEFINED:
          this.#number();
          break;
        case GLYPH:
          glyph = i === 0 ? this.#number() : glyph + 1 + this.#signed();
          this.#putGlyphs(start, end, glyph);
          break;
        case GLYPH_RANGE:
          glyph = this.#number();
          this.#putGlyphs(start, end, glyph);
          break;
        case TEXT:
          text = i === 0 ? this.#take(size) : sum(sum(text, one(size)), this.#signedBytes(size));
          this.#putTexts(start, end, text);
          break;
        case TEXT_RANGE:
          text = this.#take(size);
          this.#putTexts(start, end, text);
      }
    }
  }

  #putGlyphs(start: number, end: number, glyph: number): void {
    for (let code = start; code <= end; code++) {
      this.#budget.step();
      this.#glyphs.set(code, glyph + code - start);
    }
  }

  #putTexts(start: number, end: number, text: Uint8Array): void {
    let bytes = text;
    for (let code = start; code <= end; code++) {
      this.#budget.step();
      this.#texts.set(code, this.#decoder.decode(bytes));
      bytes = sum(bytes, one(bytes.length));
    }
  }

  #byte(): number {
    return this.#bytes[this.#at++] ?? 0;
  }

  #take(size: number): Uint8Array<ArrayBuffer> {
    this.#at += size;
    return this.#bytes.slice(this.#at - size, this.#at);
  }

  #fixed(size: number): number {
    return this.#take(size).reduce((value, byte) => value * 256 + byte, 0);
  }

  /** A number in groups of seven bits, the highest first; all but the last have their highest bit set. */
  #number(): number {
    let value = 0;
    for (;;) {
      const byte = this.#byte();
      value = value * 128 + (byte & 127);
      if ((byte & 128) === 0) return value;
    }
  }

  #signed(): number {
    const value = this.#number();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** A signed number as the bytes to add, since a text may be longer than a number is exact. */
  #signedBytes(size: number): Uint8Array {
    let value = 0n;
    for (;;) {
      const byte = this.#byte();
      value = value * 128n + BigInt(byte & 127);
      if ((byte & 128) === 0) break;
    }
    let rest = BigInt.asUintN(size * 8, value % 2n === 0n ? value / 2n : -(value + 1n) / 2n);
    const bytes = new Uint8Array(size);
    for (let i = size - 1; i >= 0; i--, rest >>= 8n) bytes[i] = Number(rest & 255n);
    return bytes;
  }

  #string(): string {
    return Array.from({ length: this.#number() }, () => String.fromCharCode(this.#number())).join("");
  }
}

function toBytes(code: number, size: number): string {
  return Array.from({ length: size }, (_, i) => String.fromCharCode(Math.floor(code / 256 ** (size - 1 - i)) % 256))
    .join("");
}

function one(size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  bytes[size - 1] = 1;
  return bytes;
}

function sum(left: Uint8Array, right: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(left.length);
  let carry = 0;
  for (let i = left.length - 1; i >= 0; i--) {
    const value = (left[i] ?? 0) + (right[i] ?? 0) + carry;
    bytes[i] = value & 255;
    carry = value >> 8;
  }
  return bytes;
}
