import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import fc from "fast-check";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { git, gitTest as test } from "../../support/git_fixture.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { withWorkspace } from "../../support/workspace.ts";

/** Searches leave out what `git check-ignore` names, and nothing else. One git reads all of them, each tree in a folder of one repository. */

const TREES = triesOf(200);
const files = createFiles({ home: "/home/nobody", ownPaths: [], clock: systemClock, blocking: true });

const NAMES = ["a", "b", "ab", "a.b", "b c", " a", "a ", "[a]", "-", "#a", "!a", "a\\", "\u00e9", "A1", "~", "*"];
const name = fc.constantFrom(...NAMES);
const folder = fc.array(name, { maxLength: 3 }).map((names) => names.join("/"));
const below = (place: string, file: string) => (place === "" ? file : `${place}/${file}`);

const piece = fc.constantFrom(
  ...["a", "b", "*", "**", "***", "?", "/", ".", "-", "\\", " ", "#", "!", "\u00e9", "\t", "1", "A"],
  ...[
    "[a]",
    "[!a]",
    "[^b-]",
    "[a-b]",
    "[",
    "]",
    "[]a]",
    "[a/]",
    "[\\]a-]",
    "[[:alpha:]]",
    "[![:upper:]]",
    "[[:x:]]",
    "[b-a]",
    "[a-\\b]",
  ],
  ...["{a,b}", "\\#", "\\!", "\\ ", "\\\\", "\\/", "**/", "/**", "a/b", "\r", "**/a/**", "a*", "[a-[:alpha:]]", "\0"],
);
const rule = fc.tuple(
  fc.constantFrom("", "", "!", "/", "!/", "#", "**/"),
  fc.oneof(name, fc.array(piece, { minLength: 1, maxLength: 4 }).map((pieces) => pieces.join(""))),
  fc.constantFrom("", "", "", "/", "/**", " ", "  ", "\\ ", "/*"),
).map((parts) => parts.join(""));
const ignores = fc.tuple(
  fc.constantFrom("", "\ufeff"),
  fc.array(rule, { minLength: 1, maxLength: 5 }),
  fc.constantFrom("\n", "\n", "\r\n"),
  fc.boolean(),
).map(([mark, rules, ending, isClosed]) => mark + rules.join(ending) + (isClosed ? ending : ""));
const tree = fc.record({
  files: fc.uniqueArray(fc.tuple(folder, name), { minLength: 1, maxLength: 12 }),
  ignores: fc.array(fc.tuple(folder, ignores), { minLength: 1, maxLength: 3 }),
});

/** Rules that people write, with the files that git keeps and those that it leaves out. */
const TABLE: readonly (readonly [rules: string, kept: readonly string[], left: readonly string[]])[] = [
  ["x\0y\n\0a\nb\0", ["a"], ["x", "b"]],
  ["build/**\n!build/keep.txt", ["build/keep.txt"], ["build/other.txt", "build/deep/keep.txt"]],
  ["build/*\n!build/keep.txt", ["build/keep.txt", "x/build/a"], ["build/other.txt", "build/deep/keep.txt"]],
  ["build/\n!build/keep.txt", [], ["build/keep.txt", "x/build/a"]],
  ["build\n!build/\nbuild/a", ["build/b", "x/build/b"], ["build/a"]],
  ["/*\n!/src\n/src/*\n!/src/a", ["src/a/b"], ["x", "src/b", "src/c/a"]],
  ["**/logs/**/*.log\n!**/logs/keep/", ["logs/a.txt", "a.log"], ["logs/a.log", "x/logs/y/z.log", "logs/keep/a.log"]],
  ["*\n!*/\n!*.ts", ["a.ts", "x/y/b.ts"], ["a.js", "x/y/b.js"]],
  ["a/**/b\n\\!c\n\\#d\ne\\ ", ["b", "x/a/b", "c", "e"], ["a/b", "a/x/y/b", "!c", "#d", "e "]],
  ["UP.TXT\n[[:upper:]]x\n[!a-c]y\n?\u00e9", ["up.txt", "ax", "ay", "\u00e9"], ["UP.TXT", "Ax", "dy", "a\u00e9"]],
];

