import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import fc from "fast-check";
import { DocumentError } from "../../../lib/documents/document_error.ts";
import { pdfText } from "../../../lib/documents/pdf/pdf_text.ts";
import { createWorkBudget } from "../../../lib/documents/work_budget.ts";
import { documentFixture } from "../../support/document_fixtures.ts";
import { makePdf, type PdfParts, textLine } from "./make_pdf.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { processorMs } from "../../support/processor_time.ts";

/** Longer than anything takes on a slow host: another limit is to be met first */
const LIMITS = { timeMs: 60_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };
const REPORT = documentFixture("pdf/report.pdf");
const REPORT_PAGES = [
  "[Page 1 of 2]",
  "Gate report",
  "What was seen",
  ...[
    "Plain text with bold, italics and umlauts äöü ß, a dash – and",
    "“quotes”. Plain text with bold, italics and umlauts äöü ß, a",
  ],
  ...["dash – and “quotes”. Plain text with bold, italics and", "umlauts äöü ß, a dash – and “quotes”."],
  ...["• first bullet", "• second bullet", "name count", "gate 1", "door 22", ""],
  ...["[Page 2 of 2]", "Second page", "See the page. E=mc2"],
];

const read = (bytes: Uint8Array, { limits = LIMITS, start = 1, end }: ReadOptions = {}) =>
  pdfText(bytes, { start, end, budget: createWorkBudget(limits, { stopped: () => false }) });
interface ReadOptions {
  readonly limits?: typeof LIMITS;
  readonly start?: number;
  readonly end?: number;
}
/** The first page's text. */
const textOf = (parts: PdfParts) => read(makePdf(parts)).text.split("\n").slice(1).join("\n");
const refusal = (bytes: Uint8Array, options?: ReadOptions): DocumentError => {
  try {
    read(bytes, options);
  } catch (error) {
    assert.ok(error instanceof DocumentError, String(error));
    return error;
  }
  throw new assert.AssertionError({ message: "It was read" });
};

test("a document made by a real program reads page by page", () =>
  withWorkspace({ "report.pdf": REPORT }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { result } = await call("pdf_read", "report.pdf");
    assert.equal(normal(result.output), REPORT_PAGES.join("\n"));
    assert.deepEqual(result.data, {
      path: "report.pdf",
      size: REPORT.length,
      title: "Gate report",
      author: "Ada Example",
      pages: 2,
      page_start: 1,
      page_end: 2,
      next_page: null,
      truncated: false,
    });
    const second = (await call("pdf_read", { path: "report.pdf", page_start: 2, page_end: 9 })).result;
    assert.equal(second.output, REPORT_PAGES.slice(-3).join("\n"));
    const first = (await call("pdf_read", { path: "report.pdf", page_end: 1 })).result;
    assert.match(first.output, /^\[Page 1 of 2\]\n[^[]*$/);
  }));

test("a page range that is not there is refused by name", () =>
  withWorkspace({ "report.pdf": REPORT }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const output = async (input: object) => (await call("pdf_read", { path: "report.pdf", ...input })).result.output;
    assert.equal(await output({ page_start: 3 }), 'Cannot read "report.pdf": "page_start" is 3, and it has 2 pages');
    assert.equal(
      await output({ page_start: 2, page_end: 1 }),
      'Cannot read pages 2 to 1: "page_end" is before "page_start"',
    );
    assert.match(await output({ page_start: 0 }), /"page_start"/);
  }));

test("a page of a browser reads with its scripts, columns and turned text", () => {
  const { text, title } = read(documentFixture("pdf/page.pdf"));
  assert.equal(title, "Chromium page");
  assert.match(
    text,
    /Überschrift one\nHello world, this is bold and italic text with .*, Ελληνικά, Кириллица, emoji 😀 and/,
  );
  assert.match(text, /ligatures: office, fluffy,\naffinity\./);
  assert.match(text, /a\tb\n\s*cell 3\tcell 4/);
  assert.match(text, /(left column text ?\n?)+\n\n(right column text ?\n?)+\n/);
  assert.match(text, /rotated text\nhere$/);
});

