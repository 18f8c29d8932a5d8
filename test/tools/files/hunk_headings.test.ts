import assert from "node:assert/strict";
import { test } from "node:test";
import {
  findHeadings,
  isBelowNearest,
  possiblyWithin,
  solePlaceWithin,
} from "../../../lib/tools/files/hunk_headings.ts";
import { createLineIndex, splitLines } from "../../../lib/tools/files/line_index.ts";

const indexOf = (...lines: readonly string[]) => createLineIndex(splitLines(lines.map((line) => `${line}\n`).join("")));

test("headings are found one behind the other, in the section of the outer one where they are in it", () => {
  const index = indexOf("class A", "  f()", "class B", "  f()", "f()", "class A");
  assert.deepEqual(findHeadings(["class A"], index), { first: 0, starts: [0, 5] });
  assert.deepEqual(findHeadings(["class A", "  f()"], index), { first: 1, starts: [1] });
  assert.deepEqual(
    findHeadings(["class B", "f()"], index),
    { first: 3, starts: [3] },
    "in the class, though less exact",
  );
  assert.deepEqual(findHeadings(["class B", "f( )"], index), { missing: "f( )" });
  assert.deepEqual(findHeadings(["f()", "class B"], index), { missing: "class B" });
  assert.deepEqual(findHeadings(["f()", "f()"], index), { missing: "f()" });
  assert.deepEqual(findHeadings(["  f()", "  f()"], index), { first: 3, starts: [3] });
  assert.deepEqual(findHeadings(["class B", "class A"], index), { first: 5, starts: [5] });
});

test("a section ends at a line that begins with a name and is indented no farther", () => {
  const index = indexOf("f {", "  a", "", "}", "# note", "out:", "  a", "g {", "  a");
  assert.deepEqual(possiblyWithin([0, 1, 3, 6, 7, 8], [0], index), [0, 1, 3, 6, 7]);
  assert.equal(solePlaceWithin([1, 8], [0], index), 1);
  assert.equal(solePlaceWithin([6, 8], [0], index), undefined, "the note may end the section");
  assert.equal(solePlaceWithin([1, 6], [0], index), undefined, "two of them");
  assert.equal(solePlaceWithin([1], [7], index), undefined, "above");
});

test("brackets that are indented like the heading do not end its section", () => {
  const index = indexOf("def f(", "    a", ") -> int:", "    b", "[", "    c", "]", "x = 1", "    c");
  assert.equal(solePlaceWithin([3, 8], [0], index), 3);
  assert.equal(solePlaceWithin([5, 8], [0], index), 5);
});

test("inner sections end with their own indentation, tabs as wide as eight blanks", () => {
  const index = indexOf("class A", "\tf()", "\t\ta", "        g()", "\t\ta", "  h()", "   a");
  assert.deepEqual(possiblyWithin([2, 4, 6], [1], index), [2]);
  assert.deepEqual(possiblyWithin([2, 4, 6], [0, 1], index), [2, 4, 6]);
  assert.equal(isBelowNearest(2, [0, 1], index), true);
  assert.equal(isBelowNearest(4, [0, 1], index), false, "the nearest is over");
  assert.equal(isBelowNearest(1, [1], index), true, "the heading itself");
  assert.equal(isBelowNearest(0, [1], index), false);
  const mixed = indexOf("f", "  \ta", "        g", "\ta");
  assert.deepEqual(possiblyWithin([3], [1], mixed), [], "two blanks and a tab are as wide as a tab");
});
