import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DocumentError } from "../../../lib/documents/document_error.ts";
import { docxText } from "../../../lib/documents/docx/docx_text.ts";
import { createWorkBudget } from "../../../lib/documents/work_budget.ts";
import { documentFixture } from "../../support/document_fixtures.ts";
import { type DocxParts, makeDocx, paragraph } from "./make_docx.ts";
import { makeZip } from "./make_zip.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { withWorkspace } from "../../support/workspace.ts";
import { processorMs } from "../../support/processor_time.ts";

const REPORT = documentFixture("report.docx");

/** Longer than anything takes on a slow host: another limit is to be met first */
const LIMITS = { timeMs: 60_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };

const read = (bytes: Uint8Array, limits = LIMITS) =>
  docxText(bytes, createWorkBudget(limits, { stopped: () => false }));
const textOf = (parts: DocxParts) => read(makeDocx(parts)).text;
const refusal = (bytes: Uint8Array, limits = LIMITS): DocumentError => {
  try {
    read(bytes, limits);
  } catch (error) {
    assert.ok(error instanceof DocumentError, String(error));
    return error;
  }
  throw new assert.AssertionError({ message: "It was read" });
};

test("a document made by a real program reads as Markdown", () =>
  withWorkspace({ "report.docx": REPORT }, async ({ root }) => {
    const { result } = await createToolBench({ root }).call("docx_read", "report.docx");
    assert.equal(
      result.output,
      [
        "# Gate report",
        "# What was seen",
        "Plain text with bold and umlauts äöü, 日本語, 😀 & <tags>.",
        "## Lists",
        "- first bullet\n- second bullet\n- nested bullet\n1. first number\n2. second number",
        "## Table",
        "| r0c0 | r0c1<br>r0c2 |  |\n| --- | --- | --- |\n| r1c0<br>r2c0 | r1c1 | r1c2 |\n|  | r2c1 | a \\| b<br>second line |",
        "See [the page](https://example.com/gate?a=1&b=2)",
        "tab\there and a line\nbreak[^c1]",
        "[^c1]: Bob: Is this right?",
      ].join("\n\n"),
    );
    assert.deepEqual(result.data, {
      path: "report.docx",
      size: REPORT.length,
      title: "Gate report",
      author: "Ada Example",
      paragraphs: 22,
      tables: 1,
      notes: 1,
      truncated: false,
    });
  }));

test("notes made by another real program read with their lists, mathematics and footnotes", () => {
  const { text, title } = read(documentFixture("notes.docx"));
  assert.equal(title, "Pandoc title");
  assert.equal(
    text,
    [
      "# Pandoc title",
      "Ada",
      "# Heading one",
      "Text with emphasis, bold, code, a [link](https://example.com/x) and a footnote.[^1] Math E=mc^2 and",
      "∫_0^1 x^2dx=1/3",
      "## Sub heading",
      "1. one\n2. two\n  a. nested a\n  b. nested b\n    - deep bullet\n3. three\n- bullet\n  - inner bullet",
      "A quote",
      "| Col A | Col B |\n| --- | --- |\n| a1 | 1 |\n| a2 | 22 |",
      "def f(x):\n    return x  # code",
      "Definition",
      "its text",
      "Second para with another.[^2]",
      "[^1]: The footnote text with bold.\n[^2]: Second note.\nWith two paragraphs.",
    ].join("\n\n"),
  );
});

test("formulas are written on one line", () => {
  const run = (text: string) => `<m:r><m:t>${text}</m:t></m:r>`;
  const half = `<m:f><m:num>${run("a+b")}</m:num><m:den>${run("2")}</m:den></m:f>`;
  const root = `<m:rad><m:deg>${run("3")}</m:deg><m:e>${run("x")}</m:e></m:rad>`;
  const sum =
    `<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>${run("i=1")}</m:sub><m:sup>${run("n")}</m:sup><m:e>` +
    `<m:sSub><m:e>${run("x")}</m:e><m:sub>${run("i")}</m:sub></m:sSub></m:e></m:nary>`;
  const brackets = `<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e>${run("y")}</m:e></m:d>`;
  const body = `<w:p><m:oMath>${half}${root}${sum}${brackets}</m:oMath></w:p>`;
  assert.equal(textOf({ body }), "(a+b)/2√^3(x)∑_(i=1)^n x_i[y]");
});

