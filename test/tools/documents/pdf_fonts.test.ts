import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { brotliDecompressSync } from "node:zlib";
import fc from "fast-check";
import { CMAP_DATA } from "../../../lib/documents/pdf/cmap_data.ts";
import { readFontProgram } from "../../../lib/documents/pdf/font_program.ts";
import { FONT_DATA } from "../../../lib/documents/pdf/font_data.ts";
import { dingbatText, glyphText } from "../../../lib/documents/pdf/glyph_text.ts";
import { pdfText } from "../../../lib/documents/pdf/pdf_text.ts";
import { readPredefinedMap } from "../../../lib/documents/pdf/predefined_map.ts";
import { createWorkBudget } from "../../../lib/documents/work_budget.ts";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { fontsOnOneMap } from "./hostile_pdfs.ts";
import { makePdf, type PdfPart } from "./make_pdf.ts";

const budget = () =>
  createWorkBudget({ timeMs: 60_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 }, { stopped: () => false });

/** Returns what a page shows that draws the codes in a font; its program is object 11. */
const shown = (hex: string, font: string, program?: Uint8Array, more: readonly PdfPart[] = []) => {
  const stream = program === undefined ? [] : [{ dict: "", stream: Buffer.from(program).toString("latin1") }];
  const bytes = makePdf({
    contents: `BT /F2 10 Tf <${hex}> Tj ET`,
    fonts: "/F2 10 0 R",
    parts: [font, ...stream, ...more],
  });
  return pdfText(bytes, { start: 1, end: 1, budget: budget() }).text.split("\n").slice(1).join("\n");
};

test("the data of fonts is what its header says", () => {
  const text = readFileSync(join(PROJECT_ROOT, "lib/documents/pdf/font_data.ts"), "utf8");
  const [, sum] = /SHA-256 of the data: ([0-9a-f]{64})/.exec(text) ?? [];
  assert.equal(createHash("sha256").update(FONT_DATA).digest("hex"), sum);
  assert.match(text, /BSD-3-Clause[\s\S]*Copyright 2002-2019 Adobe[\s\S]*Redistribution and use[\s\S]*Apache-2\.0/);
});

test("names of glyphs mean what the Adobe Glyph List says", () => {
  const expected: Readonly<Record<string, string | undefined>> = {
    A: "A",
    space: " ",
    afii57415: "ا",
    "afii57415.isol": "ا",
    nahiragana: "な",
    dalethatafpatah: "דֲ",
    f_f_i: "ffi",
    "Lcommaaccent.sc": "Ļ",
    uni20AC0308: "€\u0308",
    u1F600: "😀",
    uniD800: "\ufffd",
    oneoldstyle: "1",
    Asmall: "A",
    Omega: "Ω",
    a_g99: undefined,
    ".notdef": undefined,
    constructor: undefined,
  };
  for (const [name, text] of Object.entries(expected)) assert.equal(glyphText(name), text, name);
  assert.deepEqual([dingbatText("a19"), dingbatText("a4"), glyphText("a19")], ["✓", "☎", undefined]);
});

test("codes without a map mean what the encodings and names of the font say", () => {
  assert.equal(shown("616263B7DE", "<< /Subtype /Type1 /BaseFont /ABCDEF+Symbol >>"), "αβχ•⇒");
  assert.equal(shown("2133", "<< /Subtype /Type1 /BaseFont /ZapfDingbats >>"), "✁✓");
  assert.equal(shown("5956", "<< /Subtype /Type1 /Encoding /MacExpertEncoding >>"), "ffiff");
  const differences = "<< /BaseEncoding /MacRomanEncoding /Differences [65 /afii10017 /Asmall 67 /.notdef] >>";
  assert.equal(shown("4142438A", `<< /Subtype /Type1 /Encoding ${differences} >>`), "АAä");
  const pictures = "/FontMatrix [0.01 0 0 0.01 0 0] /Encoding << /Differences [97 /a97 /a98 200 /a200] >>";
  assert.equal(shown("6162C8", `<< /Subtype /Type3 ${pictures} >>`), "abÈ");
});

