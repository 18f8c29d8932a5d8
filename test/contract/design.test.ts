import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PROJECT_ROOT, sourceFiles } from "../support/source_files.ts";

const FOLDER = "docs/design";
const read = (path: string) => readFileSync(join(PROJECT_ROOT, path), "utf8");
const CHAPTERS = new Map(
  readdirSync(join(PROJECT_ROOT, FOLDER)).filter((name) => name.endsWith(".md")).map((name) =>
    [name, read(`${FOLDER}/${name}`)] as const
  ),
);
const SOURCES = sourceFiles(["cli", "handlers", "lib", "test", "scripts", "fixtures"]);

const headingsOf = (text: string) => [...text.matchAll(/^#+ (.+)$/gm)].map((match) => match[1] ?? "");
/** Anchor of a heading, as GitHub makes it. */
const anchorOf = (heading: string) => heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-");

test("a comment that points at the design names a chapter and a heading that are there", () => {
  const wrong: string[] = [];
  let count = 0;
  for (const { path, text } of SOURCES) {
    for (const [whole, chapter = "", heading = ""] of text.matchAll(/docs\/design\/([\w<>]+\.md)(?: "([^"\n]+)")?/g)) {
      if (path === "test/contract/design.test.ts") continue;
      count++;
      const found = CHAPTERS.get(chapter);
      if (found === undefined || !headingsOf(found).includes(heading)) wrong.push(`${path}: ${whole}`);
    }
    if (/\b(DESIGN|STYLE|DEPENDENCIES|SPECIFICATION)\.md\b/.test(text) && path !== "test/contract/design.test.ts") {
      wrong.push(`${path} names a document that is not part of the project`);
    }
  }
  assert.ok(count > 100, `${count} references were found`);
  assert.deepEqual(wrong, []);
});

test("the chapters' links lead to chapters and headings that are there, and the index names every chapter", () => {
  const wrong: string[] = [];
  for (const [name, text] of CHAPTERS) {
    for (const [whole, target = "", anchor] of text.matchAll(/\]\(([\w.]*)(?:#([\w-]+))?\)/g)) {
      const found = target === "" ? text : CHAPTERS.get(target);
      const known = found !== undefined && (anchor === undefined || headingsOf(found).map(anchorOf).includes(anchor));
      if (!known) wrong.push(`${name}: ${whole}`);
    }
  }
  const index = CHAPTERS.get("README.md") ?? "";
  for (const name of CHAPTERS.keys()) {
    if (name !== "README.md" && !index.includes(`| [${name}](${name}) |`)) wrong.push(`README.md lacks ${name}`);
  }
  assert.deepEqual(wrong, []);
});

/** Words that a cell of a table may have: what needs more is a paragraph, or a list. */
const MAX_CELL_WORDS = 35;

test("no cell of a chapter's table is a paragraph", () => {
  const long = (text: string) =>
    text.split("\n").filter((line) => line.startsWith("|")).flatMap((line) => line.split("|"))
      .filter((cell) => cell.split(/\s+/).length > MAX_CELL_WORDS);
  // The cells of that chapter are measurements of one package each
  const chapters = [...CHAPTERS].filter(([name]) => name !== "dependencies.md");
  assert.deepEqual(chapters.flatMap(([name, text]) => long(text).map((cell) => `${name}: ${cell}`)), []);
  assert.equal(long(`| a | ${"word ".repeat(MAX_CELL_WORDS + 1)}|`).length, 1);
});

test("the glossary has each term once, and its code names are in the source", () => {
  const rows = (CHAPTERS.get("glossary.md") ?? "").split("\n").filter((line) =>
    line.startsWith("| ") && line.includes("`")
  )
    .map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim()));
  assert.ok(rows.length > 80, "the tables are found");
  const terms = rows.map(([term]) => term ?? "");
  assert.deepEqual(terms.filter((term, at) => terms.indexOf(term) !== at), []);
  const sources = sourceFiles(["cli", "handlers", "lib"]);
  const words = new Set(sources.flatMap(({ path, text }) => [...(path + text).match(/\w+/g) ?? []]));
  // The helpers' table has the code name first
  const names = rows.flatMap((cells) => [...(cells.length === 4 ? cells[2] : cells[0])?.matchAll(/`(\w+)`/g) ?? []])
    .map((match) => match[1] ?? "");
  assert.deepEqual(names.filter((name) => !words.has(name)), []);
});

test("CONTRIBUTING has a line for each folder, and no line for a folder that is not there", () => {
  const top = ["cli", "docs", "fixtures", "handlers", "lib", "scripts", "test"];
  const folders = top.flatMap((folder) => [
    `${folder}/`,
    ...readdirSync(join(PROJECT_ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${join(entry.parentPath, entry.name).slice(PROJECT_ROOT.length + 1).replaceAll("\\", "/")}/`),
  ]);
  // A folder of the source and the folder of its tests share a line
  const lines = [...read("CONTRIBUTING.md").matchAll(/^\| ((?:`[\w/]+\/`(?:, )?)+) \| \S.{5,} \|$/gm)];
  const map = lines.flatMap(([, names = ""]) => names.replaceAll("`", "").split(", "));
  // Folders inside an example, a document or the templates of a plugin need no line
  const needed = folders.filter((folder) => !/^(fixtures|docs|lib\/extensions\/plugins\/scaffolds)\/./.test(folder));
  assert.deepEqual(needed.filter((folder) => !map.includes(folder)), [], "no line in the map");
  assert.deepEqual(map.filter((folder) => !folders.includes(folder)), [], "no such folder");
  assert.deepEqual(map.filter((folder, at) => map.indexOf(folder) !== at), [], "two lines");
});

test("dependencies.md has a row for each package of package.json, and no row for another", () => {
  const text = CHAPTERS.get("dependencies.md") ?? "";
  const rowsBetween = (from: string, to: string) =>
    text.slice(text.indexOf(from), text.indexOf(to)).split("\n").filter((line) => line.startsWith("| "));
  const packagesOf = (rows: readonly string[]) =>
    rows.flatMap((row) => [...(row.split(" | ")[0] ?? "").matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name))
      .filter((name) => !name.startsWith("node:")).sort();
  const { dependencies, peerDependencies, devDependencies } = JSON.parse(read("package.json"));
  const users = Object.keys({ ...dependencies, ...peerDependencies });
  const used = rowsBetween("## Packages in use", "A document goes through");
  assert.deepEqual(packagesOf(used), users.sort());
  assert.deepEqual(
    packagesOf(used.filter((row) => /optional peers?:/.test(row))),
    Object.keys(peerDependencies).sort(),
  );
  const tests = Object.keys(devDependencies).filter((name) => !users.includes(name) && !name.startsWith("@types/"));
  assert.deepEqual(packagesOf(rowsBetween("For tests and builds only", "## Written by hand")), tests.sort());
});

test("what dependencies.md calls written by hand is where it says", () => {
  const text = CHAPTERS.get("dependencies.md") ?? "";
  const part = text.slice(text.indexOf("## Written by hand"), text.indexOf("## Main content of pages"));
  const places = [...part.matchAll(/^\| [^|]+ \| `([^`]+)` \|/gm)].map(([, place = ""]) => place);
  assert.ok(places.length > 20, "the table is found");
  assert.deepEqual(places.filter((place) => !existsSync(join(PROJECT_ROOT, place))), []);
});

test("the changelog has one line for each thing, in full sentences that stand once", () => {
  const entries = read("CHANGELOG.md").split("\n").slice(1).filter((line) => line !== "" && !/^##+ /.test(line));
  assert.ok(entries.length > 60, `${entries.length} lines were found`);
  const isEntry = (line: string) => /^- \S.*[.)]$/.test(line) && line.length <= 140;
  const preface = entries.filter((line) => !line.startsWith("- ") && !line.startsWith("  "));
  assert.deepEqual(
    entries.filter((line) => !preface.includes(line) && !isEntry(line)),
    [],
    "one line of 140 characters",
  );
  assert.deepEqual(entries.filter((line, at) => entries.indexOf(line) !== at), [], "twice in the list");
});
