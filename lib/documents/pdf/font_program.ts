import type { WorkBudget } from "../work_budget.ts";
import { readCompactFont } from "./compact_font.ts";
import { FONT_LISTS, glyphText } from "./glyph_text.ts";
import { latin1 } from "./pdf_parser.ts";

const MAX_TYPE1_BYTES = 65_536;
const MAX_MAPPED = 70_000;
const OPEN_TYPE = ["\0\x01\0\0", "true", "OTTO"];
/** Where the codes of a font of signs stand in Unicode */
const SIGNS = 0xf000;

/** The meaning that an embedded font gives to its codes and glyphs. */
export interface FontProgram {
  /** Returns the text that a one-byte code shows by the font's own encoding. */
  textOfCode(code: number): string | undefined;
  /** Returns the text of a glyph by its number. */
  textOfGlyph(glyph: number): string | undefined;
}

/**
 * Reads what an embedded font says about its codes: a Type 1, CFF, TrueType or OpenType font.
 * @throws {RangeError} when a table leads out of the font
 * Source: Adobe Type 1 Font Format, chapter 2; OpenType 1.9, "cmap" and "post"
 */
export function readFontProgram(bytes: Uint8Array, budget: WorkBudget): FontProgram {
  const start = latin1(bytes.subarray(0, 4));
  if (OPEN_TYPE.includes(start)) return readOpenType(bytes, budget);
  return start.startsWith("\x01") ? fromCompactFont(bytes, budget) : readType1(bytes);
}

/** The encoding is in the readable beginning of a Type 1 font: `dup 15 /bullet put`. */
function readType1(bytes: Uint8Array): FontProgram {
  const text = latin1(bytes.subarray(0, MAX_TYPE1_BYTES)).split("eexec", 1)[0] ?? "";
  const names = new Map<number, string>();
  for (const [, code, name = ""] of text.matchAll(/dup\s{1,9}(\d{1,3})\s{0,9}\/([^\s/]{1,64})\s{1,9}put/g)) {
    names.set(Number(code), name);
  }
  return {
    textOfCode: (code) => glyphText(names.get(code) ?? ""),
    textOfGlyph: () => undefined,
  };
}

function fromCompactFont(bytes: Uint8Array, budget: WorkBudget): FontProgram {
  const font = readCompactFont(bytes, budget);
  return {
    textOfCode: (code) => glyphText(font.nameOfCode(code) ?? ""),
    textOfGlyph: (glyph) => glyphText(font.nameOfGlyph(glyph) ?? ""),
  };
}

interface Table {
  readonly offset: number;
  readonly length: number;
}

function readOpenType(bytes: Uint8Array, budget: WorkBudget): FontProgram {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tables = new Map<string, Table>();
  const count = view.getUint16(4);
  for (let i = 0; i < count; i++) {
    budget.step();
    const at = 12 + i * 16;
    tables.set(latin1(bytes.subarray(at, at + 4)), { offset: view.getUint32(at + 8), length: view.getUint32(at + 12) });
  }
  const maps = orNone(() => readCharacterMaps(view, tables.get("cmap"), budget)) ?? new Map<string, Glyphs>();
  const unicode = ["3.10", "0.4", "0.6", "3.1", "0.3", "0.2", "0.1", "0.0"].map((key) => maps.get(key)).find((map) =>
    map !== undefined
  );
  const codes = new Map<number, number>();
  for (const [code, glyph] of unicode ?? []) if (!codes.has(glyph) && !isPrivate(code)) codes.set(glyph, code);
  const names = orNone(() => readGlyphNames(view, tables.get("post"), budget));
  const outlines = tables.get("CFF ");
  const compact = outlines === undefined
    ? undefined
    : orNone(() => fromCompactFont(bytes.subarray(outlines.offset, outlines.offset + outlines.length), budget));
  const textOfGlyph = (glyph: number) => {
    const code = codes.get(glyph);
    if (code !== undefined) return String.fromCodePoint(code);
    return glyphText(names?.[glyph] ?? "") ?? compact?.textOfGlyph(glyph);
  };
  return {
    textOfGlyph,
    textOfCode(code) {
      const signs = maps.get("3.0");
      const roman = maps.get("1.0");
      const glyph = signs?.get(SIGNS + code) ?? signs?.get(code) ?? roman?.get(code);
      if (glyph === undefined || glyph === 0) return undefined;
      // A program that embeds a part of a font writes its own codes into this map, mostly those of Windows
      return textOfGlyph(glyph) ??
        (roman?.get(code) === glyph ? glyphText(FONT_LISTS.WinAnsiEncoding[code] ?? "") : undefined);
    },
  };
}

