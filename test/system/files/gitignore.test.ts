import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import process from "node:process";
import fc from "fast-check";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { git, gitTest as test } from "../../support/git_fixture.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { withWorkspace } from "../../support/workspace.ts";

/** Searches of random trees leave out what `git check-ignore` names, and nothing else. */

const RUNS = triesOf(40);
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
  ...["{a,b}", "\\#", "\\!", "\\ ", "\\\\", "\\/", "**/", "/**", "a/b", "\r", "**/a/**"],
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

test("a walk leaves out of any tree what git ignores, and nothing else", async () => {
  await fc.assert(
    fc.asyncProperty(tree, async (given) => {
      const contents = new Map<string, string>([["a", ""]]);
      const isFree = (path: string) =>
        [...contents.keys()].every((other) => !other.startsWith(`${path}/`) && !`${path}/`.startsWith(`${other}/`));
      for (const [place, text] of given.ignores) {
        const path = below(place, ".gitignore");
        if (isFree(path)) contents.set(path, text);
      }
      for (const [place, file] of given.files) if (isFree(below(place, file))) contents.set(below(place, file), "");
      await withWorkspace(Object.fromEntries(contents), async ({ root }) => {
        git(root, "init", "-q");
        const paths = [...contents.keys()].sort();
        const { stdout } = spawnSync("git", ["check-ignore", "--no-index", "--stdin", "-z"], {
          cwd: root,
          input: paths.join("\0"),
          encoding: "utf8",
          env: { PATH: process.env["PATH"], GIT_CONFIG_NOSYSTEM: "1", GIT_CONFIG_GLOBAL: "/dev/null" },
        });
        const ignored = stdout.split("\0");
        const scope = { workspaceRoot: root, allowedRoot: ".", forbiddenPaths: [], allowSensitive: true };
        const walked: string[] = [];
        const options = { respectGitignore: true, maxEntries: 1000, signal: new AbortController().signal };
        for await (const part of files.walk(".", scope, options)) walked.push(...part.map(({ path }) => path));
        assert.deepEqual(walked.sort(), paths.filter((path) => !ignored.includes(path)));
      });
    }),
    { numRuns: RUNS },
  );
});