test("fonts drawn by the document itself, and those of other programs, are read", () => {
  const chart = read(documentFixture("pdf/chart.pdf")).text;
  for (const part of ["0.25", "x label", "Matplotlib title Ünïcode", "série α"]) assert.ok(chart.includes(part), part);
  const typeset = read(documentFixture("pdf/typeset.pdf"));
  assert.deepEqual([typeset.title, typeset.author], ["Typst doc", "Ada"]);
  for (const part of ["office fluffy ẞ", "a b c\n1 2 3", "1. one\n2. two", "• bullet", "1The note."]) {
    assert.ok(typeset.text.includes(part), part);
  }
});

test("streams of objects and every encryption without a password read the same", () => {
  const plain = read(REPORT);
  for (const name of ["packed", "encrypted_40", "encrypted_128", "encrypted_aes", "encrypted_r5", "encrypted_256"]) {
    const found = read(documentFixture(`pdf/${name}.pdf`));
    assert.deepEqual([found.text, found.title], [plain.text, plain.title], name);
  }
});

test("a document with a password is refused", () => {
  const { code, message } = refusal(documentFixture("pdf/locked.pdf"));
  assert.deepEqual([code, message], ["document_encrypted", "it is protected by a password"]);
});

test("without usable cross references the objects are looked for", () => {
  for (const name of ["report", "packed", "page"]) {
    const bytes = documentFixture(`pdf/${name}.pdf`);
    const { text } = read(bytes);
    const at = Buffer.from(bytes).lastIndexOf("startxref");
    for (const broken of [bytes.slice(0, at), withText(bytes, at + 10, "1"), withText(bytes, at + 10, "999999")]) {
      assert.equal(read(broken).text, text, name);
    }
  }
  const shifted = Buffer.concat([Buffer.from("junk before the header\n"), makePdf({ contents: textLine("Hello") })]);
  assert.equal(read(shifted).text, "[Page 1 of 1]\nHello");
});

test("pages that a broken tree does not lead to are found by themselves, and the file counts as damaged", () => {
  const page = (number: number) =>
    `<< /Type /Page /Parent 2 0 R /Contents ${number + 1} 0 R /Resources << /Font << /F1 5 0 R >> >> >>`;
  const stream = (text: string) => ({ dict: "", stream: textLine(text) });
  const parts = [page(10), stream("Two"), page(12), stream("Three")];
  const given = { contents: textLine("One"), parts };
  const all = "[Page 1 of 3]\nOne\n\n[Page 2 of 3]\nTwo\n\n[Page 3 of 3]\nThree";
  for (
    const pages of [
      "<< /Type /Pages /Count 3 >>",
      "<< /Type /Pages /Kids [99 0 R] /Count 3 >>",
      "<< /Type /Pages /Kids [3 0 R 98 0 R] /Count 3 >>",
      "null",
    ]
  ) {
    const { text, isRepaired } = read(makePdf({ ...given, pages }));
    assert.deepEqual([text, isRepaired], [all, true], pages);
  }
  const whole = read(makePdf({ ...given, pages: "<< /Type /Pages /Kids [3 0 R] /Count 1 >>" }));
  assert.deepEqual([whole.pages, whole.isRepaired], [1, false], "a page that was taken out");
});

test("of a file that was cut off, the pages before the cut are read", () => {
  const whole = Buffer.from(manyPages(5, textLine("Hello"))).toString("latin1");
  const cut = whole.slice(0, whole.indexOf("13 0 obj")).replace("/Type /Catalog", "/Kind /Catalog");
  assert.equal(read(Buffer.from(cut, "latin1")).text.match(/^Hello$/gm)?.length, 4);
});

