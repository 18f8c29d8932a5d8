import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { lineDifference } from "../../lib/base/line_difference.ts";

const lines = (...all: readonly string[]) => all.join("\n");

suite("a difference shows", () => {
  const cases: readonly (readonly [string, string, string, string])[] = [
    ["nothing for equal texts", "a\nb", "a\nb", ""],
    ["a changed line with its neighbours", "a\nb\nc", "a\nB\nc", lines("@@ -1 +1 @@", " a", "-b", "+B", " c")],
    ["a text that is new", "", "a\nb", lines("@@ -1 +1 @@", "+a", "+b")],
    ["a text that is gone", "a", "", lines("@@ -1 +1 @@", "-a")],
    [
      "pieces that are far from each other, each with its place",
      "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11",
      "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10",
      lines("@@ -1 +1 @@", "+0", " 1", " 2", " 3", "@@ -8 +9 @@", " 8", " 9", " 10", "-11"),
    ],
    ["the shortest of several", "a\nb\nc", "b\nc\nd", lines("@@ -1 +1 @@", "-a", " b", " c", "+d")],
  ];
  for (const [what, before, after, difference] of cases) {
    test(what, () => assert.equal(lineDifference(before, after), difference));
  }
});

test("any two texts are those that their difference with all lines tells of", () => {
  const text = fc.array(fc.constantFrom("a", "b", "c", ""), { maxLength: 12 }).map((all) => all.join("\n"));
  fc.assert(
    fc.property(text, text, (before, after) => {
      const difference = lineDifference(before, after, { context: 100 });
      if (before === after) return assert.equal(difference, "");
      const told = difference.split("\n").slice(1);
      const of = (signs: string) => told.filter((line) => signs.includes(line[0] ?? "")).map((line) => line.slice(1));
      assert.equal(of(" -").join("\n"), before);
      assert.equal(of(" +").join("\n"), after);
    }),
  );
});

test("two texts without a common line are shown as replaced, in little time", () => {
  const many = (name: string) => Array.from({ length: 5_000 }, (_, at) => `${name}${at}`).join("\n");
  const difference = lineDifference(many("a"), many("b"), { maxBytes: 1_000_000 });
  assert.equal(difference.split("\n").length, 10_001);
});

test("a long difference is cut between characters, and says so", () => {
  const difference = lineDifference("", "ä".repeat(500), { maxBytes: 100 });
  assert.match(difference, /^@@ -1 \+1 @@\n\+ä+\n\.\.\. the difference goes on; 100 bytes of it are shown$/);
});
