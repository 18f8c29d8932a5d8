/**
 * Sections of the documentation of 100 packages, and main content that `web_fetch` gives of real pages, compared word by word with the container that each page's generator marks as the
 * content, and with what other extractors give; and the time and memory of hostile pages.
 *
 * The packages of `corpora.json` come through apt-get, from the registry that it is configured for; nothing of a package is run. Where a
 * program is missing or a registry cannot be reached the test is skipped. A package whose SHA-256 differs fails. trafilatura is asked
 * where `python3` has it, and Readability with turndown over jsdom where the folder that `EXTRACTORS` names has them in its node_modules.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { createWorkBudget } from "../../lib/documents/work_budget.ts";
import { decodePage } from "../../lib/web/decode_page.ts";
import {
  elementsIn,
  htmlAttribute,
  type HtmlElement,
  type HtmlNode,
  isElement,
  parseHtml,
} from "../../lib/web/parse_html.ts";
import { readPage } from "../../lib/web/read_page.ts";
import { HOSTILE_PAGES } from "./hostile_pages.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import corpora from "./corpora.json" with { type: "json" };

/** Pages taken of one package, and their size */
const MAX_PAGES = 8;
const MIN_BYTES = 2500;
const MAX_BYTES = 400_000;
/** Letters that a content must have to be compared */
const MIN_LETTERS = 400;
/** Mean over all pages */
const WANTED = 0.96;
/** Bounds of one hostile page. */
const MAX_MS = 2000;
const MAX_MB = 200;

/** Share of the sections of all pages that may lack more than 30 % of their words */
const MAX_LOST_SECTIONS = 0.005;
const SECTION_WORDS = 12;

interface PageSource {
  readonly name: string;
  /** Part of the path of each page */
  readonly under: string;
  /** Container of the content, and what inside it is none: tags, classes, ids and roles */
  readonly keep: string;
  readonly drop: string;
  readonly versions: readonly { readonly version: string; readonly sha256: string }[];
}
const SOURCES: readonly PageSource[] = corpora.flatMap((entry) =>
  "keep" in entry && entry.keep !== undefined ? [entry as PageSource] : []
);

/** Packages whose generators are told by their marks, beside those of `SOURCES`: 100 in all */
const MORE: readonly Pick<PageSource, "name" | "versions">[] = corpora.filter(({ registry }) =>
  registry === "debian documentation"
);
/** Containers of the content by generator, and what inside them is none: themes of Sphinx, Doxygen, Javadoc of two ages, others */
const CONTAINERS: readonly (readonly [keep: string, drop: string])[] = [
  ["[role=main]", ".headerlink"],
  [".contents", ".navpath, .ttc, .footer"],
  ["main", ""],
  [".contentContainer", ""],
  [".body", ".headerlink"],
  ["article", ""],
];

/** A page with its content as text. */
interface Sample {
  readonly source: string;
  readonly file: string;
  readonly bytes: Uint8Array;
  readonly truth: readonly string[];
}

/** Gives the content of pages as text, each within its time. */
type Extractor = (samples: readonly Sample[]) => Promise<readonly string[]>;

/** Runs a program. Returns what failed, or undefined. */
function run(program: string, args: readonly string[], folder: string): string | undefined {
  const { status, stderr, error } = spawnSync(program, args, { cwd: folder, encoding: "utf8", timeout: 300_000 });
  return status === 0 ? undefined : `${program}: ${error?.message ?? stderr.trim().split("\n").at(-1)}`;
}

/** Fetches a package and takes its files out. Returns what failed, or undefined. */
function fetchPackage({ name, versions }: Pick<PageSource, "name" | "versions">, folder: string): string | undefined {
  const [release] = versions;
  mkdirSync(folder);
  const failed = run("apt-get", ["download", "--quiet", `${name}=${release?.version}`], folder);
  if (failed !== undefined) return failed;
  const file = readdirSync(folder).find((entry) => entry.endsWith(".deb")) ?? "";
  const sum = createHash("sha256").update(readFileSync(join(folder, file))).digest("hex");
  assert.equal(sum, release?.sha256, `${name} ${release?.version}`);
  return run("dpkg-deb", ["--extract", file, "."], folder);
}

/** Returns pages of a package, in an order that only their names decide. */
function samplesOf(source: PageSource, folder: string): readonly Sample[] {
  const samples: Sample[] = [];
  for (const file of pagesOf(source.under, folder).slice(0, MAX_PAGES * 5)) {
    const bytes = new Uint8Array(readFileSync(file));
    const truth = contentOf(bytes, source);
    if (truth === undefined || truth.replace(/\s/g, "").length < MIN_LETTERS) continue;
    samples.push({ source: source.name, file, bytes, truth: wordsOf(truth) });
    if (samples.length === MAX_PAGES) break;
  }
  return samples;
}