test("footnotes and endnotes are numbered as the text names them and stand at the end", () => {
  const note = (kind: string, id: number, text: string) => `<w:${kind} w:id="${id}">${paragraph(text)}</w:${kind}>`;
  const separator = '<w:footnote w:type="separator" w:id="-1"><w:p/></w:footnote>';
  const reference = (kind: string, id: number) =>
    `<w:p><w:r><w:t>See</w:t><w:${kind}Reference w:id="${id}"/></w:r></w:p>`;
  const text = textOf({
    body: reference("footnote", 7) + reference("footnote", 3) + reference("endnote", 3) + reference("footnote", 7) +
      reference("footnote", 99) + reference("footnote", -1),
    parts: {
      footnotes: separator + note("footnote", 3, "three") + note("footnote", 7, "seven"),
      endnotes: note("endnote", 3, "at the end"),
    },
  });
  assert.equal(
    text,
    "See[^1]\n\nSee[^2]\n\nSee[^e1]\n\nSee[^1]\n\nSee\n\nSee\n\n[^1]: seven\n[^2]: three\n[^e1]: at the end",
  );
});

const run = (text: string) => `<w:r><w:t xml:space="preserve">${text}</w:t></w:r>`;
const mark = (type: string) => `<w:r><w:fldChar w:fldCharType="${type}"/></w:r>`;
const code = (text: string) => `<w:r><w:instrText xml:space="preserve">${text}</w:instrText></w:r>`;
const field = (instruction: string, result: string) =>
  mark("begin") + code(instruction) + mark("separate") + result + mark("end");
const shown = (inside: string, more: Partial<DocxParts> = {}) => textOf({ body: `<w:p>${inside}</w:p>`, ...more });

test("the address of a field that links is kept, whatever form it is written in", () => {
  const address = "https://a.example/x?y=1";
  const link = `[here](${address})`;
  const quoted = (text: string) => text.replaceAll('"', "&quot;");
  assert.equal(
    shown(`<w:fldSimple w:instr="${quoted(` HYPERLINK "${address}" `)}">${run("here")}</w:fldSimple>`),
    link,
  );
  assert.equal(
    shown(run("see ") + field(` HYPERLINK "${address}" `, run("he") + run("re")) + run("!")),
    `see ${link}!`,
  );
  assert.equal(shown(field(` hyperlink ${address} \\o "a tip" \\t "_blank" \\h `, run("here"))), link);
  const cut = mark("begin") + code(' HYPERLINK "https://a.ex') + code('ample/x?y=1" ') + mark("separate") + run("here");
  assert.equal(shown(cut + mark("end")), link);
  assert.equal(shown(field(' HYPERLINK "\\\\\\\\host\\\\share" ', run("here"))), "[here](\\\\host\\share)");
  assert.equal(shown(field(` HYPERLINK "${address}" `, run(address))), address);
  assert.equal(shown(field(" PAGE ", run("12")) + field(' HYPERLINK "" ', run("none"))), "12none");
});

test("fields in each other give one link, and no text of an instruction", () => {
  const inner = field(" DOCPROPERTY Page ", run("https://a.example"));
  const outer = mark("begin") + code(' HYPERLINK "') + inner + code('" ') + mark("separate") + run("here") +
    mark("end");
  assert.equal(shown(outer), "[here](https://a.example)");
  const page = field(" PAGEREF _Toc1 \\h ", run("7"));
  assert.equal(
    shown(field(' HYPERLINK "https://a.example" ', run("Chapter ") + page)),
    "[Chapter 7](https://a.example)",
  );
  const condition = mark("begin") + code(" IF ") + field(" DATE ", run("hidden")) + code(" = 1 ") + mark("separate");
  assert.equal(shown(condition + run("yes") + mark("end")), "yes");
  const twice = field(' HYPERLINK "https://a.example" ', field(' HYPERLINK "https://b.example" ', run("here")));
  assert.equal(shown(twice), "[here](https://b.example)");
});

