/**
 * Text that `pdf_read` gives of the PDF documents in real packages, compared word by word with what poppler's `pdftotext` gives.
 *
 * The packages of `corpora.json` come through apt-get, from the registry that it is configured for; nothing of a package is
 * run. Where a program is missing or a registry cannot be reached the test is skipped. A package whose SHA-256 differs fails.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
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

/** Returns the F1 of a document; undefined when it has too few words. */
function measure(path: string): number | undefined {
  const options = { maxBuffer: 256 * 1024 * 1024 };
  const { stdout } = spawnSync("pdftotext", ["-enc", "UTF-8", "-l", String(MAX_PAGES), path, "-"], options);
  const pages = stdout.toString().split("\f");
  if (wordsOf(pages.join("\n")).length < MIN_WORDS) return undefined;
  try {
    const budget = createWorkBudget(LIMITS, { stopped: () => false });
    const { text, lastPage } = pdfText(new Uint8Array(readFileSync(path)), { start: 1, end: MAX_PAGES, budget });
    const own = text.replace(/^\[(?:Page \d+ of \d+|No text.*|The page .*)\]$/gm, "");
    return wordF1(wordsOf(own), wordsOf(pages.slice(0, lastPage).join("\n")));
  } catch (error) {
    assert.ok(error instanceof DocumentError, `${path}: ${error}`);
    return 0;
  }
}

test("documents of real packages have the words that poppler finds in them", async (context) => {
  for (const program of ["pdftotext", "apt-get", "dpkg-deb"]) {
    if (spawnSync(program, ["--version"]).error !== undefined) return context.skip(`${program} is not installed`);
  }
  await withTemporaryFolder((root) => {
    const scores: number[] = [];
    for (const { name, versions } of PACKAGES) {
      for (const release of versions) {
        const folder = join(root, name);
        const failed = fetchDocuments(name, { ...release, folder });
        if (failed !== undefined) return context.skip(`cannot fetch "${name}": ${failed}`);
        const own = documentsIn(folder).map(measure).filter((score) => score !== undefined);
        console.log(`${name}: ${own.length} documents, mean ${mean(own).toFixed(3)}`);
        scores.push(...own);
      }
    }
    console.log(`all: ${scores.length} documents, mean ${mean(scores).toFixed(3)}`);
    assert.ok(mean(scores) >= WANTED, `the mean word F1 is ${mean(scores)}`);
  });
});

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
}