function pagesOf(under: string, folder: string): readonly string[] {
  const order = (path: string) => createHash("sha256").update(`page ${basename(path)}`).digest("hex");
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.x?html?$/.test(entry.name))
    .filter(({ name }) =>
      !/index|search|toc|contents|modules|all(?:class|package)|hierarchy|_source|-members/i.test(name)
    )
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => path.includes(under) && statSync(path).size >= MIN_BYTES && statSync(path).size <= MAX_BYTES)
    .sort((a, b) => order(a) < order(b) ? -1 : 1);
}

function contentOf(bytes: Uint8Array, { keep, drop }: PageSource): string | undefined {
  const budget = createWorkBudget({ timeMs: 60_000, maxParts: 5_000_000, maxInflatedBytes: 0 }, {
    stopped: () => false,
  });
  const content = elementsIn(parseHtml(decodePage(bytes, undefined).text, budget)).find((element) =>
    matches(element, keep)
  );
  return content === undefined ? undefined : textOf(content, drop);
}

/** Tells whether an element is one of a list of `tag`, `.class`, `#id`, `[role=value]` or a tag with one of them. */
function matches(element: HtmlElement, selectors: string): boolean {
  return selectors.split(", ").some((selector) => {
    const [, tag, name, id, role] = /^(\w+)?(?:\.([\w-]+)|#([\w-]+)|\[role=(\w+)\])?$/.exec(selector) ?? [];
    if (selector === "" || (tag !== undefined && element.tag !== tag)) return false;
    if (name !== undefined && !(htmlAttribute(element, "class") ?? "").split(/\s+/).includes(name)) return false;
    if (id !== undefined && htmlAttribute(element, "id") !== id) return false;
    return role === undefined || htmlAttribute(element, "role") === role;
  });
}

const INLINE = new Set(
  ("a abbr acronym b bdi bdo big cite code data dfn em font i ins kbd mark nobr q s samp small span strike strong sub sup time tt u var wbr")
    .split(" "),
);
const SILENT = new Set("script style noscript template svg form button select iframe head".split(" "));

/** Returns the words of each section of a page's content, in the order of their first places. */
function sectionsOf(bytes: Uint8Array, containers: typeof CONTAINERS): readonly ReadonlySet<string>[] {
  const budget = createWorkBudget({ timeMs: 60_000, maxParts: 5_000_000, maxInflatedBytes: 0 }, {
    stopped: () => false,
  });
  const all = elementsIn(parseHtml(decodePage(bytes, undefined).text, budget));
  const [keep, drop] = containers.find(([selectors]) => all.some((element) => matches(element, selectors))) ?? ["", ""];
  const root = all.find((element) => matches(element, keep));
  const texts = [""];
  const visit = (node: HtmlNode) => {
    if (isElement(node) && (SILENT.has(node.tag) || matches(node, drop))) return;
    if (isElement(node) && /^h[1-6]$/.test(node.tag)) texts.push("");
    const edge = isElement(node) && !INLINE.has(node.tag) ? "\n" : "";
    texts[texts.length - 1] += edge + (isElement(node) ? "" : node.text);
    if (isElement(node)) node.children.forEach(visit);
    texts[texts.length - 1] += edge;
  };
  if (root !== undefined) visit(root);
  return texts.map((text) => new Set(wordsOf(text))).filter(({ size }) => size >= SECTION_WORDS);
}

/** Returns the text of a container, its blocks apart. */
function textOf(node: HtmlNode, drop: string): string {
  if (!isElement(node)) return node.text;
  if (SILENT.has(node.tag) || matches(node, drop)) return "";
  const inside = node.children.map((child) => textOf(child, drop)).join("");
  return INLINE.has(node.tag) ? inside : `\n${inside}\n`;
}

/** Returns words in small letters, and single characters of Chinese and Japanese. */
function wordsOf(text: string): readonly string[] {
  const words = text.normalize("NFKC").match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];
  return words.flatMap((word) =>
    /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}/u.test(word) ? [...word] : [word.toLowerCase()]
  );
}