test("a field may go on over paragraphs, and one without an end hides nothing", () => {
  const first = mark("begin") + code(' HYPERLINK "https://a.example" ') + mark("separate") + run("one");
  const body = `<w:p>${first}</w:p><w:p>${run("two")}${mark("end")}${run(" three")}</w:p>`;
  assert.equal(textOf({ body }), "[one](https://a.example)\n\n[two](https://a.example) three");
  assert.equal(textOf({ body: `<w:p>${mark("begin")}${run("a")}</w:p>${paragraph("b")}` }), "a\n\nb");
  assert.equal(shown(mark("end") + mark("separate") + run("a") + mark("begin") + mark("end") + run("b")), "ab");
  const link = `<w:hyperlink w:anchor="x">${mark("begin")}${run("in")}</w:hyperlink>${run(" after")}`;
  assert.equal(shown(link), "[in](#x) after");
  const hidden = "<w:rPr><w:vanish/></w:rPr>";
  const entry = [mark("begin"), code(' XE "gate" '), mark("end")].map((part) =>
    part.replace("<w:r>", `<w:r>${hidden}`)
  );
  assert.equal(shown(run("a") + entry.join("") + run("b")), "ab");
});

test("links to bookmarks name them, and the bookmarks that links lead to are marked", () => {
  const bookmark = (name: string) => `<w:bookmarkStart w:id="1" w:name="${name}"/><w:bookmarkEnd w:id="1"/>`;
  const body =
    `<w:p><w:hyperlink w:anchor="first">${run("one")}</w:hyperlink> ${
      field(' HYPERLINK \\l "second" ', run("two"))
    }<w:hyperlink r:id="page" w:anchor="part">${run("three")}</w:hyperlink></w:p>` +
    `<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr>${bookmark("first")}${bookmark("other")}${run("First")}</w:p>` +
    bookmark("second") + paragraph("Second");
  assert.equal(
    textOf({ body, links: { page: "https://a.example" } }),
    '[one](#first)[two](#second)[three](https://a.example#part)\n\n# <a id="first"></a>First\n\n<a id="second"></a>Second',
  );
  assert.equal(
    shown(field(' HYPERLINK "https://a.example/x" \\l "part" ', run("here"))),
    "[here](https://a.example/x#part)",
  );
});

test("links in notes have the addresses of the notes' own part", () => {
  const note = (kind: string) =>
    `<w:${kind} w:id="2"><w:p><w:hyperlink r:id="l">${run("here")}</w:hyperlink></w:p></w:${kind}>`;
  const kinds = ["footnotes", "endnotes", "comments"];
  const text = shown(
    '<w:r><w:footnoteReference w:id="2"/><w:endnoteReference w:id="2"/><w:commentReference w:id="2"/></w:r>',
    {
      links: { l: "https://body.example" },
      parts: Object.fromEntries(kinds.map((kind) => [kind, note(kind.slice(0, -1))])),
      partLinks: { footnotes: { l: "https://foot.example" }, endnotes: { l: "https://end.example" } },
    },
  );
  assert.equal(
    text,
    "[^1][^e1][^c1]\n\n[^1]: [here](https://foot.example)\n[^e1]: [here](https://end.example)\n[^c1]: here",
  );
});

test("lists carry the labels that Word shows, headings theirs too", () => {
  const level = (at: number, format: string, text: string) =>
    `<w:lvl w:ilvl="${at}"><w:start w:val="1"/><w:numFmt w:val="${format}"/><w:lvlText w:val="${text}"/></w:lvl>`;
  const numbering = '<w:abstractNum w:abstractNumId="0">' + level(0, "decimal", "%1.") +
    level(1, "lowerLetter", "%2)") +
    level(2, "upperRoman", "%1.%2.%3") + "</w:abstractNum>" +
    `<w:abstractNum w:abstractNumId="1">${level(0, "bullet", "")}</w:abstractNum>` +
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>' +
    '<w:num w:numId="3"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride></w:num>';
  const styles =
    '<w:style w:styleId="Base"><w:name w:val="heading 2"/><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr></w:style>' +
    '<w:style w:styleId="Chapter"><w:name w:val="Chapter"/><w:basedOn w:val="Base"/></w:style>';
  const item = (text: string, id: number, at: number) =>
    paragraph(text, `<w:numPr><w:ilvl w:val="${at}"/><w:numId w:val="${id}"/></w:numPr>`);
  const body = item("one", 1, 0) + item("a", 1, 1) + item("b", 1, 1) + item("deep", 1, 2) + item("two", 1, 0) +
    item("a again", 1, 1) + item("dot", 2, 0) + item("none", 0, 0) + item("unknown", 9, 0) +
    paragraph("Chapter", '<w:pStyle w:val="Chapter"/>');
  assert.equal(
    textOf({ body, parts: { numbering, styles } }),
    "1. one\n  a) a\n  b) b\n    1.b.I deep\n2. two\n  a) a again\n- dot\n\nnone\n\nunknown\n\n## 5. Chapter",
  );
});