/** A CFF font with the glyphs A, afii10018 and "f_i" at the codes 1 to 3, and A again at 9. */
function makeCompactFont(): Uint8Array {
  const index = (items: readonly string[]) => {
    let at = 1;
    const offsets = [1, ...items.map((item) => at += item.length)];
    return [0, items.length, 1, ...offsets, ...Buffer.from(items.join(""), "latin1")];
  };
  const number = (value: number) => [29, 0, 0, value >> 8, value & 255];
  const head = [1, 0, 4, 2, ...index(["X"])];
  const strings = [...index(["afii10018", "f_i"]), 0, 0];
  const start = head.length + 5 + 18 + strings.length;
  // 34 is the number of A; the names of the font itself count from 391
  const charset = [0, 0, 34, 1, 135, 1, 136];
  const encoding = [128, 3, 1, 2, 3, 1, 9, 0, 34];
  const outlines = index(["\x0e", "\x0e", "\x0e", "\x0e"]);
  const [first, second] = [start + charset.length, start + charset.length + encoding.length];
  const top = [...number(start), 15, ...number(first), 16, ...number(second), 17];
  return Uint8Array.from([...head, 0, 1, 1, 1, 19, ...top, ...strings, ...charset, ...encoding, ...outlines]);
}

/** A TrueType font whose glyphs 1 and 2 are signs without names at the codes 0x41 and 0x42, and in Unicode the letters Ж and ж. */
function makeTrueType(): Uint8Array {
  const map = (pairs: readonly (readonly [code: number, glyph: number])[]) => {
    const segments = [...pairs, [0xffff, 0] as const];
    const words = [
      ...[4, 16 + segments.length * 8, 0, segments.length * 2, 0, 0, 0],
      ...segments.map(([code]) => code),
      ...[0],
      ...segments.map(([code]) => code),
      ...segments.map(([code, glyph]) => (glyph - code) & 0xffff),
      ...segments.map(() => 0),
    ];
    return words.flatMap((word) => [word >> 8, word & 255]);
  };
  const [signs, unicode] = [map([[0xf041, 1], [0xf042, 2]]), map([[0x416, 1], [0x436, 2]])];
  const start = 4 + 16;
  const table = [
    ...[0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, start, 0, 3, 0, 1, 0, 0, 0, start + signs.length],
    ...signs,
    ...unicode,
  ];
  return withCharacterMaps(table);
}

/** A TrueType font that has glyphs for all codes of a part, without a word about what they mean. */
function makeRomanTrueType(): Uint8Array {
  const glyphs = Array.from({ length: 256 }, (_, code) => code);
  return withCharacterMaps([0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 12, 0, 0, 1, 6, 0, 0, ...glyphs]);
}

function withCharacterMaps(table: readonly number[]): Uint8Array {
  const entry = [...Buffer.from("cmap"), 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, table.length >> 8, table.length & 255];
  return Uint8Array.from([0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, ...entry, ...table]);
}

test("the codes of pictures that are named by numbers are those of Latin 1", () => {
  const font = (names: string) =>
    `<< /Subtype /Type3 /FontMatrix [0.001 0 0 0.001 0 0] /Encoding << /Differences [${names}] >> >>`;
  assert.equal(shown("41E9", font("65 /a65 233 /a233")), "Aé");
  assert.equal(shown("1B", font("27 /a27")), "\ufffd");
  assert.equal(shown("41", font("65 /a66")), "[No text]");
});

test("codes without a map or an encoding mean what the embedded font says", () => {
  const embedded = (kind: string, key: string) => `<< /Subtype /${kind} /FontDescriptor << /${key} 11 0 R >> >>`;
  assert.equal(shown("01020309", embedded("Type1", "FontFile3"), makeCompactFont()), "AБfiA");
  assert.equal(shown("4142", embedded("TrueType", "FontFile2"), makeTrueType()), "Жж");
  assert.equal(shown("41E495", embedded("TrueType", "FontFile2"), makeRomanTrueType()), "Aä•");
  const type1 =
    "%!PS-AdobeFont-1.0: X\n/Encoding 256 array\ndup 15 /bullet put\ndup 65 /afii10018 put\ncurrentfile eexec";
  assert.equal(shown("0F41", embedded("Type1", "FontFile"), Buffer.from(type1)), "•Б");
});

test("glyphs of a composite font without a map mean what the embedded font says", () => {
  const composite = (descendant: string) =>
    `<< /Subtype /Type0 /Encoding /Identity-H /DescendantFonts [<< ${descendant} >>] >>`;
  const trueType = "/Subtype /CIDFontType2 /FontDescriptor << /FontFile2 11 0 R >>";
  assert.equal(shown("00010002", composite(trueType), makeTrueType()), "Жж");
  const mapped = composite(`${trueType} /CIDToGIDMap 12 0 R`);
  assert.equal(shown("00000001", mapped, makeTrueType(), [{ dict: "", stream: "\0\x02\0\x01" }]), "жЖ");
  const compact = "/Subtype /CIDFontType0 /FontDescriptor << /FontFile3 11 0 R >>";
  assert.equal(shown("000100020003", composite(compact), makeCompactFont()), "AБfi");
});