interface Place {
  readonly files: readonly (readonly [folder: string, name: string])[];
  readonly ignores: readonly (readonly [folder: string, text: string])[];
}

/** Returns the contents of trees by their paths, each tree in a folder named after its place in the list. */
function contentsOf(trees: readonly Place[]): Readonly<Record<string, string>> {
  const contents = new Map<string, string>();
  for (const [index, { files, ignores }] of trees.entries()) {
    const all = [
      ...ignores.map(([folder, text]) => [below(folder, ".gitignore"), text] as const),
      ...files.map(([folder, file]) => [below(folder, file), ""] as const),
    ];
    const own = new Map<string, string>([["a", ""]]);
    for (const [path, text] of all) {
      const isFree = [...own.keys()].every((other) =>
        !`${other}/`.startsWith(`${path}/`) && !path.startsWith(`${other}/`)
      );
      if (isFree) own.set(path, text);
    }
    for (const [path, text] of own) contents.set(`t${index}/${path}`, text);
  }
  return Object.fromEntries(contents);
}

/** Compares a walk over trees with git, file by file. @returns the paths that both keep */
async function compare(trees: readonly Place[]): Promise<ReadonlySet<string>> {
  const contents = contentsOf(trees);
  const paths = Object.keys(contents).sort();
  let kept: ReadonlySet<string> = new Set();
  await withWorkspace(contents, async ({ root }) => {
    git(root, "init", "-q");
    const { stdout } = spawnSync("git", ["check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"], {
      cwd: root,
      input: paths.map((path) => `${path}\0`).join(""),
      encoding: "utf8",
      maxBuffer: 100_000_000,
      env: { PATH: process.env["PATH"], GIT_CONFIG_NOSYSTEM: "1", GIT_CONFIG_GLOBAL: "/dev/null" },
    });
    const told = stdout.split("\0");
    // The file of the rule, its line, its pattern and the path; the first three are empty where no rule matches
    const rules = new Map(paths.map((_, at) => [told[at * 4 + 3] ?? "", told[at * 4 + 2] ?? ""]));
    assert.deepEqual([...rules.keys()].sort(), paths, "git tells of each path");
    const scope = { workspaceRoot: root, allowedRoot: ".", forbiddenPaths: [], allowSensitive: true };
    const options = { respectGitignore: true, maxEntries: 1_000_000, signal: new AbortController().signal };
    const walked = new Set<string>();
    for await (const part of files.walk(".", scope, options)) for (const { path } of part) walked.add(path);
    kept = new Set(paths.filter((path) => !/^[^!]/.test(rules.get(path) ?? "")));
    const shown = (path: string) => {
      const folder = path.slice(0, path.indexOf("/") + 1);
      const ignores = paths.filter((file) => file.startsWith(folder) && file.endsWith(".gitignore"));
      return { path, git: rules.get(path), ignores: ignores.map((file) => [file, contents[file]]) };
    };
    assert.deepEqual([...walked].filter((path) => !kept.has(path)).map(shown), [], "git leaves these out");
    assert.deepEqual([...kept].filter((path) => !walked.has(path)).map(shown), [], "git keeps these");
  });
  return kept;
}

test("a walk leaves out what the rules of people say, as git does", async () => {
  const split = (path: string) => [path.split("/").slice(0, -1).join("/"), path.split("/").at(-1) ?? ""] as const;
  const kept = await compare(
    TABLE.map(([rules, ...all]) => ({ ignores: [["", rules]], files: all.flat().map(split) })),
  );
  for (const [index, [rules, isKept, isLeft]] of TABLE.entries()) {
    for (const path of isKept) assert.ok(kept.has(`t${index}/${path}`), `${JSON.stringify(rules)} keeps ${path}`);
    for (const path of isLeft) {
      assert.ok(!kept.has(`t${index}/${path}`), `${JSON.stringify(rules)} leaves ${path}`);
    }
  }
});

test("a walk leaves out of any tree what git ignores, and nothing else", async () => {
  await compare(fc.sample(tree, TREES));
});