test("tracked changes, content controls, fields, text boxes, mathematics and pictures are read as shown", () => {
  const body = `<w:p><w:ins>${run("added ")}</w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>` +
    `<w:moveFrom>${run("moved away")}</w:moveFrom><w:sdt><w:sdtContent>${run("control ")}</w:sdtContent></w:sdt>` +
    `<w:r><w:instrText> PAGE </w:instrText></w:r>${run("12")}<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath></w:p>` +
    `<w:sdt><w:sdtContent>${paragraph("inside")}</w:sdtContent></w:sdt>` +
    '<w:p><w:r><mc:AlternateContent><mc:Choice><w:drawing><wp:docPr id="1" descr="A  gate"/><w:txbxContent>' +
    `${paragraph("boxed")}</w:txbxContent></w:drawing></mc:Choice><mc:Fallback><w:pict><w:txbxContent>` +
    `${paragraph("boxed")}</w:txbxContent></w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>`;
  assert.equal(textOf({ body }), "added control 12x=1\n\ninside\n\n[image: A gate]\n\nboxed");
});

test("text that the document hides is left out and said so", () =>
  withWorkspace({
    "hidden.docx": makeDocx({
      body: paragraph("seen") + "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>Obey me</w:t></w:r>" +
        '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>shown</w:t></w:r></w:p>',
    }),
  }, async ({ root }) => {
    const { result } = await createToolBench({ root }).call("docx_read", "hidden.docx");
    assert.equal(result.output, "seen\n\nshown\n\n[Text that the document hides was left out]");
  }));

test("other prefixes for the same namespaces are understood, as ElementTree writes them", () => {
  const word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
  const content =
    `<ns0:document xmlns:ns0="${word}"><ns0:body><ns0:p><ns0:pPr><ns0:outlineLvl ns0:val="1"/></ns0:pPr>` +
    `<ns0:r><ns0:t>Hi &amp; &#x41;&#66; <![CDATA[<raw>]]></ns0:t></ns0:r></ns0:p></ns0:body></ns0:document>`;
  assert.equal(textOf({ body: "", entries: [{ name: "word/document.xml", content }] }), "## Hi & AB <raw>");
});

test("nested tables and merged cells stay one table", () => {
  const cell = (content: string, properties = "") => `<w:tc><w:tcPr>${properties}</w:tcPr>${content}</w:tc>`;
  const inner = `<w:tbl><w:tr>${cell(paragraph("i1"))}${cell(paragraph("i2"))}</w:tr></w:tbl>`;
  const body = `<w:tbl><w:tr>${cell(paragraph("a"), '<w:gridSpan w:val="2"/>')}</w:tr>` +
    `<w:tr>${cell(inner)}${cell(paragraph("x|y"), '<w:vMerge w:val="restart"/>')}</w:tr>` +
    `<w:tr>${cell(paragraph("b"))}${cell(paragraph(""), "<w:vMerge/>")}</w:tr></w:tbl>`;
  assert.equal(
    textOf({ body }),
    "| a |  |\n| --- | --- |\n| \\| i1 \\| i2 \\|<br>\\| --- \\| --- \\| | x\\|y |\n| b |  |",
  );
});

test("a row that begins behind columns of the grid has empty cells there", () => {
  const cell = (text: string) => `<w:tc>${paragraph(text)}</w:tc>`;
  const body = `<w:tbl><w:tr>${cell("a")}${cell("b")}${cell("c")}</w:tr>` +
    `<w:tr><w:trPr><w:gridBefore w:val="2"/></w:trPr>${cell("d")}</w:tr>` +
    `<w:tr><w:trPr><w:gridBefore w:val="-9"/></w:trPr>${cell("e")}</w:tr></w:tbl>`;
  assert.equal(textOf({ body }), "| a | b | c |\n| --- | --- | --- |\n|  |  | d |\n| e |  |  |");
});

