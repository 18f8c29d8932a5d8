import assert from "node:assert/strict";
import fc from "fast-check";
import { linkSync, readFileSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import { RE2JS } from "re2js";
import { systemClock } from "../../../lib/base/clock.ts";
import { utf16Of, utf16ToUtf8 } from "../../../lib/base/text.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import type { FileScope } from "../../../lib/system/files/files.ts";
import { searchFiles } from "../../../lib/tools/files/search_files.ts";
import type { FileSearch } from "../../../lib/tools/files/search_job.ts";
import { SEARCH_LIMITS, searchPattern } from "../../../lib/tools/files/search_pattern.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

/** Searches of many trees are compared with a plain reading of each file: no literals, no bytes, no parts of lines. */

const files = createFiles({ home: "/home/nobody", ownPaths: [], clock: systemClock, blocking: true });
const { signal } = new AbortController();
const RUNS = triesOf(50);
const KEY = `${"-".repeat(5)}BEGIN PRIVATE KEY${"-".repeat(5)}\n${"A".repeat(40)}`;

const encoder = new TextEncoder();
const utf16 = (text: string) =>
  new Uint8Array([0xff, 0xfe, ...[...text].flatMap((one) => [one.charCodeAt(0) & 255, one.charCodeAt(0) >> 8])]);

// Letters with a case outside A-Z are among them: of k and s, Unicode has another one
const word = fc.constantFrom(
  ..."gate Gate GATE task TASK tas\u212a \u017fkate stra\u00dfe STRASSE \u00e9t\u00e9 \u00c9T\u00c9 -- . * a.b k s 7"
    .split(" "),
  ...["\ufeff", "\ufffd", "\ud83d\ude00", " ", "\t", "\r", "\0", "x".repeat(500)],
);
const line = fc.array(fc.oneof(word, fc.constantFrom("gate", "task")), { maxLength: 4 }).map((words) => words.join(""));
const text = fc.tuple(fc.array(line, { maxLength: 5 }), fc.constantFrom("\n", "\r\n", "\r", "\n\n"))
  .map(([lines, ending]) => lines.join(ending));
const content = fc.tuple(text, fc.nat({ max: 9 })).map(([one, form]) => {
  switch (form) {
    case 0:
      return encoder.encode(`\ufeff${one}`);
    case 1:
      return utf16(one);
    case 2:
      return new Uint8Array([...encoder.encode(one), 0xff, 0xc3, ...encoder.encode("gate")]);
    case 3:
      return encoder.encode(`${"y".repeat(70_000)}${one}${"z".repeat(70_000)}\0${one}`);
    case 4:
      return encoder.encode(`${one}\n${KEY}`);
    default:
      return encoder.encode(one);
  }
});
const name = fc.constantFrom(
  "a.ts",
  "b.md",
  ".hidden",
  "-e",
  "c d.ts",
  "\u00e9.ts",
  "new\nline",
  "x.log",
  ".env",
  "\\.ts",
);
const folder = fc.constantFrom("", "src/", "src/deep/", ".git/", ".config/", "secret/", "logs/");
const rules = fc.constantFrom("*.log\n", "logs/\n!x.log\n", "/src\n", "*\n!*.ts\n", "!.hidden\n");
const tree = fc.tuple(
  fc.dictionary(fc.tuple(folder, name).map((parts) => parts.join("")), content, { maxKeys: 12 }),
  fc.dictionary(folder.map((at) => `${at}.gitignore`), rules.map((one) => encoder.encode(one)), { maxKeys: 2 }),
).map((parts): Readonly<Record<string, Uint8Array>> => Object.assign({}, ...parts));

const patterns = [
  ..."gate task (gate|task) gate.* (gate|t[ao]sk)7? gate.*task ^gate$ gate\\b [g]ate g(a|o)te \\x{e9}t stra\u00dfe"
    .split(" "),
  ..."\\.b -- a\\.b \\* (?i)gate (?i:g)ate \u00e9t\u00e9 \ufeff \ufffd \ud83d\ude00 ga\\x{0}te gate\\n x{400} k7|s7 ^ $ \\r"
    .split(" "),
];
const search: fc.Arbitrary<FileSearch> = fc.record({
  kind: fc.constant("lines"),
  pattern: fc.oneof(
    fc.constantFrom(...patterns),
    word.map((one) => one.replace(/[.*]/g, "\\$&").replaceAll("\0", "\\x00")),
  ),
  caseInsensitive: fc.boolean(),
  path: fc.constantFrom(".", ".", ".", "src", "link"),
  glob: fc.constantFrom(undefined, undefined, undefined, "*.ts", "src/**", "**/*.md"),
  limit: fc.constantFrom(1, 2, 100),
});

/** Links inside the workspace and to its outside, and a file with two names. */
function addLinks({ path, outside }: Workspace): void {
  symlinkSync("src", path("link"));
  symlinkSync(outside, path("out"));
  symlinkSync("a.ts", path("to-a.ts"));
  linkSync(path("plain.txt"), path("second.txt"));
}

/** Returns the lines of the tree that match, in the order of the files, as far as the limit of a search lets them be found. */
async function plainSearch({ path }: Workspace, scope: FileScope, { pattern, caseInsensitive, ...given }: FileSearch) {
  const compiled = RE2JS.compile(pattern, caseInsensitive ? RE2JS.CASE_INSENSITIVE : 0);
  const matchesGlob = given.glob === undefined ? () => true : searchPattern(given.glob, { anywhere: true });
  const found: string[] = [];
  let searched = 0;
  for await (const some of files.walk(given.path, scope, { respectGitignore: true, maxEntries: 1000, signal })) {
    for (const file of some.filter(({ below }) => matchesGlob(below))) {
      const raw = readFileSync(path(file.path));
      const isWide = utf16Of(raw) !== undefined;
      // A file with the mark of UTF-16 that is no such text is no text
      const bytes = isWide ? utf16ToUtf8(raw) : raw;
      if (bytes === undefined) continue;
      const isLinked = file.path === "plain.txt" || file.path === "second.txt";
      const isLeftOut = isLinked || bytes.subarray(0, 8192).includes(0) || raw.includes(KEY);
      if (found.length > given.limit || isLeftOut) continue;
      searched++;
      const lines = new TextDecoder().decode(bytes).split("\n");
      // Nothing comes after the last line break
      if (lines.at(-1) === "") lines.pop();
      for (const [index, one] of lines.entries()) {
        if (compiled.test(one.endsWith("\r") ? one.slice(0, -1) : one)) found.push(`${file.path}:${index + 1}`);
      }
    }
  }
  return { found: found.slice(0, given.limit + 1), searched };
}

test("a search finds what a plain reading of each file finds", async () => {
  let lines = 0;
  await fc.assert(
    fc.asyncProperty(
      tree,
      fc.array(search, { minLength: 1, maxLength: 6 }),
      (contents, searches) =>
        withWorkspace({ "src/one.ts": "gate task\n", "plain.txt": "gate", ...contents }, async (workspace) => {
          addLinks(workspace);
          const scope: FileScope = {
            workspaceRoot: workspace.root,
            allowedRoot: ".",
            forbiddenPaths: [workspace.path("secret")],
            allowSensitive: false,
          };
          for (const given of searches) {
            const options = { scope, clock: systemClock, signal, check: () => {}, limits: SEARCH_LIMITS };
            const result = await searchFiles(files, given, options);
            const found = result.matches.map(({ path, line }) => `${path}:${line}`);
            assert.deepEqual(
              { found, searched: result.files },
              await plainSearch(workspace, scope, given),
              given.pattern,
            );
            lines += found.length;
          }
        }),
    ),
    { numRuns: RUNS },
  );
  assert.ok(lines > RUNS, `only ${lines} lines were found`);
});