test("the predefined maps are those whose sum is noted, with their licence, and each can be read", () => {
  const text = readFileSync(join(PROJECT_ROOT, "lib/documents/pdf/cmap_data.ts"), "utf8");
  const noted = /SHA-256 of the data: ([0-9a-f]{64})/.exec(text)?.[1];
  assert.equal(createHash("sha256").update(CMAP_DATA).digest("hex"), noted);
  assert.match(text, /Copyright 1990-2009 Adobe Systems Incorporated/);
  const [head = ""] = brotliDecompressSync(Buffer.from(CMAP_DATA, "base64")).toString("latin1").split("\n", 1);
  const names: readonly string[] = JSON.parse(head).map(([name]: readonly [string]) => name);
  assert.equal(names.length, 69);
  for (const name of names) {
    const map = readPredefinedMap(name, budget());
    assert.ok((map?.glyphs.size ?? 0) + (map?.texts.size ?? 0) > 100, name);
  }
});

test("texts in the predefined maps of Chinese, Japanese and Korean are read", () => {
  const composite = (encoding: string, ordering: string) =>
    `<< /Subtype /Type0 /Encoding /${encoding} /DescendantFonts [<< /Subtype /CIDFontType0 ` +
    `/CIDSystemInfo << /Registry (Adobe) /Ordering (${ordering}) /Supplement 2 >> >>] >>`;
  // 日 and 本 are the characters 3284 and 3722 of Adobe-Japan1
  assert.equal(shown("0CD40E8A", composite("Identity-H", "Japan1")), "日本");
  assert.equal(shown("93FA967B41", composite("90ms-RKSJ-H", "Japan1")), "日本A");
  assert.equal(shown("467C4B5C", composite("V", "Japan1")), "日本");
  assert.equal(shown("65E5672CD842DFB7", composite("UniJIS-UTF16-H", "Japan1")), "日本𠮷");
  assert.equal(shown("D6D0B9FA41", composite("GBK-EUC-H", "GB1")), "中国A");
  assert.equal(shown("A4A4A4E5", composite("ETen-B5-H", "CNS1")), "中文");
  assert.equal(shown("C7D1B1DB41", composite("KSCms-UHC-H", "Korea1")), "한글A");
  assert.equal(shown("AC00", composite("UniKS-UCS2-H", "Korea1")), "가");
  assert.equal(shown("0001", composite("No-Such-Map", "Nowhere")), "[No text]");
});

test("an embedded map may build on a predefined one", () => {
  const font =
    "<< /Subtype /Type0 /Encoding 11 0 R /DescendantFonts [<< /CIDSystemInfo << /Ordering (Japan1) >> >>] >>";
  const map = {
    dict: "/UseCMap /90ms-RKSJ-H",
    stream: "1 begincodespacerange <FF> <FF> endcodespacerange 1 begincidchar <FF> 3284 endcidchar",
  };
  assert.equal(shown("FF967B", font, undefined, [map]), "日本");
});

test("a name that is of no map gives none", () => {
  for (const name of ["../font_data.ts", "__proto__", "a/b", "", "H\0"]) {
    assert.equal(readPredefinedMap(name, budget()), undefined);
  }
});

test("what each font takes over from a predefined map counts as kept", () => {
  const read = (count: number) => pdfText(fontsOnOneMap(count), { start: 1, end: 1, budget: budget() });
  assert.equal(typeof read(10).text, "string");
  assert.throws(() => read(100), { code: "document_too_large" });
});

test("any damage to an embedded font leaves the rest of the document readable", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(makeCompactFont(), makeTrueType()),
      fc.array(fc.record({ at: fc.nat(), value: fc.nat(255) }), { minLength: 1, maxLength: 8 }),
      fc.option(fc.nat()),
      (original, changes, end) => {
        const bytes = original.slice(0, end === null ? undefined : end % original.length);
        for (const { at, value } of changes) if (bytes.length > 0) bytes[at % bytes.length] = value;
        try {
          const program = readFontProgram(bytes, budget());
          for (let code = 0; code < 256; code++) program.textOfCode(code);
        } catch (error) {
          assert.ok(error instanceof RangeError, String(error));
        }
      },
    ),
    { numRuns: 300 },
  );
});