test("an address that no page or mailbox has is no link, and its text stays", () => {
  for (
    const address of ["javascript:alert(1)", " JavaScript:x", "data:text/html,x", "file:///etc/passwd", "vbscript:x"]
  ) {
    const link = `<w:p><w:hyperlink r:id="l" w:anchor="part">${run("here")}</w:hyperlink></w:p>`;
    assert.equal(textOf({ body: link, links: { l: address } }), "here", address);
    assert.equal(shown(field(` HYPERLINK "${address}" `, run("here"))), "here", address);
  }
  for (const address of ["https://a.example/x", "mailto:a@b.example", "other.docx"]) {
    assert.equal(shown(field(` HYPERLINK "${address}" `, run("here"))), `[here](${address})`);
  }
});

test("a long document is cut with a notice", () =>
  withWorkspace({ "long.docx": makeDocx({ body: paragraph("wörter ".repeat(1000)).repeat(60) }) }, async ({ root }) => {
    const { result } = await createToolBench({ root }).call("docx_read", "long.docx");
    assert.match(result.output, /\n\n\[Cut after 250000 bytes: the document is longer\]$/);
    assert.ok(Buffer.byteLength(result.output) < 262_144);
  }));

test("what is no Word document is refused by what it is", () => {
  const ole = new Uint8Array(600).fill(1);
  ole.set([0xd0, 0xcf, 0x11, 0xe0]);
  assert.match(refusal(ole).message, /an old \.doc file, or protected by a password/);
  assert.equal(refusal(new Uint8Array(0)).code, "document_invalid");
  assert.match(refusal(new TextEncoder().encode("%PDF-1.4")).message, /no ZIP archive/);
  const kinds = [["xl/workbook.xml", "an Excel workbook"], ["ppt/presentation.xml", "a PowerPoint presentation"], [
    "mimetype",
    "an OpenDocument or EPUB file",
  ], ["a.txt", "a ZIP archive of another kind"]] as const;
  for (const [name, kind] of kinds) {
    const { code, message } = refusal(makeZip([{ name, content: "<a/>" }]));
    assert.deepEqual([code, message], ["document_unsupported", `it is no Word document but ${kind}`]);
  }
});

test("a ZIP bomb is refused before it is taken out, whether its headers lie or not", () => {
  const zeros = Buffer.alloc(40_000_000, "a");
  const document = (more: object) =>
    makeDocx({ body: "", entries: [{ name: "word/document.xml", content: zeros, ...more }] });
  const honest = refusal(document({}));
  assert.equal(honest.code, "document_too_large");
  assert.match(honest.message, /^its part "word\/document.xml" is larger than the 33554432 bytes that are read$/);
  const lying = refusal(document({ claimedBytes: 100 }));
  assert.deepEqual([lying.code, lying.message], [
    "document_invalid",
    'its part "word/document.xml" is damaged, or larger than its archive says',
  ]);
  assert.match(refusal(document({ content: "<a/>", claimedBytes: 5 })).message, /has not the size its archive says/);
  assert.match(refusal(document({ content: "<a/>", crc: 1 })).message, /checksum/);
  assert.equal(refusal(document({ content: "<a/>", flags: 1 })).code, "document_encrypted");
  assert.equal(refusal(document({ content: "<a/>", method: 12 })).code, "document_unsupported");
});

test("all parts together are bounded", () => {
  const big = `<!--${" ".repeat(3_000_000)}-->`;
  const kinds = ["styles", "numbering", "footnotes", "endnotes"];
  const bytes = makeDocx({
    body: `${big}<w:p><w:r><w:footnoteReference w:id="1"/><w:endnoteReference w:id="1"/></w:r></w:p>`,
    parts: Object.fromEntries(kinds.map((kind) => [kind, big])),
  });
  const { code, message } = refusal(bytes, { ...LIMITS, maxInflatedBytes: 13_000_000 });
  assert.deepEqual([code, message.includes("is larger than the")], ["document_too_large", true]);
});

test("entities, a document type and outside addresses of XML are refused", () => {
  const laughs = '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><w:document>&b;</w:document>';
  const outside = '<!DOCTYPE a SYSTEM "file:///etc/passwd"><w:document/>';
  for (const content of [laughs, outside]) {
    const { code, message } = refusal(makeDocx({ body: "", entries: [{ name: "word/document.xml", content }] }));
    assert.equal(code, "document_invalid");
    assert.equal(message, "its XML is damaged: it declares a document type, which is refused");
  }
  assert.equal(
    textOf({ body: paragraph("&constructor;&unknown;&#xD800;&#9999999;") }),
    "&constructor;&unknown;\ufffd\ufffd",
  );
});

