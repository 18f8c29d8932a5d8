import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { parseToml } from "../../lib/config/toml.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { unknownWords } from "./support/check_words.ts";
import { type Block, parsePage, readPages } from "./support/read_pages.ts";
import { commandsOf, linkPackages, runPage, write } from "./support/run_page.ts";
import { withTutorialModel } from "./support/tutorial_model.ts";

/** Languages that a block without a mark may have; `text` is output and not code. */
const LANGUAGES = ["sh", "console", "ts", "js", "toml", "json", "markdown", "text"];
const PAGES = readPages();
const BLOCKS = PAGES.flatMap(({ blocks }) => blocks);
const ON_DENO = "Deno" in globalThis;
/** How a reader's program is compiled: strictly, with the types of Node and of the browser's WebSocket */
const TYPES = {
  compilerOptions: {
    ...{ target: "es2024", module: "nodenext", lib: ["es2024", "dom", "esnext.disposable", "esnext.array"] },
    ...{ types: ["node"], strict: true, allowJs: true, checkJs: true, noEmit: true, skipLibCheck: true },
    ...{ allowImportingTsExtensions: true, erasableSyntaxOnly: true },
  },
  include: ["*.mts", "*.mjs"],
};
/** Says why the blocks of the pages are not run here. The pages are the same on every runtime, and commands have tests of their own. */
const NOT_HERE = ON_DENO
  ? "on Node they are the same pages"
  : ["bash", "curl"].some((name) => spawnSync(name, ["--version"]).status !== 0) && "no bash or curl";
const isProgram = ({ language, notRun }: Block) => ["ts", "js"].includes(language) && notRun === undefined;

describe("the commands and programs of a page work, in order, against a gateway", { concurrency: 4 }, () => {
  for (const page of PAGES) {
    const isTutorial = page.path === "docs/tutorial.md";
    test(
      page.path,
      { skip: NOT_HERE },
      () => isTutorial ? withTutorialModel((env) => runPage(page, env)) : runPage(page),
    );
  }
  test(
    "its programs have the right types",
    { skip: ON_DENO && "on Node it is the same compiler" },
    () =>
      withTemporaryFolder(async (folder) => {
        const programs = BLOCKS.filter(isProgram);
        linkPackages(folder);
        write(join(folder, "tsconfig.json"), JSON.stringify(TYPES));
        for (const [at, { text, language }] of programs.entries()) {
          write(join(folder, `${at}.${language === "js" ? "mjs" : "mts"}`), text);
        }
        const words = [join(PROJECT_ROOT, "node_modules/typescript/bin/tsc"), "-p", folder, "--checkers", "1"];
        const compiler = spawn(process.execPath, words);
        let output = programs.map(({ place }, at) => `${at}: ${place}\n`).join("");
        compiler.stdout.setEncoding("utf8").on("data", (part: string) => (output += part));
        const [code] = await once(compiler, "close");
        assert.equal(code, 0, output);
      }),
  );
});

test("every block is in a language that is run, or is marked as not run with the reason", () => {
  const wrong = BLOCKS.filter(({ language, notRun }) => notRun === undefined && !LANGUAGES.includes(language));
  assert.deepEqual(wrong.map(({ place, language }) => `${place}: "${language}"`), []);
});

test("every configuration in a page is one that Postern takes", () => {
  const isConfig = ({ language, notRun, file }: Block) =>
    language === "toml" && notRun === undefined && (file === undefined || file === "postern.toml");
  for (const { place, text } of BLOCKS.filter(isConfig)) {
    const result = validateConfig([parseToml(text, place)]);
    assert.ok("config" in result, `${place}: ${JSON.stringify("findings" in result && result.findings)}`);
  }
});

test("every JSON in a page can be read: a value, or one on each line", () => {
  for (const { place, text } of BLOCKS.filter(({ language }) => language === "json")) {
    const isValue = (one: string) => {
      try {
        return JSON.parse(one) !== undefined;
      } catch {
        return false;
      }
    };
    assert.ok(isValue(text) || text.split("\n").filter(Boolean).every(isValue), place);
  }
});

for (const page of PAGES) {
  test(`${page.path} names commands, flags and configuration keys that exist`, async () => {
    assert.deepEqual(await unknownWords(page), []);
  });
}

