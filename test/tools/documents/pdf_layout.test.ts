import assert from "node:assert/strict";
import { test } from "node:test";
import { pdfText } from "../../../lib/documents/pdf/pdf_text.ts";
import { createWorkBudget } from "../../../lib/documents/work_budget.ts";
import { makePdf, type PdfParts } from "./make_pdf.ts";

const LIMITS = { timeMs: 60_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };

/** Returns what a page shows. */
const textOf = (parts: PdfParts) => {
  const budget = createWorkBudget(LIMITS, { stopped: () => false });
  return pdfText(makePdf(parts), { start: 1, end: 1, budget }).text.split("\n").slice(1).join("\n");
};

const utf16 = (text: string) => [...text].map((one) => one.charCodeAt(0).toString(16).padStart(4, "0")).join("");

/**
 * Returns what operators of text show. Every character of font F2 is half its size wide; its capitals are the Hebrew letters from alef on.
 * @param glyph text of Z
 */
const shown = (operators: string, glyph = "Z") =>
  textOf({
    contents: `BT /F2 10 Tf ${operators} ET`,
    fonts: "/F2 10 0 R",
    parts: [
      `<< /Type /Font /Subtype /TrueType /Encoding /WinAnsiEncoding /FirstChar 32 /Widths [${
        "500 ".repeat(95)
      }] /ToUnicode 11 0 R >>`,
      {
        dict: "",
        stream: `1 beginbfchar <5A> <${utf16(glyph)}> endbfchar 1 beginbfrange <41> <59> <05D0> endbfrange`,
      },
    ],
  });

test("letters drawn far apart that the place of each one moves together again are one word", () => {
  assert.equal(shown("10 Tc [(3a)1000(b)1000(c)] TJ 0 Tc 100 0 Td (d) Tj"), "3 abc\td");
  assert.equal(shown("5 Tc [(a)500(b)500(c)250(d)500(e)] TJ"), "abc de");
});

test("characters drawn more than their size apart are words of their own", () => {
  assert.equal(shown("15 Tc (01) Tj [(2)] TJ"), "0 1 2");
});

test("letters drawn apart stay one word", () => {
  assert.equal(shown("4 Tc (title) Tj (s) Tj"), "titles");
  assert.equal(shown("4 Tc [(ti) -20 (tles)] TJ"), "titles");
});

test("figures that stand one above the other are not one number", () => {
  assert.equal(shown("(6) Tj -5 -5 Td (8) Tj"), "6\n8");
  assert.equal(shown("(-0.8) Tj 1 0 0 1 12 5 Tm (-0.6) Tj"), "-0.8\n-0.6");
  assert.equal(shown("(x) Tj 4 3 Td /F2 7 Tf (2) Tj"), "x2");
  assert.equal(shown("(t) Tj 4 -2.2 Td (e) Tj 4.3 2.2 Td (x) Tj"), "tex");
});

test("an accent drawn over its letter stays with it", () => {
  assert.equal(shown("0 3 Td (\\264) Tj 0 -3 Td (e) Tj"), "´e");
});

test("a text does not stand on the line of a letter that is many times as high", () => {
  assert.equal(shown("50 0 Td (normal) Tj /F2 150 Tf 10 20 Td (a) Tj"), "normal\na");
  assert.equal(shown("(x) Tj 5 3 Td /F2 5 Tf (2) Tj"), "x2");
});

test("a blank that letters from right to left are drawn over is none", () => {
  assert.equal(shown("100 0 Td (B) Tj 5 0 Td ( ) Tj ( ) Tj 0.1 0 Td (A) Tj"), "אב");
  assert.equal(shown("100 0 Td (B) Tj 5 0 Td ( ) Tj 5 0 Td (A) Tj"), "א ב");
});

test("a line from right to left drawn twice, as for a shadow, is two lines", () => {
  const line = "(C) Tj 5 0 Td (B) Tj 5 0 Td (A) Tj";
  assert.equal(shown(`100 0 Td ${line} -8 2 Td ${line}`), "אבג\nאבג");
  assert.equal(shown(`100 0 Td ${line} -9.7 0 Td ${line}`), "אבג");
});