test("a file that was cut off says so, whether its pages are found or not", () => {
  const cut = REPORT.slice(0, Buffer.from(REPORT).lastIndexOf("startxref"));
  return withWorkspace({ "whole.pdf": REPORT, "cut.pdf": cut, "stub.pdf": REPORT.slice(0, 200) }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const [whole, part, stub] = await Promise.all(
      ["whole.pdf", "cut.pdf", "stub.pdf"].map((path) => call("pdf_read", path)),
    );
    assert.doesNotMatch(whole?.result.output ?? "", /damaged/);
    assert.match(
      part?.result.output ?? "",
      /\[The file is damaged or cut off: pages or parts of them may be missing\]$/,
    );
    assert.deepEqual([stub?.result.isError, /it is damaged or cut off: /.test(stub?.result.output ?? "")], [
      true,
      true,
    ]);
  });
});

test("the operators of text move, scale and space it", () => {
  assert.equal(
    textOf({
      contents: "BT /F1 10 Tf 12 TL 50 700 Td (a) Tj (b) Tj T* (c) ' 1 2 (d e) \" 0 -40 TD (f) Tj T* (g) Tj ET",
    }),
    "ab\n\nc\nd e\n\nf\n\ng",
  );
  assert.equal(
    textOf({ contents: "BT /F1 10 Tf [(wo) -100 (rd) -150 (in) -300 (next) -4000 (far)] TJ ET" }),
    "word in next\tfar",
  );
  assert.equal(textOf({ contents: "BT /F1 10 Tf 50 Tz 2 Tc (ab) Tj 0 Tc 100 Tz (c) Tj ET" }), "abc");
  assert.equal(textOf({ contents: "BT /F1 10 Tf (x) Tj /F1 6 Tf 4 Ts (2) Tj 0 Ts /F1 10 Tf ( y) Tj ET" }), "x2 y");
  assert.equal(
    textOf({ contents: "q 2 0 0 2 0 0 cm BT /F1 5 Tf 10 10 Td (in) Tj ET Q BT /F1 10 Tf 40 20 Td (side) Tj ET" }),
    "in side",
  );
  assert.equal(textOf({ contents: "BT /F1 10 Tf 0 1 -1 0 50 50 Tm (up) Tj 1 0 0 1 50 50 Tm (on) Tj ET" }), "up\non");
  assert.equal(textOf({ contents: "BT /F1 10 Tf (bold) Tj 1 0 0 1 0.2 0 Tm (bold) Tj ET" }), "bold");
  assert.equal(textOf({ contents: "BT /F1 10 Tf (\\(a\\)\\101\\\nb\\q) Tj <4142 4> Tj ET % (comment)" }), "(a)AbqAB@");
});

test("fonts say what their codes mean: differences, maps, programs, standard ones", () => {
  const hex = (text: string) => `BT /F2 10 Tf <${text}> Tj ET`;
  const font = (dict: string, more: PdfParts["parts"] = []) => ({ fonts: "/F2 10 0 R", parts: [dict, ...more] });
  const map = (text: string) => ({ dict: "", stream: text });
  assert.equal(
    textOf({
      contents: hex("0102030405061B"),
      ...font(
        "<< /Type /Font /Subtype /Type1 /BaseFont /X /Encoding << /Differences [1 /Ccaron /fi /uni20AC /alpha /a.alt /f_i 27 /g99] >> >>",
      ),
    }),
    "Čfi€αafi",
  );
  const nothing = textOf({
    contents: hex("41424344"),
    ...font("<< /Type /Font /Subtype /TrueType /Encoding /WinAnsiEncoding /ToUnicode 11 0 R >>", [
      map("1 beginbfchar <42> <> endbfchar 1 beginbfrange <43> <43> <> endbfrange"),
    ]),
  });
  assert.equal(nothing, "AD", "what is mapped to nothing has no text");
  assert.equal(
    textOf({
      contents: hex("41424344"),
      ...font("<< /Type /Font /Subtype /TrueType /ToUnicode 11 0 R >>", [
        map(
          "1 beginbfchar <41> <0066006C> endbfchar 1 beginbfrange <42> <43> <0391> endbfrange 1 beginbfrange <44> <44> [<D83DDE00>] endbfrange",
        ),
      ]),
    }),
    "flΑΒ😀",
  );
  const composite = "<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /DescendantFonts [<< /W [1 [500 500]] >>] ";
  assert.equal(
    textOf({
      contents: hex("00010002"),
      ...font(`${composite} /ToUnicode 11 0 R >>`, [map("1 beginbfrange <0001> <0002> <65E5> endbfrange")]),
    }),
    "日旦",
  );
  assert.equal(
    textOf({ contents: hex("65E5672C"), ...font(composite.replace("Identity-H", "UniJIS-UTF16-H") + ">>") }),
    "日本",
  );
  assert.equal(
    textOf({ contents: hex("93FA967B"), ...font(composite.replace("Identity-H", "90ms-RKSJ-H") + ">>") }),
    "日本",
  );
  assert.equal(textOf({ contents: hex("61B7"), ...font("<< /Subtype /Type1 /BaseFont /Symbol >>") }), "α•");
  assert.equal(textOf({ contents: hex("80939599E4"), ...font("<< /Encoding /WinAnsiEncoding >>") }), "€“•™ä");
  assert.equal(textOf({ contents: hex("8AD2A5DB"), ...font("<< /Encoding /MacRomanEncoding >>") }), "ä“•€");
  assert.equal(textOf({ contents: hex("2760AE"), ...font("<< /Encoding /StandardEncoding >>") }), "’‘fi");
  assert.equal(
    textOf({
      contents: hex("0F"),
      ...font("<< /Subtype /Type1 /BaseFont /CMSY10 /FontDescriptor << /FontFile 11 0 R >> >>", [
        map("dup 15 /bullet put"),
      ]),
    }),
    "•",
  );
});

