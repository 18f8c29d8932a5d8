import { createHash } from "node:crypto";
import { deflateSync } from "node:zlib";
import { makePdf, type PdfPart, textLine } from "./make_pdf.ts";

/** Builders of PDF files that are made to cost as much time or memory as they can, by what they are full of. */
export const HOSTILE_PDFS: Readonly<Record<string, () => Uint8Array>> = {
  "a tree of pages with loops": () => {
    const kids = Array.from({ length: 20_000 }, (_, i) => `${10 + i % 500} 0 R`).join(" ");
    return pageTree(Array.from({ length: 500 }, () => `<< /Type /Pages /Kids [2 0 R ${kids.slice(0, 2000)}] >>`), kids);
  },
  "nodes of pages that share one list of kids": () => {
    const kids = Array.from({ length: 100_000 }, (_, i) => `${11 + i % 30_000} 0 R`).join(" ");
    return pageTree([`[${kids}]`, ...Array.from({ length: 30_000 }, () => "<< /Kids 10 0 R >>")], kids);
  },
  "a chain of page nodes": () =>
    pageTree(Array.from({ length: 30_000 }, (_, i) => `<< /Kids [${11 + i} 0 R] >>`), "10 0 R"),
  "65,535 pages": () =>
    pageTree(
      Array.from({ length: 65_535 }, () => "<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>"),
      Array.from({ length: 65_535 }, (_, i) => `${10 + i} 0 R`).join(" "),
    ),
  "streams of objects inside each other": packedChain,
  "streams whose lengths are streams": () =>
    withContents(Array.from({ length: 30_000 }, (_, i) => ({ dict: `/Length ${11 + i} 0 R`, stream: "" }))),
  "free entries that many sections list": () => {
    const entries = "0000000000 65535 f \n".repeat(500_000);
    const xref = `xref\n0 500000\n${entries}trailer\n<< /Root 1 0 R /Prev `;
    // Each section starts one space later than the one before it
    const spaces = " ".repeat(1000);
    const head = "%PDF-1.4\n1 0 obj << /Pages 2 0 R >> endobj 2 0 obj << /Kids [] >> endobj\n";
    const starts = Array.from({ length: 1000 }, (_, i) => head.length + i);
    const sections = starts.map((at) => `xref 0 0 trailer << /Prev ${at} >> `);
    let offset = head.length + spaces.length + xref.length + 20;
    const chained = sections.map((section, i) => {
      const at = offset;
      const next = section.replace(" >>", ` /XRefStm ${offset + section.length + 20} >>`).padEnd(section.length + 20);
      offset += next.length;
      return { at, next: i === sections.length - 1 ? section : next };
    });
    const first = `${xref}${chained[0]?.at ?? 0} >>`.padEnd(xref.length + 20);
    return latin1(`${head}${spaces}${first}${chained.map(({ next }) => next).join("")}\nstartxref\n${head.length}\n`);
  },
  "a section that leads to itself": () =>
    latin1(
      "%PDF-1.4\n1 0 obj << /Pages 2 0 R >> endobj 2 0 obj << /Kids [] >> endobj xref 0 0 trailer << /Root 1 0 R /Prev 74 " +
        "/XRefStm 74 >>\nstartxref\n74\n",
    ),
  "a cross-reference stream of entries that say nothing": () => {
    const stream = deflateSync(Buffer.alloc(60_000_000)).toString("latin1");
    const head = "%PDF-1.5\n";
    return latin1(
      `${head}5 0 obj << /Type /XRef /W [1 0 0] /Size 90000000 /Root 1 0 R /Filter /FlateDecode /Length ${stream.length} >>` +
        `stream\n${stream}\nendstream endobj\nstartxref\n${head.length}\n`,
    );
  },
  "maps of wide ranges": () =>
    withFont("<< /Subtype /Type0 /ToUnicode 11 0 R /Encoding /Identity-H >>", [
      { dict: "", stream: "1 beginbfrange <00000000> <FFFFFFFF> <0041> endbfrange\n".repeat(100_000) },
    ]),
  "maps that build on each other": () =>
    withFont("<< /Subtype /Type0 /Encoding 11 0 R >>", [
      { dict: "/UseCMap 11 0 R", stream: "1 begincidrange <0000> <FFFF> 0 endcidrange ".repeat(50_000) },
    ]),
  "a map of many texts": () =>
    withFont("<< /Subtype /Type0 /ToUnicode 11 0 R >>", [
      { dict: "", stream: `1 beginbfchar ${`<0041> <${"0041".repeat(60)}>\n`.repeat(80_000)} endbfchar` },
    ]),
  "compressed zeros": () => withContents([flate(Buffer.alloc(120_000_000))]),
  "compressed zeros in several pieces": () =>
    withContents(Array.from({ length: 4 }, () => flate(Buffer.alloc(60_000_000)))),
  "zeros compressed several times": () => {
    const twice = deflateSync(deflateSync(Buffer.alloc(60_000_000)));
    return withContents([{ dict: "/Filter [/FlateDecode /FlateDecode]", stream: twice }]);
  },
  "a predictor of single bytes": () =>
    withContents([flate(Buffer.alloc(60_000_000, 4), "/DecodeParms << /Predictor 15 /Columns 1 >>")]),
  "a predictor of endless rows": () =>
    withContents([
      flate(Buffer.alloc(1000), "/DecodeParms << /Predictor 15 /Columns 99999999999 /Colors 99999999 >>"),
      flate(Buffer.alloc(60_000_000, 4), "/DecodeParms << /Predictor 15 /Columns 1048575 /Colors 1 >>"),
      flate(Buffer.alloc(1000), "/DecodeParms << /Predictor 2 /Columns -5 /BitsPerComponent -8 >>"),
    ]),
  "runs of one byte": () => withContents([{ dict: "/Filter /RunLengthDecode", stream: Buffer.alloc(30_000_000) }]),
  "codes of LZW": () => withContents([{ dict: "/Filter /LZWDecode", stream: Buffer.alloc(30_000_000) }]),
  "contents that are listed many times": () =>
    makePdf({
      page: `/Contents [${"10 0 R ".repeat(20_000)}]`,
      parts: [{ dict: "", stream: Buffer.alloc(16_000_000, " ") }],
    }),
  "deep lists and dictionaries": () =>
    makePdf({
      contents: `${"[".repeat(500_000)} ${"<< /a ".repeat(500_000)} TJ`,
      parts: ["[".repeat(1_000_000), "<< /a ".repeat(1_000_000)],
      page: "/Annots 10 0 R /B 11 0 R",
    }),
  "a million operators": () => makePdf({ contents: `BT /F1 9 Tf ${"1 0 Td (a) Tj ".repeat(1_000_000)} ET` }),
  "pictures among the operators": () =>
    makePdf({ contents: "BI /W 1 ID EI ".repeat(500_000) + " ID E".repeat(500_000) }),
  "forms in forms": () =>
    makePdf({
      contents: "/X Do ".repeat(200),
      resources: "/XObject << /X 10 0 R >>",
      parts: Array.from({ length: 12 }, (_, i) => ({
        dict: `/Subtype /Form /Resources << /XObject << /X ${11 + i} 0 R >> >>`,
        stream: "/X Do ".repeat(200),
      })),
    }),
  "fonts of a million widths": () =>
    withFont(
      `<< /Subtype /Type0 /DescendantFonts [<< /W [${"1 [500] ".repeat(400_000)} ${
        "0 65535 500 ".repeat(100_000)
      }] >>] >>`,
    ),
  "many fonts of one long encoding": () =>
    makePdf({
      contents: Array.from({ length: 5000 }, (_, i) => `/G${i} 9 Tf `).join(""),
      fonts: Array.from({ length: 5000 }, (_, i) => `/G${i} << /Encoding << /Differences 10 0 R >> >>`).join(" "),
      parts: [`[${"/a ".repeat(1_000_000)}]`],
    }),
  "many fonts that build on one predefined map": () => fontsOnOneMap(5000),
  "a replaced text that many marks share": () =>
    makePdf({
      contents: "/S /P BDC EMC ".repeat(200_000),
      resources: "/Properties << /P 10 0 R >>",
      parts: [`<< /ActualText (${"a".repeat(10_000_000)}) >>`],
    }),
  "a value that many fields share": () =>
    makePdf({
      page: `/Annots [${"10 0 R ".repeat(1000)}]`,
      pages: `<< /Kids [${"3 0 R ".repeat(1)} ${Array.from({ length: 200 }, (_, i) => `${12 + i} 0 R`).join(" ")}] >>`,
      parts: [
        "<< /Subtype /Widget /FT /Tx /T 11 0 R /V 11 0 R >>",
        `(\xfe\xff${"ab".repeat(5_000_000)})`,
        ...Array.from({ length: 200 }, () => `<< /Type /Page /Annots [${"10 0 R ".repeat(1000)}] >>`),
      ],
    }),
  "marks before one letter from right to left": () => rightToLeft("b".repeat(150_000)),
  "numbers on a line from right to left": () => rightToLeft("1 ".repeat(100_000)),
  "letters from right to left that all go back": () => rightToLeft("a) Tj -20 0 Td (".repeat(300_000)),
  "a file of heads of objects": () =>
    latin1(`%PDF-1.4\n${"1 0 obj << /Type /XRef [ ".repeat(300_000)}${"trailer << [ ".repeat(300_000)}`),
  "a file of streams of objects": () =>
    latin1(`%PDF-1.4\n${"1 0 obj << /Type /ObjStm /N 99999 /Length 5 >> stream\n1 0 1\nendstream\n".repeat(100_000)}`),
  "an encryption with a key of no length that there is": () => encrypted("/CFM /AESV2"),
  "an encryption of garbage": () =>
    makePdf({
      contents: textLine("a"),
      trailer: "/Encrypt << /Filter /Standard /V 5 /R 6 /O 5 /U (x) /UE [] /P (no) /CF 7 >> /ID 9",
    }),
  "an encrypted form that is drawn many times": () => encrypted("/CFM /V2", "/X Do ".repeat(100_000)),
};