type Glyphs = ReadonlyMap<number, number>;

/** Returns the maps from codes to glyphs by platform and encoding, such as `3.1`. */
function readCharacterMaps(view: DataView, table: Table | undefined, budget: WorkBudget): Map<string, Glyphs> {
  const maps = new Map<string, Glyphs>();
  if (table === undefined) return maps;
  const count = Math.min(view.getUint16(table.offset + 2), 64);
  for (let i = 0; i < count; i++) {
    const at = table.offset + 4 + i * 8;
    const map = orNone(() => readCharacterMapAt(view, table.offset + view.getUint32(at + 4), budget));
    if (map !== undefined) maps.set(`${view.getUint16(at)}.${view.getUint16(at + 2)}`, map);
  }
  return maps;
}

function readCharacterMapAt(view: DataView, at: number, budget: WorkBudget): Glyphs {
  const glyphs = new Map<number, number>();
  const put = (code: number, glyph: number) => {
    budget.step();
    if (glyph === 0 || code > 0x10ffff || glyphs.size >= MAX_MAPPED) return;
    budget.keep(1);
    glyphs.set(code, glyph);
  };
  switch (view.getUint16(at)) {
    case 0:
      for (let code = 0; code < 256; code++) put(code, view.getUint8(at + 6 + code));
      break;
    case 4:
      readSegments(view, at, put);
      break;
    case 6: {
      const first = view.getUint16(at + 6);
      const count = view.getUint16(at + 8);
      for (let i = 0; i < count; i++) put(first + i, view.getUint16(at + 10 + i * 2));
      break;
    }
    case 12: {
      const count = Math.min(view.getUint32(at + 12), MAX_MAPPED);
      for (let i = 0; i < count; i++) {
        const group = at + 16 + i * 12;
        const [first, last, glyph] = [view.getUint32(group), view.getUint32(group + 4), view.getUint32(group + 8)];
        for (let code = first; code <= Math.min(last, first + MAX_MAPPED) && glyphs.size < MAX_MAPPED; code++) {
          put(code, glyph + code - first);
        }
      }
    }
  }
  return glyphs;
}

/** Format 4: segments of codes, whose glyphs follow by a difference or stand in a list. */
function readSegments(view: DataView, at: number, put: (code: number, glyph: number) => void): void {
  const bytes = view.getUint16(at + 6);
  const [ends, starts, deltas, offsets] = [at + 14, at + 16 + bytes, at + 16 + bytes * 2, at + 16 + bytes * 3];
  for (let i = 0; i < bytes; i += 2) {
    const [first, last] = [view.getUint16(starts + i), view.getUint16(ends + i)];
    const delta = view.getUint16(deltas + i);
    const offset = view.getUint16(offsets + i);
    for (let code = first; code <= last && code < 0xffff; code++) {
      const listed = offset === 0 ? code : orNone(() => view.getUint16(offsets + i + offset + (code - first) * 2)) ?? 0;
      put(code, offset !== 0 && listed === 0 ? 0 : (listed + delta) & 0xffff);
    }
  }
}

/** Names of the glyphs in format 2 of "post", by number. */
function readGlyphNames(view: DataView, table: Table | undefined, budget: WorkBudget): readonly string[] | undefined {
  if (table === undefined || view.getUint32(table.offset) !== 0x00020000) return undefined;
  const count = view.getUint16(table.offset + 32);
  const own: string[] = [];
  const end = Math.min(table.offset + table.length, view.byteLength);
  for (let at = table.offset + 34 + count * 2; at < end;) {
    budget.step();
    budget.keep(1);
    const length = view.getUint8(at);
    own.push(latin1(new Uint8Array(view.buffer, view.byteOffset + at + 1, Math.min(length, end - at - 1))));
    at += 1 + length;
  }
  const { macGlyphs } = FONT_LISTS;
  return Array.from({ length: count }, (_, glyph) => {
    const index = view.getUint16(table.offset + 34 + glyph * 2);
    return (index < macGlyphs.length ? macGlyphs[index] : own[index - macGlyphs.length]) ?? "";
  });
}

function isPrivate(code: number): boolean {
  return (code >= 0xe000 && code <= 0xf8ff) || (code >= 0xd800 && code <= 0xdfff);
}

/** A table that leads out of the font leaves what the other tables say. */
function orNone<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