/** A page in which A to Z are the Hebrew letters from alef on, a to d are Arabic forms and marks; every sign is half its size wide. */
const rightToLeft = (operators: string) =>
  textOf({
    contents: `BT /F2 10 Tf ${operators} ET`,
    fonts: "/F2 10 0 R",
    parts: [
      `<< /Type /Font /Subtype /TrueType /Encoding /WinAnsiEncoding /FirstChar 32 /Widths [${
        Array.from({ length: 95 }, (_, i) => i + 32 === 0x7e ? 0 : 500).join(" ")
      }] /ToUnicode 11 0 R >>`,
      {
        dict: "",
        stream:
          "1 beginbfrange <41> <5A> <05D0> endbfrange 5 beginbfchar <7B> <FEFB> <7C> <FEDF> <7D> <FE8E> <7E> <05B7> " +
          "<60> <FE93> endbfchar",
      },
    ],
  });

test("letters from right to left are in the order in which they are read", () => {
  assert.equal(rightToLeft("(GFE DCBA) Tj"), "אבגד הוז");
  assert.equal(rightToLeft("100 0 Td (DCBA) Tj -20 0 Td (GFE) Tj -20 0 Td (H.) Tj"), "אבגד הוז .ח");
  assert.equal(rightToLeft("100 0 Td (A) Tj -5 0 Td (B) Tj -5 0 Td (C) Tj -10 0 Td (D) Tj"), "אבג ד");
  assert.equal(rightToLeft("100 20 Td (BA) Tj 0 -12 Td (DC) Tj"), "אב\nגד");
  assert.equal(rightToLeft("[(GFE) -400 (DCBA)] TJ"), "אבגד הוז");
});

test("numbers and words from left to right keep their own order among those from right to left", () => {
  assert.equal(rightToLeft("(GFE 3.14% DCBA) Tj"), "אבגד 3.14% הוז");
  assert.equal(rightToLeft("(GFE 1999 2026 DCBA) Tj"), "אבגד 2026 1999 הוז");
  assert.equal(rightToLeft("(GFE hi, he 10 DCBA) Tj"), "אבגד hi, he 10 הוז");
  assert.equal(rightToLeft("(.\\(GFE\\) \\[12\\] DCBA) Tj"), "אבגד [12] (הוז).");
  assert.equal(rightToLeft("(see this word here, as DCBA 12 GFE is) Tj"), "see this word here, as הוז 12 אבגד is");
  assert.equal(rightToLeft("100 0 Td (DCBA) Tj -40 0 Td (10 km) Tj -20 0 Td (GFE) Tj"), "אבגד 10 km הוז");
});