for (const { path, prose } of PAGES.filter(({ path }) => path !== "README.md")) {
  test(`${path} begins with what its reader can do after it`, () => {
    assert.match(prose, /^# \S.*\n\nAfter this page you can /);
  });
}

test("every link of a page leads to a file and a heading that are there", () => {
  const headings = new Map(PAGES.map(({ path, prose }) => [path, anchorsOf(prose)]));
  for (const { path, prose } of PAGES) {
    for (const [whole, target = ""] of prose.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [file = "", anchor] = target.split("#");
      const place = file === "" ? path : join(dirname(path), file);
      assert.ok(existsSync(join(PROJECT_ROOT, place)), `${path}: ${whole}`);
      if (anchor !== undefined) assert.ok(headings.get(place)?.includes(anchor), `${path}: ${whole}`);
    }
  }
});

test("a page is read with its blocks and their marks, and a mark that nobody knows is refused", () => {
  const text = "# A\n\n<!-- not run: needs root -->\n```sh\nsudo x\n```\n\n- b\n\n  ```toml\n  a = 1\n  ```\n";
  const { blocks, prose } = parsePage("a.md", text);
  assert.deepEqual(blocks.map(({ place, language, text, notRun }) => [place, language, text, notRun]), [
    ["a.md:4", "sh", "sudo x", "needs root"],
    ["a.md:10", "toml", "a = 1", undefined],
  ]);
  assert.doesNotMatch(prose, /sudo/);
  const printing = "```js\nconsole.log(1)\n```\n\n<!-- output: of the program above -->\n```text\n1\n```\n";
  assert.deepEqual(parsePage("a.md", printing).blocks.map(({ output }) => output), ["1", undefined]);
  assert.throws(() => parsePage("a.md", "<!-- unknown: x -->\n```sh\n```\n"), /none of the marks/);
  assert.throws(() => parsePage("a.md", "<!-- not run: x -->\nText\n"), /right above/);
});

test("a program of a page fails on an error that it prints, and on an output that is not the page's", {
  skip: NOT_HERE,
}, async () => {
  const page = (code: string, output: string) =>
    parsePage(
      "a.md",
      `\`\`\`js\n${code}\n\`\`\`\n\n<!-- output: of the program above -->\n\`\`\`text\n${output}\n\`\`\`\n`,
    );
  await assert.rejects(runPage(page('console.log({ error: { code: "unsupported_media_type" } })', "...")), /refused/);
  await assert.rejects(runPage(page("console.log(1)", "2")), /what it prints/);
  await assert.rejects(runPage(parsePage("a.md", "```js\nconsole.log(1)\n```\n")), /what it prints/);
  await runPage(page("console.log(`12 ${Math.random()}`)", "12 ..."));
});

test("a script is split into commands, each with all of its lines", () => {
  const script = "# first\na b   # c\n\nd \\\n  e\nf '{\n}'\ncat <<END\nx\nEND\n";
  assert.deepEqual(commandsOf(script), ["a b   # c", "d \\\n  e", "f '{\n}'", "cat <<END\nx\nEND"]);
});

test("words that do not exist are found in commands, configurations and prose", async () => {
  const text = [
    "Use `postern cron lst`, `[gateway] prot` or `[agents.<name>]`.",
    "<!-- not run: x -->\n```sh\nPOSTERN__GATEWAY__PROT=1 postern gateway --prt 1\n```",
    "<!-- not run: x -->\n```toml\n[gateway]\nprot = 1\n```",
  ].join("\n\n");
  assert.deepEqual(await unknownWords(parsePage("a.md", text)), [
    'a.md:4: no flag --prt of "postern gateway"',
    "a.md:4: no key for POSTERN__GATEWAY__PROT",
    "a.md:9: no key gateway.prot",
    'a.md: no command "postern cron lst"',
    'a.md: no key "[gateway] prot"',
  ]);
});

/** Anchors of the headings, as GitHub makes them. */
function anchorsOf(prose: string): readonly string[] {
  return [...prose.matchAll(/^#+ (.+)$/gm)].map((match) =>
    (match[1] ?? "").toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, "").trim().replaceAll(" ", "-")
  );
}