test("nesting, many elements and many attributes end in time", () => {
  assert.match(refusal(makeDocx({ body: "<w:p>".repeat(100_000) })).message, /nested deeper than 200 levels/);
  assert.match(
    refusal(makeDocx({ body: "<w:p/>".repeat(10_001) }), { ...LIMITS, maxParts: 20_000 }).message,
    /more than the 20000 parts that are read/,
  );
  const started = processorMs();
  const attributes = ' a="1"'.repeat(1_000_000);
  assert.equal(textOf({ body: `<w:p${attributes}/>${paragraph(`${" ".repeat(3_000_000)}x`)}` }), "x");
  assert.equal(
    textOf({ body: `<w:tbl><w:tr><w:tc>${paragraph(`x${" ".repeat(3_000_000)}y`)}</w:tc></w:tr></w:tbl>` }).length,
    250_000,
  );
  const names = Array.from({ length: 200 }, (_, i) => ` xmlns:n${i}="http://purl.org/dc/elements/1.1/"`).join("");
  assert.match(refusal(makeDocx({ body: `<w:p${names}/>` })).message, /more than 100 namespaces/);
  assert.ok(processorMs() - started < 60_000);
});

test("a text that grows far beyond its document is cut as it grows", () => {
  // docx_read.system.ts makes each longer than any string may be
  const sign = "s".repeat(100_000);
  const formula = `<m:oMath><m:d><m:dPr><m:sepChr m:val="${sign}"/></m:dPr>${
    "<m:e><m:r><m:t>x</m:t></m:r></m:e>".repeat(triesOf(200))
  }</m:d></m:oMath>`;
  assert.match(textOf({ body: `<w:p>${formula}</w:p>${paragraph("after")}` }), /^\(xs{1,8}x[xs]+\)\n\nafter$/);
  const deep = `${"<m:sSup><m:e>".repeat(60)}<m:r><m:t>${"y".repeat(triesOf(110_000))}</m:t></m:r>${
    "</m:e><m:sup><m:r><m:t>z</m:t></m:r></m:sup></m:sSup>".repeat(60)
  }`;
  assert.equal(textOf({ body: `<w:p><m:oMath>${deep}</m:oMath></w:p>` }).length, 100_000);
  const link = '<w:hyperlink r:id="a" w:anchor="b"><w:r><w:t>x</w:t></w:r></w:hyperlink>';
  const links = { a: `https://example.com/${"a".repeat(triesOf(400_000))}` };
  const text = textOf({ body: `<w:p>${link.repeat(triesOf(10_000))}</w:p>`, links });
  assert.equal(text.length, 250_000);
});

test("any damage to a real document is a DocumentError or a reading, in time", () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ at: fc.nat(REPORT.length - 1), value: fc.nat(255) }), { minLength: 1, maxLength: 20 }),
      fc.nat(REPORT.length),
      fc.boolean(),
      (changes, length, cut) => {
        const bytes = REPORT.slice(0, cut ? length : undefined);
        for (const { at, value } of changes) if (at < bytes.length) bytes[at] = value;
        attempt(bytes);
      },
    ),
    { numRuns: 150 },
  );
});

test("any damage to the XML inside is a DocumentError or a reading", () => {
  const body = paragraph("text") + `<w:tbl><w:tr><w:tc>${paragraph("cell")}</w:tc></w:tr></w:tbl>` +
    '<w:p><w:hyperlink r:id="l"><w:r><w:t>link</w:t></w:r></w:hyperlink></w:p>';
  fc.assert(
    fc.property(fc.nat(body.length), fc.nat(20), fc.constantFrom("", "<", ">", '"', "</w:p>", "<w:p>", "&", "<!--"), (
      at,
      length,
      put,
    ) =>
      attempt(
        makeDocx({ body: body.slice(0, at) + put + body.slice(at + length), links: { l: "https://a.example" } }),
      )),
    { numRuns: 150 },
  );
});

function attempt(bytes: Uint8Array): void {
  try {
    assert.equal(typeof read(bytes, { ...LIMITS, timeMs: 5000 }).text, "string");
  } catch (error) {
    assert.ok(error instanceof DocumentError, String(error));
  }
}