test("Arabic forms become letters, and marks follow the letter they stand on", () => {
  assert.equal(rightToLeft("({`) Tj"), "ةلا");
  assert.equal(rightToLeft("(}|) Tj"), "لا");
  assert.equal(rightToLeft("(C~BA) Tj"), "אבַג");
  assert.equal(rightToLeft("100 0 Td (A) Tj -5 0 Td (B) Tj (~) Tj -5 0 Td (C) Tj"), "אבַג");
  assert.equal(rightToLeft("/Span << /ActualText <FEFF05D005D1> >> BDC (BA) Tj EMC"), "אב");
  assert.equal(rightToLeft("(CBA) Tj 1 0 0 1 0.3 0 Tm (CBA) Tj"), "אבג");
});

test("characters that a font does not explain are counted", () =>
  withWorkspace({
    "unknown.pdf": makePdf({
      contents: `${textLine("known")} BT /F2 10 Tf <00010002> Tj ET`,
      fonts: "/F2 10 0 R",
      parts: ["<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /DescendantFonts [<< >>] >>"],
    }),
  }, async ({ root }) => {
    const { result } = await createToolBench({ root }).call("pdf_read", "unknown.pdf");
    assert.equal(
      result.output,
      "[Page 1 of 1]\nknown\n\n[2 characters are missing: their fonts do not say what they mean]",
    );
  }));

test("every filter of text is undone", () => {
  const line = textLine("Hello");
  const filtered = (filter: string, stream: string | Uint8Array) =>
    textOf({ page: "/Contents 10 0 R", parts: [{ dict: filter, stream }] });
  assert.equal(filtered("/Filter /FlateDecode", deflateSync(line)), "Hello");
  assert.equal(filtered("/Filter /ASCIIHexDecode", `${Buffer.from(line).toString("hex")}>`), "Hello");
  assert.equal(filtered("/Filter [/AHx /Fl]", `${deflateSync(line).toString("hex")}>`), "Hello");
  assert.equal(
    filtered("/Filter /ASCII85Decode", "6<#'\\7PQ#@1a#b0+>GQ(+?(u.+B2ko-qIocCi:FtDfTZ).9(%)78s~>"),
    "Hello World",
  );
  assert.equal(filtered("/Filter /RunLengthDecode", `${String.fromCharCode(line.length - 1)}${line}\x80`), "Hello");
  const rows = Buffer.concat(line.match(/.{1,10}/gs)?.map((row) => Buffer.from(`\0${row.padEnd(10)}`)) ?? []);
  assert.equal(
    filtered("/Filter /FlateDecode /DecodeParms << /Predictor 12 /Columns 10 >>", deflateSync(rows)),
    "Hello",
  );
});

test("LZW is undone as its specification's example shows", () => {
  const packed = Buffer.from("800B6050220C0C8501", "hex");
  const { text } = read(makePdf({
    page: "/Contents [11 0 R 10 0 R 12 0 R]",
    parts: [{ dict: "/Filter /LZWDecode", stream: packed }, { dict: "", stream: "BT /F1 9 Tf (" }, {
      dict: "",
      stream: ") Tj ET",
    }],
  }));
  assert.equal(text.replaceAll("\n", ""), "[Page 1 of 1]-----A---B");
});

