import assert from "node:assert/strict";
import { test } from "node:test";
import { ToolError } from "../../../lib/base/errors.ts";
import { applyHunks } from "../../../lib/tools/files/apply_hunks.ts";
import { parsePatch } from "../../../lib/tools/files/parse_patch.ts";

/** A text after the hunks written as in a patch. */
function apply(text: string, ...lines: readonly string[]): string {
  const [section] = parsePatch(["*** Begin Patch", "*** Update File: f", ...lines, "*** End Patch"].join("\n"));
  assert.ok(section?.kind === "update");
  return applyHunks(text, section.hunks, "f");
}

const refused = (pattern: RegExp) => (error: unknown) =>
  error instanceof ToolError && error.code === "patch_mismatch" && pattern.test(error.message);

test("hunks replace, remove and insert lines from the top down", () => {
  const text = "a\nb\nc\nd\ne\n";
  assert.equal(apply(text, "@@", " a", "-b", "+B", " c"), "a\nB\nc\nd\ne\n");
  assert.equal(apply(text, "-b", "@@", "-d", "+D", "+D2"), "a\nc\nD\nD2\ne\n");
  assert.equal(apply(text, "-a", "-b", "-c", "-d", "-e"), "");
  assert.equal(apply("", "+one", "+two"), "one\ntwo\n");
  assert.throws(
    () => apply(text, "@@", "-d", "@@", "-a"),
    refused(/hunk 2: its place is line 1, but hunk 1 ends at line 4/),
  );
  assert.throws(() => apply(text, "@@", "-x"), refused(/hunk 1: "x" is not in the file; read it/));
  assert.throws(() => apply(text, "@@", " a", "-c"), refused(/hunk 1: "a" and what follows/));
});

test("text behind @@ says where to look", () => {
  const text = "def f():\n  x = 1\n  y = 2\ndef g():\n  x = 1\n  y = 2\n";
  assert.equal(
    apply(text, "@@ def g():", "-  x = 1", "+  x = 9"),
    text.replace(/x = 1(?=[^]*$)(?![^]*x = 1)/, "x = 9"),
  );
  assert.equal(apply(text, "@@ def g():", "@@   x = 1", "-  y = 2"), text.slice(0, text.lastIndexOf("  y")));
  assert.equal(apply(text, "@@ def g():", " def g():", "+  z"), text.replace("def g():\n", "def g():\n  z\n"));
  assert.equal(apply(text, "@@ def f():", "+  first"), text.replace("def f():\n", "def f():\n  first\n"));
  assert.throws(() => apply(text, "@@ def h():", "-  x = 1"), refused(/hunk 1: "@@ def h\(\):"/));
  assert.equal(apply("a\nx\na\nx\n", "@@", "-x", "+1", "@@", "-x", "+2"), "a\n1\na\n2\n");
});

test("the end-of-file marker ties a hunk to the last lines", () => {
  const text = "x\ny\nx\n";
  assert.equal(apply(text, "@@", "-x", "+z", "*** End of File"), "x\ny\nz\n");
  assert.equal(apply(text, "@@", "+more", "*** End of File"), "x\ny\nx\nmore\n");
  assert.throws(() => apply(text, "@@", "-y", "*** End of File"), refused(/not the last lines/));
});

test("white space is forgiven as a last resort, and the file's own is kept", () => {
  assert.equal(apply("\tif x:  \n\t\ty\n", "@@", " if x:", "-  y", "+\t\tz"), "\tif x:  \n\t\tz\n");
  assert.equal(apply("a  \na\n", "@@", "-a", "+b"), "a  \nb\n", "an exact place comes first");
  assert.throws(() => apply("\ta\n  a\n", "@@", "-a"), refused(/"a" fits 2 places: lines 1, 2/));
});

test("typographic dashes, quotes and blanks equal ASCII after all else, and the file's own are kept", () => {
  const text = "it\u2019s \u201cwell\u201d \u2013 or\u00a0not\nx\n";
  assert.equal(apply(text, "@@", ' it\'s "well" - or not', "-x", "+y \u2014"), text.replace("x", "y \u2014"));
  assert.equal(apply("a\u2212b\na-b\n", "@@", "-a-b", "+c"), "a\u2212b\nc\n", "an exact place comes first");
  assert.equal(apply("a\u2212b\n", "@@", "-a-b", "+c"), "c\n");
  assert.throws(() => apply("a\u2212b\na\u2013b\n", "@@", "-a-b"), refused(/fits 2 places/));
});