function latin1(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "latin1"));
}

function flate(bytes: Uint8Array, more = ""): PdfPart {
  return { dict: `/Filter /FlateDecode ${more}`, stream: deflateSync(bytes) };
}

/** Returns a file whose page has the parts as its contents, one after the other. */
function withContents(parts: readonly PdfPart[]): Uint8Array {
  return makePdf({ page: `/Contents [${parts.map((_, i) => `${10 + i} 0 R`).join(" ")}]`, parts });
}

function pageTree(parts: readonly string[], kids: string): Uint8Array {
  return makePdf({ contents: textLine("a"), pages: `<< /Type /Pages /Kids [${kids}] /Count 65535 >>`, parts });
}

/** Returns a page with fonts whose encodings each add a code to a map of 30,000. */
export function fontsOnOneMap(count: number): Uint8Array {
  return makePdf({
    contents: Array.from({ length: count }, (_, i) => `BT /G${i} 9 Tf <0041> Tj ET `).join(""),
    fonts: Array.from({ length: count }, (_, i) => `/G${i} << /Subtype /Type0 /Encoding 10 0 R /N ${i} >>`).join(" "),
    parts: [{ dict: "/UseCMap /UniGB-UTF16-H", stream: "1 begincidchar <0041> 7 endcidchar" }],
  });
}