/** Takes the marks of Markdown and the addresses out. */
function withoutMarks(markdown: string): string {
  return markdown.replace(/\\([\\`*_{}[\]()#+\-.!|<>~&=:])/g, "$1").replace(/!\[([^\]]*)\]\([^)]*\)/g, " ")
    .replace(/\]\((?:[^()\s]|\([^()]*\))*(?: "[^"]*")?\)/g, "] ").replace(/<(https?:[^>]*)>/g, "$1")
    .replace(/&(amp|lt|gt|quot|#x?[0-9a-f]+);/gi, " ").replace(/<\/?[a-z][^>]*>/gi, "");
}

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

const own: Extractor = async (samples) => {
  const texts: string[] = [];
  for (const { bytes } of samples) {
    const page = await readPage({ bytes, contentType: "text/html", url: "https://docs.example/" }, {
      stopped: () => false,
    });
    texts.push(page?.text ?? "");
  }
  return texts;
};

const TRAFILATURA = `
import json, sys, trafilatura
for line in sys.stdin:
    text = trafilatura.extract(open(json.loads(line), "rb").read(), output_format="markdown", include_comments=False, favor_recall=len(sys.argv) > 1)
    print(json.dumps(text or ""))
`;

/** Returns the extractor of trafilatura, undefined where Python does not have it. */
function findTrafilatura(args: readonly string[]): Extractor | undefined {
  if (spawnSync("python3", ["-c", "import trafilatura"]).status !== 0) return undefined;
  return async (samples) => {
    const input = samples.map(({ file }) => `${JSON.stringify(file)}\n`).join("");
    const options = { input, encoding: "utf8", maxBuffer: 256 * 1024 * 1024 } as const;
    const { stdout } = spawnSync("python3", ["-c", TRAFILATURA, ...args], options);
    return stdout.trim().split("\n").map((line) => JSON.parse(line) as string);
  };
}

/** Returns the extractor of Readability with turndown over jsdom, undefined where they are not installed. */
async function findReadability(): Promise<Extractor | undefined> {
  const folder = process.env["EXTRACTORS"];
  if (folder === undefined) return undefined;
  const load = async (name: string) =>
    await import(pathToFileURL(createRequire(join(folder, "x.js")).resolve(name)).href);
  const [{ JSDOM, VirtualConsole }, { Readability }, { default: Turndown }, { gfm }] = await Promise.all(
    ["jsdom", "@mozilla/readability", "turndown", "turndown-plugin-gfm"].map(load),
  );
  const turndown = new Turndown({ headingStyle: "atx", codeBlockStyle: "fenced" });
  turndown.use(gfm);
  return async (samples) =>
    samples.map(({ bytes }) => {
      const dom = new JSDOM(decodePage(bytes, undefined).text, { virtualConsole: new VirtualConsole() });
      const article = new Readability(dom.window.document).parse();
      const text = article === null ? "" : `# ${article.title}\n\n${turndown.turndown(article.content)}`;
      dom.window.close();
      return text;
    });
}

test("real pages have the words of the content that their generators mark", async (context) => {
  for (const program of ["apt-get", "dpkg-deb"]) {
    if (spawnSync(program, ["--version"]).error !== undefined) return context.skip(`${program} is not installed`);
  }
  await withTemporaryFolder(async (root) => {
    const samples: Sample[] = [];
    for (const source of SOURCES) {
      const failed = fetchPackage(source, join(root, source.name));
      if (failed !== undefined) return context.skip(`cannot fetch "${source.name}": ${failed}`);
      samples.push(...samplesOf(source, join(root, source.name)));
    }
    const extractors = {
      "web_fetch": own,
      "trafilatura": findTrafilatura([]),
      "trafilatura, favor_recall": findTrafilatura(["recall"]),
      "Readability, turndown": await findReadability(),
    };
    const scores = new Map<string, readonly number[]>();
    for (const [name, extract] of Object.entries(extractors)) {
      if (extract === undefined) continue;
      const start = performance.now();
      const texts = await extract(samples);
      const seconds = ((performance.now() - start) / 1000).toFixed(1);
      const found = samples.map(({ truth }, at) => wordF1(wordsOf(withoutMarks(texts[at] ?? "")), truth));
      scores.set(name, found);
      console.log(`${name}: ${found.length} pages, mean F1 ${mean(found).toFixed(3)}, ${seconds} s`);
    }
    const ours = scores.get("web_fetch") ?? [];
    for (const { name } of SOURCES) {
      const lines = [...scores.values()].map((found) =>
        mean(found.filter((_, at) => samples[at]?.source === name)).toFixed(3)
      );
      console.log(`  ${name}: ${lines.join(", ")}`);
    }
    for (const [name, theirs] of [...scores].slice(1)) {
      console.log(`web_fetch - ${name}: ${intervalOf(ours.map((score, at) => score - (theirs[at] ?? 0)))}`);
    }
    assert.ok(mean(ours) >= WANTED, `the mean word F1 is ${mean(ours)}`);
    for (const [name, theirs] of scores) assert.ok(mean(ours) >= mean(theirs), `${name} finds more of the content`);
  });
});

test("the documentation of 100 packages loses no section that its readers see", async (context) => {
  for (const program of ["apt-get", "dpkg-deb"]) {
    if (spawnSync(program, ["--version"]).error !== undefined) return context.skip(`${program} is not installed`);
  }
  await withTemporaryFolder(async (root) => {
    const lost: string[] = [];
    let sections = 0;
    for (const source of [...SOURCES, ...MORE] as readonly (PageSource | typeof MORE[number])[]) {
      const folder = join(root, source.name);
      const failed = fetchPackage(source, folder);
      if (failed !== undefined) return context.skip(`cannot fetch "${source.name}": ${failed}`);
      const containers = "keep" in source ? [[source.keep, source.drop] as const] : CONTAINERS;
      for (const file of pagesOf("under" in source ? source.under : "", folder).slice(0, MAX_PAGES)) {
        const bytes = new Uint8Array(readFileSync(file));
        const body = { bytes, contentType: "text/html", url: "https://docs.example/" };
        const page = await readPage(body, { stopped: () => false });
        // Readers do not see the sections that a page hides
        if (page?.notices.some((notice) => /that the page hides|plain text of the whole/.test(notice))) continue;
        const shown = new Set(wordsOf(withoutMarks(page?.text ?? "")));
        for (const words of sectionsOf(bytes, containers)) {
          sections++;
          const missing = [...words].filter((word) => !shown.has(word));
          if (missing.length > words.size * 0.3) {
            lost.push(`${source.name} ${basename(file)}: ${missing.slice(0, 8).join(" ")}`);
          }
        }
      }
      rmSync(folder, { recursive: true });
    }
    console.log(`${sections} sections, lost: ${lost.length}`);
    for (const line of lost) console.log(`  ${line}`);
    assert.equal(SOURCES.length + MORE.length, 100);
    assert.ok(lost.length <= sections * MAX_LOST_SECTIONS, `${lost.length} of ${sections} sections are lost`);
  });
});

/** Returns the mean of differences with its interval of 95 % by bootstrap. */
function intervalOf(differences: readonly number[]): string {
  const random = createSeededRandom();
  const pick = () => differences[random.bytes(4).reduce((sum, byte) => sum * 256 + byte, 0) % differences.length] ?? 0;
  const means = Array.from({ length: 2000 }, () => mean(differences.map(pick))).sort((a, b) => a - b);
  return `${mean(differences).toFixed(3)} (${means[50]?.toFixed(3)} to ${means[1949]?.toFixed(3)})`;
}

/** Reads one hostile page in a process of its own: memory that one page took would count for the next. */
const READ_ONE = `
import { readFileSync } from "node:fs";
import { readPage } from "${pathToFileURL(join(PROJECT_ROOT, "lib/web/read_page.ts"))}";
const bytes = new Uint8Array(readFileSync(process.argv[1]));
await readPage({ bytes: new TextEncoder().encode("<p>x"), contentType: "text/html", url: "https://a.example/" }, { stopped: () => false });
const before = process.memoryUsage().rss;
const start = performance.now();
const page = await readPage({ bytes, contentType: "text/html", url: "https://a.example/" }, { stopped: () => false });
const ms = performance.now() - start;
console.log(JSON.stringify({ ms, mb: (process.resourceUsage().maxRSS * 1024 - before) / 1e6, notices: page.notices.length }));
`;

test("no hostile page takes more than 2 s or 200 MB", () =>
  withTemporaryFolder((folder) => {
    const file = join(folder, "page.html");
    const over: string[] = [];
    for (const [name, make] of Object.entries(HOSTILE_PAGES)) {
      writeFileSync(file, make().slice(0, 8_388_608));
      const args = ["--max-semi-space-size=16", "--input-type=module", "--eval", READ_ONE, file];
      const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
      assert.notEqual(stdout, "", `${name}: ${stderr}`);
      const { ms, mb, notices } = JSON.parse(stdout) as { ms: number; mb: number; notices: number };
      console.log(`${name}: ${Math.round(ms)} ms, ${Math.round(mb)} MB${notices > 0 ? ", with a notice" : ""}`);
      if (ms > MAX_MS || mb > MAX_MB) over.push(name);
    }
    assert.deepEqual(over, []);
  }));

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
}