test("the same text in other code points has a place after the exact one, and changed lines keep the file's own", () => {
  const [composed, apart] = ["Caf\u00e9", "Cafe\u0301"];
  assert.equal(apply(`${apart} a\n${composed} a\n`, "@@", `-${composed} a`, "+x"), `${apart} a\nx\n`);
  assert.equal(apply(`${apart} a\nb\n`, "@@", ` ${composed} a`, "-b", "+c"), `${apart} a\nc\n`);
  assert.equal(apply(`${apart} a\n`, "@@", `-${composed} a`, `+${composed} b`), `${apart} b\n`);
  assert.equal(apply(`  ${apart} a\n`, "@@", `-${composed} a`, `+${composed} b`), `  ${apart} b\n`);
  assert.equal(apply(`  a\ndef ${apart}:\n  a\n`, `@@ def ${composed}:`, "-  a"), `  a\ndef ${apart}:\n`);
});

test("a changed line that was found by ASCII quotes and dashes keeps the file's own in what it repeats", () => {
  const text = "  it\u2019s \u201cwell\u201d \u2013 or\u00a0not\n";
  assert.equal(
    apply(text, "@@", '-  it\'s "well" - or not', '+  it\'s "good" - or now, "yes"'),
    '  it\u2019s \u201cgood\u201d \u2013 or\u00a0now, "yes"\n',
  );
  assert.equal(apply(text, "@@", '-it\'s "well" - or not', "+it's so"), "  it\u2019s so\n");
  assert.equal(
    apply("\u201ca\u201d\n\u201cb\u201d\n", "@@", '-"a"', '-"b"', '+"c"', '+"d"', '+"e"'),
    '\u201cc\u201d\n\u201cd\u201d\n"e"\n',
  );
  assert.equal(
    apply('"a"\n', "@@", '-"a"', "+\u201cb\u201d"),
    "\u201cb\u201d\n",
    "an exact line is as the patch has it",
  );
});

test("new lines are indented like the file where the hunk's old lines were not", () => {
  const python = "class A:\n    def f(self):\n        if x:\n            y()\n";
  assert.equal(
    apply(python, "@@", " if x:", "-    y()", "+    z()", "+    if w:", "+        v()", "+", "+end"),
    python.replace("            y()\n", "            z()\n            if w:\n                v()\n\n        end\n"),
  );
  assert.equal(
    apply("\tif x {\n\t\ty\n\t}\n", "@@", "     if x {", "-        y", "+        z", "+            w"),
    "\tif x {\n\t\tz\n\t\t\tw\n\t}\n",
  );
  assert.equal(apply("  a\n", "@@", "       a", "+      b", "+        c"), "  a\n  b\n    c\n");
  assert.equal(apply("  a  \n", "@@", "   a", "+    b"), "  a  \n    b\n", "white space at the end says nothing");
  assert.throws(
    () => apply("\ta\n\t\tb\n", "@@", "   a", "   b", "+  c"),
    refused(
      /hunk 1: it fits line 1 apart from the indentation, which does not tell how to indent " {2}c"; copy the old lines/,
    ),
  );
  assert.throws(() => apply("\ta\n", "@@", "     a", "+   b"), refused(/does not tell how to indent " {3}b"/));
});

test("line endings are kept, and so is the lack of the last one", () => {
  assert.equal(apply("a\r\nb\r\nc\r\n", "@@", " a", "-b", "+B", "+B2"), "a\r\nB\r\nB2\r\nc\r\n");
  assert.equal(apply("a\r\nb\r\n", "@@", " a\r", "-b\r", "+B\r"), "a\r\nB\r\n");
  assert.equal(apply("a\nb\r\nc", "@@", "+x", " b", "+y"), "a\nx\nb\r\ny\r\nc");
  assert.equal(apply("a\nb", "@@", "-b", "+c"), "a\nc");
  assert.equal(apply("a\nb", "@@", " b", "+c"), "a\nb\nc");
  assert.equal(apply("a", "@@", "+b", " a"), "b\na");
  assert.equal(apply("a\nb", "@@", "-b"), "a");
});