test("forms, replaced text, pictures and filled fields are read", () => {
  const form = { dict: "/Subtype /Form /Matrix [1 0 0 1 0 -50]", stream: "BT /F1 12 Tf 50 700 Td (inside) Tj ET" };
  assert.equal(
    textOf({ contents: `${textLine("outside")} /X Do`, resources: "/XObject << /X 10 0 R >>", parts: [form] }),
    "outside\n\ninside",
  );
  assert.equal(
    textOf({ contents: "BT /F1 9 Tf /Span << /ActualText <FEFF00660066> >> BDC (\\001) Tj (\\002) Tj EMC (x) Tj ET" }),
    "ffx",
  );
  assert.equal(textOf({ contents: `BI /W 1 /H 1 ID \x00(EI) Tj\xff EI ${textLine("after")}` }), "after");
  const picture = { dict: "/Subtype /Image /Filter /DCTDecode", stream: "\xff\xd8" };
  assert.equal(
    textOf({ contents: "/X Do", resources: "/XObject << /X 10 0 R >>", parts: [picture] }),
    "[No text: the page is a picture, perhaps a scan]",
  );
  const field = "<< /Subtype /Widget /FT /Tx /T (name) /V (Ada) /Parent 11 0 R >>";
  assert.equal(
    textOf({ contents: textLine("Form"), page: "/Annots [10 0 R]", parts: [field, "<< /T (person) >>"] }),
    "Form\n[Form fields]\nperson.name: Ada",
  );
  assert.equal(textOf({}), "[No text]");
});

test("long documents are cut between pages, with a notice that leads through all of them", () =>
  withWorkspace({ "long.pdf": manyPages(450, textLine("word ".repeat(300))) }, async ({ root }) => {
    const { call } = createToolBench({ root });
    let next: number | null = 1;
    let seen = 0;
    for (let calls = 0; next !== null && calls < 10; calls++) {
      const { result } = await call("pdf_read", { path: "long.pdf", page_start: next });
      seen += result.output.match(/^\[Page \d+ of 450\]$/gm)?.length ?? 0;
      assert.ok(Buffer.byteLength(result.output) < 262_144);
      const { next_page } = result.data as { next_page: number | null };
      if (next_page !== null) assert.match(result.output, new RegExp(`go on with "page_start": ${next_page}\\]$`));
      next = next_page;
    }
    assert.deepEqual([seen, next], [450, null]);
  }));

test("a page longer than the output is cut with a notice", () => {
  const { truncated, text } = read(makePdf({ contents: textLine("word ".repeat(100_000)) }));
  assert.deepEqual([truncated, Buffer.byteLength(text)], [true, 250_000]);
});

test("compressed bombs are refused, alone, nested and together", () => {
  const zeros = deflateSync(Buffer.alloc(70_000_000));
  const bomb = (filter: string, stream: Uint8Array) =>
    refusal(makePdf({ page: "/Contents 10 0 R", parts: [{ dict: filter, stream }] }));
  const alone = bomb("/Filter /FlateDecode", zeros);
  assert.deepEqual([alone.code, alone.message], [
    "document_too_large",
    "a compressed part of it holds more than the 67108864 bytes that are read",
  ]);
  assert.equal(bomb("/Filter [/FlateDecode /FlateDecode]", deflateSync(zeros)).code, "document_too_large");
  const runs = Buffer.alloc(2_000_000, Buffer.from([129, 65]));
  assert.equal(bomb("/Filter /RunLengthDecode", runs).code, "document_too_large");
  assert.equal(bomb("/Filter /ASCII85Decode", Buffer.alloc(17_000_000, "z")).code, "document_too_large");
  const part = { dict: "/Filter /FlateDecode", stream: deflateSync(Buffer.alloc(40_000_000)) };
  const together = refusal(
    makePdf({ page: "/Contents [10 0 R 11 0 R 12 0 R 13 0 R]", parts: [part, part, part, part] }),
  );
  assert.equal(together.code, "document_too_large");
});