test("a glyph whose text has both directions keeps it in reading order, wherever it stands", () => {
  for (const glyph of ["\u05e9\u05dc (ab) 12", "ab \u05e9\u05dc", "1\u05e9", "(\u05e9)"]) {
    assert.equal(shown("(x Z y) Tj", glyph), `x ${glyph} y`);
    assert.equal(shown("(BA Z DC) Tj", glyph), `\u05d2\u05d3 ${glyph} \u05d0\u05d1`);
    assert.equal(shown("(Z) Tj", glyph), glyph);
  }
});

test("vertical text goes down, and a wider gap in it is a space", () => {
  const vertical = (operators: string, more = "") =>
    textOf({
      contents: `BT /F2 10 Tf ${operators} ET`,
      fonts: "/F2 10 0 R",
      parts: [`<< /Type /Font /Subtype /Type0 /Encoding /UniJIS-UTF16-V /DescendantFonts [<< /DW 1000 ${more} >>] >>`],
    });
  assert.equal(vertical("100 700 Td <65E5672C> Tj <65E5> Tj"), "日本日");
  // Columns stand as far apart as small kana beside them need
  for (const x of [10, 20, 29]) {
    assert.equal(vertical(`100 700 Td <65E5672C> Tj -${x} 0 Td <65E5> Tj`), "日本\n日");
  }
  assert.equal(vertical("100 700 Td <65E5672C> Tj -31 0 Td <65E5> Tj"), "日本\n\n日");
  assert.equal(vertical("100 700 Td [<65E5> 500 <672C> 0 <65E5>] TJ"), "日 本日");
  assert.equal(vertical("100 700 Td <65E5> Tj 0 -5 Td <672C> Tj", "/DW2 [880 -500]"), "日本");
  assert.equal(vertical("100 700 Td <672C> Tj 0 -15 Td <672C> Tj", "/W2 [0 65535 -1500 500 880]"), "本本");
});

test("upright characters one below the other are a column, and the next column is the next line", () => {
  const upright = (operators: string) =>
    textOf({
      contents: `BT /F2 10 Tf ${operators} ET`,
      fonts: "/F2 10 0 R",
      parts: ["<< /Type /Font /Subtype /Type0 /Encoding /UniJIS-UTF16-H /DescendantFonts [<< /DW 1000 >>] >>"],
    });
  const column = (text: string, x: number, step = 10) =>
    [...text].map((character, at) => {
      const code = character.charCodeAt(0).toString(16).padStart(4, "0");
      return `1 0 0 1 ${x} ${700 - at * step} Tm <${code}> Tj`;
    }).join(" ");
  assert.equal(upright(`${column("吾輩は猫で", 100)} ${column("ある。名前", 80)}`), "吾輩は猫で\nある。名前");
  assert.equal(upright(column("月火水", 100, 14)), "月\n火\n水");
  assert.equal(upright("1 0 0 1 100 700 Tm <65E5672C> Tj 1 0 0 1 100 690 Tm <8A9E> Tj"), "日本\n語");
});

test("the gaps of a font whose glyphs have units of their own are measured by the height of the glyphs", () => {
  const bitmaps = (box: string) =>
    textOf({
      contents: "BT /F2 1 Tf 0.24 0 0 0.24 50 700 Tm (ab) Tj 62 0 Td (c) Tj 50 0 Td (d) Tj ET",
      fonts: "/F2 10 0 R",
      parts: [
        `<< /Subtype /Type3 /FontMatrix [1 0 0 1 0 0] /FontBBox [${box}] /FirstChar 97 /Widths [30 30 30 30] /Encoding ` +
        "<< /Differences [97 /a97 /a98 /a99 /a100] >> >>",
      ],
    });
  assert.equal(bitmaps("0 -10 40 50"), "abc d");
  assert.equal(bitmaps("0 0 0 0"), "ab c\td");
});
