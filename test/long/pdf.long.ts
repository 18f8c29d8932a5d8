/**
 * Text that `pdf_read` gives of the PDF documents in real packages, compared word by word with what poppler's `pdftotext` gives, and
 * beside it what pdf.js gives where the variable PDFJS names an installed folder of `pdfjs-dist`. Prints a row for each document.
 *
 * The packages of `corpora.json` come through apt-get, from the registry that it is configured for; nothing of a package is
 * run. Where a program is missing or a registry cannot be reached the test is skipped. A package whose SHA-256 differs fails.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join, relative } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { DocumentError } from "../../lib/documents/document_error.ts";
import { pdfText } from "../../lib/documents/pdf/pdf_text.ts";
import { createWorkBudget } from "../../lib/documents/work_budget.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import corpora from "./corpora.json" with { type: "json" };

/** Documents taken of one package, and pages taken of one document */
const MAX_DOCUMENTS = 24;
const MAX_PAGES = 20;
const MAX_BYTES = 8_000_000;
/** Words that a text must have to be compared */
const MIN_WORDS = 20;
/** Mean over all documents, both being read up to the same page */
const WANTED = 0.95;
/** How far a document may be below what pdf.js has of it */
const MAX_BELOW = 0.1;
const LIMITS = { timeMs: 20_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };

const PACKAGES = corpora.filter(({ registry }) => registry === "debian");

/** Runs a program. Returns what failed, or undefined. */
function run(program: string, args: readonly string[], folder: string): string | undefined {
  const { status, stderr, error } = spawnSync(program, args, { cwd: folder, encoding: "utf8", timeout: 300_000 });
  return status === 0 ? undefined : `${program}: ${error?.message ?? stderr.trim().split("\n").at(-1)}`;
}

/** Fetches a package and takes its documents out. Returns what failed, or undefined. */
function fetchDocuments(name: string, { version, sha256, folder }: Release): string | undefined {
  mkdirSync(folder);
  const failed = run("apt-get", ["download", "--quiet", `${name}=${version}`], folder);
  if (failed !== undefined) return failed;
  const file = readdirSync(folder).find((entry) => entry.endsWith(".deb")) ?? "";
  const sum = createHash("sha256").update(readFileSync(join(folder, file))).digest("hex");
  assert.equal(sum, sha256, `${name} ${version}`);
  return run("dpkg-deb", ["--extract", file, "."], folder);
}

interface Release {
  readonly version: string;
  readonly sha256: string;
  readonly folder: string;
}

/** Returns the documents of a folder, in an order that only their names decide. */
function documentsIn(folder: string): readonly string[] {
  const order = (path: string) => createHash("sha256").update(basename(path)).digest("hex");
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".pdf"))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => statSync(path).size < MAX_BYTES)
    .sort((a, b) => order(a) < order(b) ? -1 : 1)
    .slice(0, MAX_DOCUMENTS);
}

const wordsOf = (text: string): readonly string[] => text.normalize("NFKC").match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];

/** Returns the F1 of the words of two texts, each word counted as often as it stands. */
function wordF1(left: readonly string[], right: readonly string[]): number {
  const counts = new Map<string, number>();
  for (const word of right) counts.set(word, (counts.get(word) ?? 0) + 1);
  let common = 0;
  for (const word of left) {
    const count = counts.get(word) ?? 0;
    if (count === 0) continue;
    common++;
    counts.set(word, count - 1);
  }
  return 2 * common / (left.length + right.length);
}

/** Row of the table: what the texts of a document have in common with the words that poppler finds in it. */
interface Row {
  readonly path: string;
  /** Words that poppler finds */
  readonly words: number;
  readonly own: number;
  /** Undefined without pdf.js */
  readonly pdfjs: number | undefined;
}

/** Returns the texts of the first pages of a document by pdf.js; none when it fails. */
type ReadByPdfjs = (path: string) => Promise<readonly string[]>;

/** Compares the texts of a document; undefined when it has too few words. */
async function measure(path: string, readByPdfjs: ReadByPdfjs | undefined): Promise<Row | undefined> {
  const options = { maxBuffer: 256 * 1024 * 1024 };
  const { stdout } = spawnSync("pdftotext", ["-enc", "UTF-8", "-l", String(MAX_PAGES), path, "-"], options);
  const pages = stdout.toString().split("\f");
  const words = wordsOf(pages.join("\n")).length;
  if (words < MIN_WORDS) return undefined;
  const { text, lastPage } = ownText(path);
  const wanted = wordsOf(pages.slice(0, lastPage).join("\n"));
  const theirs = await readByPdfjs?.(path);
  return {
    path,
    words,
    own: wordF1(wordsOf(text), wanted),
    pdfjs: theirs === undefined ? undefined : wordF1(wordsOf(theirs.slice(0, lastPage).join("\n")), wanted),
  };
}