test("pages before one that is over a bound are read, and the last line says which one was not and why", () => {
  const page = (contents: string) =>
    `<< /Type /Page /Parent 2 0 R /Contents ${contents} /Resources << /Font << /F1 5 0 R >> >> >>`;
  const bytes = makePdf({
    contents: textLine("Hello"),
    pages: "<< /Type /Pages /Kids [10 0 R 11 0 R 12 0 R] /Count 3 >>",
    parts: [page("4 0 R"), page("13 0 R"), page("4 0 R"), {
      dict: "/Filter /FlateDecode",
      stream: deflateSync(Buffer.alloc(70_000_000)),
    }],
  });
  return withWorkspace({ "long.pdf": bytes }, async ({ root }) => {
    const { call } = createToolBench({ root });
    const { result } = await call("pdf_read", "long.pdf");
    assert.equal(
      result.output,
      "[Page 1 of 3]\nHello\n\n[Page 2 of 3 was not read: a compressed part of it holds more than the 67108864 bytes that are " +
        'read; try "page_start": 2]',
    );
    assert.deepEqual([result.isError, (result.data as { next_page: unknown }).next_page], [false, 2]);
    const alone = (await call("pdf_read", { path: "long.pdf", page_start: 2 })).result;
    assert.deepEqual([alone.isError, /holds more than the 67108864 bytes/.test(alone.output)], [true, true]);
    assert.equal((await call("pdf_read", { path: "long.pdf", page_start: 3 })).result.output, "[Page 3 of 3]\nHello");
  });
});

test("encryption that is not read is named", () => {
  const { code, message } = refusal(makePdf({ trailer: "/Encrypt << /Filter /Adobe.PubSec /V 4 >>" }));
  assert.deepEqual([code, message], ["document_encrypted", 'it is encrypted by "Adobe.PubSec", which is not read']);
  const other = refusal(makePdf({ trailer: "/Encrypt << /Filter /Standard /V 3 >>" }));
  assert.equal(other.message, "it is encrypted by version 3, which is not read");
  assert.equal(refusal(new Uint8Array(0)).message, "it is empty");
});

test("what leads in a circle ends", () => {
  assert.equal(
    textOf({ contents: textLine("a"), pages: "<< /Type /Pages /Kids [3 0 R 2 0 R 2 0 R] /Count 99999999 >>" }),
    "a",
  );
  const form = {
    dict: "/Subtype /Form /Resources << /Font << /F1 5 0 R >> /XObject << /X 10 0 R >> >>",
    stream: `/X Do ${textLine("in")}`,
  };
  assert.match(textOf({ contents: "/X Do", resources: "/XObject << /X 10 0 R >>", parts: [form] }), /^in/);
  assert.equal(
    textOf({ page: "/Contents 10 0 R", parts: [{ dict: "/Length 10 0 R", stream: textLine("own") }] }),
    "own",
  );
  assert.equal(textOf({ page: "/Contents 10 0 R", parts: ["11 0 R", "10 0 R"] }), "[No text]");
  const looping = Buffer.from(makePdf({ contents: textLine("a") })).toString("latin1");
  const start = /startxref\n(\d+)/.exec(looping)?.[1];
  assert.match(read(Buffer.from(looping.replace("/Size 100", `/Prev ${start}`), "latin1")).text, /a$/);
});

test("work without end is stopped by its time", () => {
  const call = "/X Do ".repeat(200);
  const forms = Array.from({ length: 12 }, (_, i) => ({
    dict: `/Subtype /Form /Resources << /XObject << /X ${11 + i} 0 R >> >>`,
    stream: call,
  }));
  const started = processorMs();
  const { code, message } = refusal(makePdf({ contents: call, resources: "/XObject << /X 10 0 R >>", parts: forms }), {
    limits: { ...LIMITS, timeMs: 100 },
  });
  assert.deepEqual([code, message], ["document_too_slow", "it takes longer than 0.1 s to read"]);
  assert.ok(processorMs() - started < 10_000);
});

test("a call that is cancelled ends at once", () =>
  withWorkspace({
    "slow.pdf": makePdf({
      contents: "/X Do ".repeat(200),
      resources: "/XObject << /X 10 0 R >>",
      parts: Array.from({ length: 12 }, (_, i) => ({
        dict: `/Subtype /Form /Resources << /XObject << /X ${11 + i} 0 R >> >>`,
        stream: "/X Do ".repeat(200),
      })),
    }),
  }, async ({ root }) => {
    const controller = new AbortController();
    const { call } = createToolBench({ root });
    const ending = call("pdf_read", "slow.pdf", {
      signal: controller.signal,
      onStart: () => Promise.resolve(controller.abort()),
    });
    await assert.rejects(ending, { name: "CancelError" });
  }));