function withFont(font: string, parts: readonly PdfPart[] = []): Uint8Array {
  return makePdf({ contents: "BT /F2 9 Tf <00410042> Tj ET", fonts: "/F2 10 0 R", parts: [font, ...parts] });
}

/** Returns a page of one line in a font whose letter a is Hebrew and whose letter b is a mark. */
function rightToLeft(text: string): Uint8Array {
  return makePdf({
    contents: `BT /F2 9 Tf (${text}a) Tj ET`,
    fonts: "/F2 10 0 R",
    parts: [
      "<< /Subtype /Type1 /Encoding /WinAnsiEncoding /ToUnicode 11 0 R >>",
      { dict: "", stream: "2 beginbfchar <61> <05D0> <62> <05B7> endbfchar" },
    ],
  });
}

/** Returns a file whose catalog is in a stream of objects that is in a stream of objects, and so on. */
function packedChain(): Uint8Array {
  const count = 30_000;
  const head = "%PDF-1.5\n";
  const entry = (kind: number, second: number) => [kind, second >> 16, (second >> 8) & 255, second & 255, 0];
  const entries = Array.from({ length: count }, (_, i) => entry(2, i + 1)).flat();
  const stream = Buffer.from([...entries, ...entry(2, 0), ...entry(1, head.length)]).toString("latin1");
  return latin1(
    `${head}${count + 1} 0 obj << /Type /XRef /W [1 3 1] /Size ${
      count + 2
    } /Root 0 0 R /Length ${stream.length} >>stream\n` +
      `${stream}\nendstream endobj\nstartxref\n${head.length}\n`,
  );
}

const PADDING = Buffer.from("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a", "hex");

/** Returns a file that opens without a password, encrypted by a key of 40 bits, with a form of 4 MB. */
function encrypted(filter: string, contents = textLine("a")): Uint8Array {
  const key = createHash("md5").update(PADDING).update(Buffer.alloc(32)).update(Buffer.alloc(4)).digest().subarray(
    0,
    5,
  );
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
  const dict = `/Filter /Standard /V 4 /R 2 /Length 40 /P 0 /O <${hex(Buffer.alloc(32))}> /U <${
    hex(rc4(key, PADDING))
  }>`;
  const own = createHash("md5").update(key).update(Uint8Array.from([4, 0, 0, 0, 0])).digest().subarray(0, 10);
  return makePdf({
    contents: Buffer.from(rc4(own, Buffer.from(contents))).toString("latin1"),
    resources: "/XObject << /X 10 0 R >>",
    parts: [{ dict: "/Subtype /Form", stream: Buffer.alloc(4_000_000) }],
    trailer: `/Encrypt << ${dict} /StmF /F /StrF /F /CF << /F << ${filter} >> >> >>`,
  });
}

function rc4(key: Uint8Array, bytes: Uint8Array): Uint8Array {
  const state = Uint8Array.from({ length: 256 }, (_, i) => i);
  const swap = (i: number, j: number) => [state[i], state[j]] = [state[j] ?? 0, state[i] ?? 0];
  for (let i = 0, j = 0; i < 256; i++) {
    j = (j + (state[i] ?? 0) + (key[i % key.length] ?? 0)) & 255;
    swap(i, j);
  }
  let j = 0;
  return bytes.map((byte, at) => {
    const i = (at + 1) & 255;
    j = (j + (state[i] ?? 0)) & 255;
    swap(i, j);
    return byte ^ (state[((state[i] ?? 0) + (state[j] ?? 0)) & 255] ?? 0);
  });
}
