import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { suite, test } from "node:test";
import fc from "fast-check";
import { lineDifference } from "../../lib/base/line_difference.ts";
import { isThere } from "../support/git_fixture.ts";
import { withWorkspace } from "../support/workspace.ts";

const lines = (...all: readonly string[]) => all.join("\n");
const NO_END = "\\ No newline at end of file";

suite("a difference shows", () => {
  const cases: readonly (readonly [string, string, string, string])[] = [
    ["nothing for equal texts", "a\nb", "a\nb", ""],
    ["a changed line with its neighbours", "a\nb\nc\n", "a\nB\nc\n", lines("@@ -1,3 +1,3 @@", " a", "-b", "+B", " c")],
    ["a text that is new", "", "a\nb\n", lines("@@ -0,0 +1,2 @@", "+a", "+b")],
    ["a text that is gone", "a\n", "", lines("@@ -1,1 +0,0 @@", "-a")],
    ["a line break at the end that is missing", "a\n", "a", lines("@@ -1,1 +1,1 @@", "-a", "+a", NO_END)],
    [
      "pieces that are far from each other, each with its place",
      "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n",
      "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n",
      lines("@@ -1,3 +1,4 @@", "+0", " 1", " 2", " 3", "@@ -8,4 +9,3 @@", " 8", " 9", " 10", "-11"),
    ],
    ["the shortest of several", "a\nb\nc\n", "b\nc\nd\n", lines("@@ -1,3 +1,3 @@", "-a", " b", " c", "+d")],
  ];
  for (const [what, before, after, difference] of cases) {
    test(what, () => assert.equal(lineDifference(before, after), difference));
  }
});

const text = fc.tuple(
  fc.array(fc.constantFrom("a", "b", "c", "", "-x", "+y", "@@ -1 +1 @@", "\\ No", "d\r", "\u2028\u0085\f"), {
    maxLength: 24,
  }),
  fc.boolean(),
).map(([all, isEnded]) => all.join("\n") + (isEnded && all.length > 0 ? "\n" : ""));

test("any two parts are those that their difference with all lines tells of", () => {
  fc.assert(
    fc.property(text, text, (before, after) => {
      const difference = lineDifference(before, after, { context: 100, ofParts: true });
      if (before === after) return assert.equal(difference, "");
      const told = difference.split("\n").slice(1);
      const of = (signs: string) => told.filter((line) => signs.includes(line[0] ?? "")).map((line) => line.slice(1));
      assert.equal(of(" -").join("\n"), before);
      assert.equal(of(" +").join("\n"), after);
    }),
  );
});

/** Lines of which more differ than the shortest difference is looked for, between `common` lines at both ends. */
const replaced = (common: number, name: string) =>
  ["head", name, "tail"].map((part) =>
    Array.from({ length: part === name ? 600 : common }, (_, at) => `${part}${at}\n`).join("")
  ).join("");

test("git apply makes the second text of the first", { skip: !isThere("git") && "git is not installed" }, async () => {
  const pairs = [
    ...fc.sample(fc.tuple(text, text), 200).filter(([before, after]) => before !== after),
    ...[0, 2, 9].map((common) => [replaced(common, "a"), replaced(common, "b")] as const),
    [replaced(9, "a").slice(0, -1), replaced(9, "b")] as const,
  ];
  const files = Object.fromEntries(pairs.map(([before], at) => [`f${at}`, before]));
  await withWorkspace(files, ({ root }) => {
    const patch = pairs.map(([before, after], at) =>
      `--- a/f${at}\n+++ b/f${at}\n${lineDifference(before, after, { maxBytes: 1_000_000 })}\n`
    );
    const { status, stderr } = spawnSync("git", ["apply", "--whitespace=nowarn", "-"], {
      cwd: root,
      input: patch.join(""),
      encoding: "utf8",
      env: {
        PATH: process.env["PATH"],
        GIT_CONFIG_NOSYSTEM: "1",
        GIT_CONFIG_GLOBAL: "/dev/null",
        GIT_CEILING_DIRECTORIES: root,
      },
    });
    assert.equal(status, 0, stderr);
    for (const [at, [, after]] of pairs.entries()) assert.equal(readFileSync(join(root, `f${at}`), "utf8"), after);
  });
});

test("two texts without a common line are shown as replaced, in little time", () => {
  const many = (name: string) => Array.from({ length: 5_000 }, (_, at) => `${name}${at}`).join("\n");
  const difference = lineDifference(many("a"), many("b"), { maxBytes: 1_000_000 });
  assert.match(difference, /^@@ -1,5000 \+1,5000 @@\n/);
  assert.equal(difference.split("\n").length, 10_003);
});

test("a long difference is cut between characters, and says so", () => {
  const difference = lineDifference("", "ä".repeat(500), { maxBytes: 100 });
  assert.match(difference, /^@@ -0,0 \+1,1 @@\n\+ä+\n\.\.\. the difference goes on; 100 bytes of it are shown$/);
});
