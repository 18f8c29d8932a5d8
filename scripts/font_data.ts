/**
 * Writes the data of fonts that `lib/documents/pdf/` ships: `node scripts/font_data.ts <fonttools> <pdfjs-dist>`.
 *
 * The arguments are folders of unpacked packages: fonttools 4.68.0 of PyPI, for the Adobe Glyph List, and pdfjs-dist 4.10.38 of npm, for
 * the base encodings and Adobe's predefined CMaps. Nothing of this is read when Postern is installed or runs.
 */
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { brotliCompressSync, constants, deflateRawSync } from "node:zlib";

const [fonttools = "", pdfjs = ""] = process.argv.slice(2);
const list =
  readFileSync(join(fonttools, "fontTools/agl.py"), "utf8").split('_aglText = """\\\n')[1]?.split('"""')[0] ?? "";
const worker = readFileSync(join(pdfjs, "build/pdf.worker.mjs"), "utf8");

/** Private and control characters mean nothing outside of a font */
const isPrivate = (text: string) => /[\ue000-\uf8ff\p{Cc}]/u.test(text);

const names = list.split("\n").filter((line) => line !== "" && !line.startsWith("#")).map((line) => {
  const [name = "", codes = ""] = line.split(";");
  return [name, String.fromCodePoint(...codes.split(" ").map((code) => Number.parseInt(code, 16)))] as const;
}).filter(([, text]) => !isPrivate(text));

const dingbats = [
  ...(/getDingbatsGlyphsUnicode = .*?\n\}\);/s.exec(worker)?.[0] ?? "").matchAll(/t\.(a\d+) = 0x(\w+);/g),
]
  .map(([, name = "", code = ""]) => [name, String.fromCodePoint(Number.parseInt(code, 16))] as const)
  .filter(([, text]) => !isPrivate(text));

/** Returns a list of names that is in the source of pdf.js, in one text. */
const listOf = (name: string) =>
  (/\[(.*?)\]/s.exec(worker.split(`const ${name} = `)[1] ?? "")?.[1] ?? "").replace(/["\s]/g, "").replaceAll(",", " ");

const data = {
  names: names.flat().join("\n"),
  dingbats: dingbats.flat().join("\n"),
  StandardEncoding: listOf("StandardEncoding"),
  MacRomanEncoding: listOf("MacRomanEncoding"),
  WinAnsiEncoding: listOf("WinAnsiEncoding"),
  MacExpertEncoding: listOf("MacExpertEncoding"),
  Symbol: listOf("SymbolSetEncoding"),
  ZapfDingbats: listOf("ZapfDingbatsEncoding"),
  cffStrings: listOf("CFFStandardStrings"),
  expertCharset: listOf("ExpertCharset"),
  expertSubsetCharset: listOf("ExpertSubsetCharset"),
  macGlyphs: listOf("MacStandardGlyphOrdering"),
};
const packed = deflateRawSync(JSON.stringify(data), { level: 9 }).toString("base64");
const licence = (list.split(/^# -+$/m)[1] ?? "").trim().split("\n").map((line) => ` * ${line.slice(2)}`.trimEnd());

writeFileSync(
  "lib/documents/pdf/font_data.ts",
  `/**
 * Data of fonts, written by scripts/font_data.ts: JSON, compressed by deflate, in base64.
 *
 * Names of glyphs: the Adobe Glyph List 2.0, out of fonttools 4.68.0 (PyPI), licence BSD-3-Clause:
 *
${licence.join("\n")}
 *
 * Base encodings and lists of names: pdfjs-dist 4.10.38 (npm), licence Apache-2.0, after ISO 32000 annex D and Adobe Technical Note 5176.
 *
 * SHA-256 of the data: ${createHash("sha256").update(packed).digest("hex")}
 */
export const FONT_DATA =
  "${packed}";
`,
);

/** The CMaps of ISO 32000-2, table 116, with those that come after them, and the maps from glyphs to Unicode; \`V\` builds on \`H\` */
const CMAPS =
  `GB-EUC GBpc-EUC GBK-EUC GBKp-EUC GBK2K UniGB-UCS2 UniGB-UTF16 B5pc HKscs-B5 ETen-B5 ETenms-B5 CNS-EUC UniCNS-UCS2
  UniCNS-UTF16 83pv-RKSJ 90ms-RKSJ 90msp-RKSJ 90pv-RKSJ Add-RKSJ EUC Ext-RKSJ UniJIS-UCS2 UniJIS-UCS2-HW UniJIS-UTF16
  UniJIS2004-UTF16 KSC-EUC KSCms-UHC KSCms-UHC-HW KSCpc-EUC UniKS-UCS2 UniKS-UTF16 KSC-Johab`.split(/\s+/);
const maps = ["H", "V", ...CMAPS.flatMap((name) => [`${name}-H`, `${name}-V`])].concat(
  ["GB1", "CNS1", "Japan1", "Korea1"].map((ordering) => `Adobe-${ordering}-UCS2`),
  // Some have no form for vertical text
).filter((name) => existsSync(join(pdfjs, "cmaps", `${name}.bcmap`))).sort()
  .map((name) => [name, readFileSync(join(pdfjs, "cmaps", `${name}.bcmap`))] as const);
const lengths = JSON.stringify(maps.map(([name, bytes]) => [name, bytes.length]));
const all = Buffer.concat([Buffer.from(`${lengths}\n`), ...maps.map(([, bytes]) => bytes)]);
const packedMaps = brotliCompressSync(all, { params: { [constants.BROTLI_PARAM_LGWIN]: 24 } }).toString("base64");
const licenceOfMaps = readFileSync(join(pdfjs, "cmaps/LICENSE"), "utf8").trim().split("\n")
  .map((line) => ` * ${line.replace(/^%%Copyright: ?/, "").trim()}`.trimEnd());

writeFileSync(
  "lib/documents/pdf/cmap_data.ts",
  `/**
 * Adobe's predefined CMaps, written by scripts/font_data.ts: JSON of names and lengths, a line feed and the maps, compressed by Brotli, in base64.
 *
 * The maps are those of pdfjs-dist 4.10.38 (npm), licence BSD-3-Clause:
 *
${licenceOfMaps.join("\n")}
 *
 * SHA-256 of the data: ${createHash("sha256").update(packedMaps).digest("hex")}
 */
export const CMAP_DATA =
  "${packedMaps}";
`,
);