function ownText(path: string): { readonly text: string; readonly lastPage: number } {
  try {
    const budget = createWorkBudget(LIMITS, { stopped: () => false });
    const { text, lastPage } = pdfText(new Uint8Array(readFileSync(path)), { start: 1, end: MAX_PAGES, budget });
    return { text: text.replace(/^\[(?:Page \d+ of \d+|No text.*|The page .*)\]$/gm, ""), lastPage };
  } catch (error) {
    assert.ok(error instanceof DocumentError, `${path}: ${error}`);
    return { text: "", lastPage: MAX_PAGES };
  }
}

/** The part of pdf.js that is called here. Source: https://mozilla.github.io/pdf.js/api/ */
interface Pdfjs {
  getDocument(options: object): { readonly promise: Promise<PdfjsDocument>; destroy(): Promise<void> };
}

interface PdfjsDocument {
  readonly numPages: number;
  getPage(page: number): Promise<{ getTextContent(): Promise<{ readonly items: readonly PdfjsItem[] }> }>;
}

interface PdfjsItem {
  readonly str?: string;
  readonly hasEOL?: boolean;
}

/** Loads pdf.js from the folder that PDFJS names; undefined when it names none. */
async function loadPdfjs(): Promise<ReadByPdfjs | undefined> {
  const folder = process.env["PDFJS"];
  if (folder === undefined) return undefined;
  // The package has this function; its types are not installed here
  const pdfjs = await import(pathToFileURL(join(folder, "legacy/build/pdf.mjs")).href) as Pdfjs;
  return async (path) => {
    const loading = pdfjs.getDocument({
      data: new Uint8Array(readFileSync(path)),
      cMapUrl: `${folder}/cmaps/`,
      cMapPacked: true,
      standardFontDataUrl: `${folder}/standard_fonts/`,
      verbosity: 0,
    });
    const texts: string[] = [];
    try {
      const document = await loading.promise;
      for (let page = 1; page <= Math.min(MAX_PAGES, document.numPages); page++) {
        const { items } = await (await document.getPage(page)).getTextContent();
        texts.push(items.map(({ str = "", hasEOL }) => hasEOL === true ? `${str}\n` : str).join(""));
      }
    } catch (error) {
      console.log(`pdf.js: ${path}: ${error}`);
    }
    await loading.destroy();
    return texts;
  };
}

test("documents of real packages have the words that poppler finds in them", async (context) => {
  for (const program of ["pdftotext", "apt-get", "dpkg-deb"]) {
    if (spawnSync(program, ["--version"]).error !== undefined) return context.skip(`${program} is not installed`);
  }
  const readByPdfjs = await loadPdfjs();
  if (readByPdfjs === undefined) console.log("pdf.js is not compared: PDFJS names no folder of pdfjs-dist");
  await withTemporaryFolder(async (root) => {
    const rows: Row[] = [];
    for (const { name, versions } of PACKAGES) {
      for (const release of versions) {
        const folder = join(root, name);
        const failed = fetchDocuments(name, { ...release, folder });
        if (failed !== undefined) return context.skip(`cannot fetch "${name}": ${failed}`);
        for (const path of documentsIn(folder)) {
          const row = await measure(path, readByPdfjs);
          if (row === undefined) continue;
          rows.push(row);
          console.log(shown(row, root));
        }
      }
    }
    const below = rows.filter(({ own, pdfjs = 0 }) => own < pdfjs - MAX_BELOW);
    const own = mean(rows.map((row) => row.own));
    console.log(`all: ${rows.length} documents, mean ${own.toFixed(4)}`);
    if (readByPdfjs !== undefined) {
      console.log(`pdf.js: mean ${mean(rows.map(({ pdfjs = 0 }) => pdfjs)).toFixed(4)}, ${below.length} far above`);
    }
    assert.deepEqual(below.map((row) => shown(row, root)), []);
    assert.ok(own >= WANTED, `the mean word F1 is ${own}`);
  });
});

/** Returns a row of the table: words of poppler, F1 of ours, F1 of pdf.js, difference, document. */
function shown({ path, words, own, pdfjs }: Row, root: string): string {
  const theirs = pdfjs === undefined ? [] : [pdfjs.toFixed(4), (own - pdfjs).toFixed(4)];
  return [words, own.toFixed(4), ...theirs, relative(root, path)].join("\t");
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
}