test("line endings that the patch shows are made", () => {
  const text = "a\r\nb\nc\r\n";
  assert.equal(apply(text, "@@ -2 +2 @@", "-b", "+B\r"), "a\r\nB\r\nc\r\n");
  assert.equal(apply(text, "@@ -1 +1,2 @@", "-a\r", "+A", "+A2\r"), "A\nA2\r\nb\nc\r\n");
  assert.equal(apply(text, "@@ -1,0 +2 @@", "+x"), "a\r\nx\nb\nc\r\n");
  assert.equal(apply("x\r\nx\n", "@@", "-x\r", "+y\r"), "y\r\nx\n", "the ending tells the lines apart");
  assert.throws(() => apply("x\r\nx\n", "@@", "-x", "+y"), refused(/fits 2 places/));
  assert.equal(apply("a\nb\n", "@@", " a\r", "-b\r", "+B\r"), "a\nB\n", "CRLF that the file has not says nothing");
  assert.throws(
    () => apply("a\r\nb\r\n", "@@ -1,0 +2 @@", "+x"),
    refused(/end with CRLF, and the hunk does not show how its own end/),
  );
  assert.equal(apply("a\r\nb\r\n", "@@ -1,0 +2 @@", "+x\r"), "a\r\nx\r\nb\r\n");
  assert.equal(apply("a\r\nb\r\n", "@@ -1,0 +2,2 @@", "+x\r", "+y"), "a\r\nx\r\ny\nb\r\n");
  assert.equal(apply("a\r\nb", "@@ -2 +2 @@", "-b", "+c"), "a\r\nc", "its ending is not written");
  assert.throws(() => apply("a\r\nb", "@@ -2 +2,2 @@", "-b", "+c", "+d"), refused(/end with CRLF/));
  assert.equal(apply("a\r\nb\r\n", "@@", "+x", "*** End of File"), "a\r\nb\r\nx\r\n");
});

test("a missing newline at the end is told by the patch", () => {
  const none = "\\ No newline at end of file";
  assert.equal(apply("a\nb", "@@", "-b", none, "+c"), "a\nc\n");
  assert.equal(apply("a\nb\n", "@@", "-b", "+c", none), "a\nc");
  assert.equal(apply("a\nb", "@@", "-b", none, "+c", none), "a\nc");
  assert.equal(apply("a\nb", "@@", "-a", "+A", " b", none), "A\nb");
  assert.equal(apply("a\nb", "@@", " a", "-b", none), "a\n");
  assert.equal(apply("a\nb", "@@", "-b", none, "+b", "+c", none), "a\nb\nc");
  assert.equal(
    apply("x\ny\nx", "@@", "-x", "\\ Kein Zeilenumbruch am Dateiende.", "+z"),
    "x\ny\nz\n",
    "in any language, and at the end",
  );
  assert.equal(apply("", "@@ -0,0 +1 @@", "+a", none), "a");
  assert.equal(apply("a\r", "@@", "-a\r", none, "+b\r", none), "b\r");
  assert.throws(() => apply("b\na\n", "@@", "-b", none), refused(/not the last lines of the file: line 2 is "a"/));
});

test("a move without hunks keeps every byte", () => {
  for (const text of ["", "\ufeff", "\ufeffa\r\nb\n\nc", "a\r", "\n", "\r\n"]) {
    assert.equal(applyHunks(text, [], "f"), text);
  }
});

test("a byte order mark stays, unless the patch shows it and takes it away", () => {
  assert.equal(apply("\ufeffa\nb\n", "@@", "-a", "+A", " b"), "\ufeffA\nb\n");
  assert.equal(apply("\ufeffa\nb\n", "@@ -0,0 +1 @@", "+first"), "\ufefffirst\na\nb\n");
  assert.equal(apply("\ufeffa\nb\n", "@@", "-a"), "\ufeffb\n");
  assert.equal(apply("\ufeffa\na\n", "@@", "-\ufeffa", "+\ufeffA"), "\ufeffA\na\n", "it stands at the start only");
  assert.equal(apply("\ufeffa\n", "@@", "-\ufeffa", "+a"), "a\n");
  assert.equal(apply("a\n", "@@", "-a", "+\ufeffa"), "\ufeffa\n");
  assert.equal(apply("\ufeff", "@@", "+a"), "\ufeffa\n");
  assert.equal(apply("\ufeff", "@@ -1 +1 @@", "-\ufeff", "\\ No newline at end of file", "+\ufeffa"), "\ufeffa\n");
});

test("a patch that would compare without end is refused", () => {
  const hunk = ["@@", ...Array.from({ length: 20_000 }, (_, i) => (i % 2 === 0 ? " a" : " b")), "-a", "-a"];
  assert.throws(
    () => apply("a\nb\n".repeat(50_000), ...hunk),
    (error) => error instanceof ToolError && error.code === "patch_too_costly",
  );
});

test("a big patch of a file with equal lines is quick", () => {
  const hunks = Array.from({ length: 20_000 }, (_, i) => [`@@ -${5 * i + 1} +${5 * i + 1} @@ x`, "-  x", "+  y"]);
  assert.equal(apply("  x\n".repeat(100_000), ...hunks.flat()).length, 400_000);
  const listed = Array.from({ length: 20_000 }, () => ["@@", "-    x", "+    y"]);
  assert.equal(apply("\tx\n".repeat(20_000), ...listed.flat()), "\ty\n".repeat(20_000));
});