test("many and deep parts are bounded", () => {
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  assert.equal(textOf({ contents: `${deep} TJ ${textLine("a")}`, parts: [deep] }), "a");
  assert.match(
    textOf({ contents: `[${"1 ".repeat(600_000)}] TJ` }),
    /^\[The page cannot be read: an operator of it has too many/,
  );
  const { code } = refusal(makePdf({ page: "/Contents 10 0 R", parts: [`[${"1 ".repeat(2_100_000)}]`] }));
  assert.equal(code, "document_too_large");
  const wide = "1 beginbfrange <00000000> <FFFFFFFF> <0000> endbfrange ".repeat(1000);
  const parts = ["<< /Subtype /Type1 /ToUnicode 11 0 R >>", { dict: "", stream: wide }];
  assert.equal(textOf({ contents: "BT /F2 9 Tf <41> Tj ET", fonts: "/F2 10 0 R", parts }), "A");
});

test("what is no PDF file is refused", () => {
  for (const text of ["", "hello", "%PDF-1.4", "%PDF-1.4\ntrailer << /Root 1 0 R >>", "PK\x03\x04"]) {
    assert.equal(refusal(Buffer.from(text, "latin1")).code, "document_invalid", text);
  }
});

test("any damage to a real document is a DocumentError or a reading, in time", () => {
  const documents = ["report", "packed", "page", "encrypted_aes"].map((name) => documentFixture(`pdf/${name}.pdf`));
  fc.assert(
    fc.property(
      fc.constantFrom(...documents),
      fc.array(fc.record({ at: fc.nat(), value: fc.nat(255) }), { minLength: 1, maxLength: 30 }),
      fc.option(fc.nat()),
      (original, changes, end) => {
        const bytes = original.slice(0, end === null ? undefined : end % original.length);
        for (const { at, value } of changes) if (bytes.length > 0) bytes[at % bytes.length] = value;
        attempt(bytes);
      },
    ),
    { numRuns: 150 },
  );
});

test("any operators and objects are a DocumentError or a reading", () => {
  const words = [
    "BT",
    "ET",
    "Tj",
    "TJ",
    "Td",
    "Tm",
    "Tf",
    "q",
    "Q",
    "cm",
    "Do",
    "BDC",
    "EMC",
    "[",
    "]",
    "<<",
    ">>",
    "(",
    ")",
    "<",
    "/F1",
  ];
  const token = fc.oneof(fc.constantFrom(...words), fc.double().map(String), fc.string({ maxLength: 5 }));
  fc.assert(
    fc.property(fc.array(token, { maxLength: 40 }), (tokens) => {
      const text = tokens.join(" ");
      attempt(makePdf({ contents: text }));
      attempt(makePdf({ contents: textLine("a"), parts: [text], page: "/Annots 10 0 R", trailer: "/Info 10 0 R" }));
    }),
    { numRuns: 150 },
  );
});

function attempt(bytes: Uint8Array): void {
  try {
    assert.equal(typeof read(bytes, { limits: { ...LIMITS, timeMs: 5000 } }).text, "string");
  } catch (error) {
    assert.ok(error instanceof DocumentError, error instanceof Error ? error.stack : String(error));
  }
}

/** Blank lines and the width of gaps are the layout's. */
function normal(text: string): string {
  return text.replace(/\n\n(?!\[)/g, "\n").replaceAll("\t", " ");
}

function withText(bytes: Uint8Array, at: number, text: string): Uint8Array {
  const changed = bytes.slice();
  changed.set(Buffer.from(text), at);
  return changed;
}

function manyPages(count: number, contents: string): Uint8Array {
  const kids = Array.from({ length: count }, (_, i) => `${10 + i} 0 R`).join(" ");
  const page = "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>";
  return makePdf({
    contents,
    pages: `<< /Type /Pages /Kids [${kids}] /Count ${count} >>`,
    parts: Array.from({ length: count }, () => page),
  });
}
