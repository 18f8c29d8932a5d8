import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { applyHunks } from "../../../lib/tools/files/apply_hunks.ts";
import { parsePatch } from "../../../lib/tools/files/parse_patch.ts";
import { diffLines } from "./line_diff.ts";

/** A text after the hunks written as in a patch. */
function apply(text: string, ...lines: readonly string[]): string {
  const [section] = parsePatch(["*** Begin Patch", "*** Update File: f", ...lines, "*** End Patch"].join("\n"));
  assert.ok(section?.kind === "update");
  return applyHunks(text, section.hunks, "f");
}

const refused = (pattern: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ToolError && error.code === "patch_mismatch", String(error));
  assert.match(error.message, pattern);
  return true;
};

const BODY =
  "class A:\n  def run(self):\n    x = 1\n    return x\n\nclass B:\n  def run(self):\n    x = 1\n    return x\n";
const inB = BODY.replace(/(class B:[^]*)x = 1/, "$1x = 2");
const inA = BODY.replace("x = 1", "x = 2");
const CHANGE = ["-    x = 1", "+    x = 2"];

test("a hunk that fits several places is refused with their lines, their headings and what to add", () => {
  assert.throws(
    () => apply(BODY, "@@", ...CHANGE),
    refused(
      /^Cannot apply the patch to "f": hunk 1: " {4}x = 1" fits 2 places: lines 3 \(below "def run\(self\):"\), 8 \(below "def run\(self\):"\); add lines of context, an @@ line with the heading above the place, or line numbers \("@@ -12,3 \+12,4 @@"\)$/,
    ),
  );
  assert.throws(
    () => apply("x\n".repeat(100), "-x"),
    refused(/fits 100 places: lines 1, 2, 3, 4, 5, 6, 7, 8 and 92 more/),
  );
});

test("context decides, and so does a heading", () => {
  const text = "a\nx\nb\nx\nc\n";
  assert.equal(apply(text, "@@", "-x", "+y", " c"), "a\nx\nb\ny\nc\n");
  assert.equal(apply(BODY, "@@ class B:", ...CHANGE), inB);
  assert.equal(apply(BODY, "@@ class A:", ...CHANGE), inA);
  assert.equal(apply(BODY, "@@ class A:", "@@   def run(self):", ...CHANGE), inA);
  assert.equal(apply(BODY, "@@ class B:", "@@   def run(self):", ...CHANGE), inB);
  assert.equal(apply(BODY, "@@ class B:", " class B:", "   def run(self):", ...CHANGE), inB, "repeated in the hunk");
  assert.throws(
    () => apply(BODY, "@@   def run(self):", ...CHANGE),
    refused(/fits 2 places/),
    "the heading is there twice",
  );
  assert.throws(() => apply(BODY, "@@ class C:", ...CHANGE), refused(/"@@ class C:" is not in the file/));
  assert.throws(() => apply(BODY, "@@ class B:", "-class A:"), refused(/"class A:" is only above the @@ line/));
});

test("a place below the section of the heading is not taken for one in it", () => {
  const text = "def f():\n  x\ndef g():\n  y\ndef h():\n  x\n";
  assert.throws(() => apply(text, "@@ def g():", "-  x"), refused(/fits 2 places: lines 2 .*, 6/));
  assert.equal(apply(text, "@@ def f():", "-  y"), text.replace("  y\n", ""), "the text is there once");
  assert.equal(apply(text, "@@ def h():", "-  x"), text.slice(0, -4));
  const tabs = "class A:\n  x\nclass B:\n\tx\n";
  assert.equal(
    apply(tabs, "@@ class B:", "-  x", "+  y"),
    "class A:\n  x\nclass B:\n\ty\n",
    "more exact only above it",
  );
});

test("a heading whose section has the lines twice, or not surely, decides nothing", () => {
  const twice = "def f():\n  x\n  y\n  x\ndef g():\n  x\n";
  assert.throws(() => apply(twice, "@@ def f():", "-  x"), refused(/fits 3 places: lines 2 .*, 4 .*, 6/));
  assert.equal(apply(twice, "@@ def g():", "-  x"), twice.slice(0, -4));
  // A label and a directive at the start of a line may end the function, or not
  const label = "int f() {\n  x;\nout:\n  x;\n}\nint g() {\n  x;\n}\n";
  assert.throws(() => apply(label, "@@ int f() {", "-  x;"), refused(/fits 3 places/));
  const directive = "int f() {\n#if A\n  x;\n}\nint g() {\n  x;\n}\n";
  assert.throws(() => apply(directive, "@@ int f() {", "-  x;"), refused(/fits 2 places/));
});

test("of several places the one at the line number is taken, never the nearest", () => {
  assert.equal(apply(BODY, "@@ -8 +8 @@", ...CHANGE), inB);
  assert.equal(apply(BODY, "@@ -3,1 +3,1 @@ class A:", ...CHANGE), inA);
  assert.throws(() => apply(BODY, "@@ -7 +7 @@", ...CHANGE), refused(/fits 2 places: lines 3 .*, 8/));
  assert.throws(() => apply(BODY, "@@ -99 +99 @@", ...CHANGE), refused(/fits 2 places/));
  assert.equal(apply("a\nb\n", "@@ -9 +9 @@", "-b", "+c"), "a\nc\n", "the only place does not need its number");
});

test("a heading behind wrong line numbers decides, and one that contradicts right ones refuses", () => {
  assert.equal(apply(BODY, "@@ -70,3 +70,3 @@ class B:", ...CHANGE), inB);
  assert.throws(
    () => apply(BODY, "@@ -3 +3 @@ class B:", ...CHANGE),
    refused(/its line number and its heading name different places: lines 3 .*, 8/),
  );
  assert.throws(() => apply(BODY, "@@ -8 +8 @@ class A:", ...CHANGE), refused(/name different places/));
  assert.equal(apply(BODY, "@@ -8 +8 @@ class Gone:", ...CHANGE), inB, "a heading that is not there says nothing");
  assert.throws(
    () => apply("  b\na\nb\n", "@@ -1 +1 @@", "-b"),
    refused(/fits 2 places: lines 1, 3/),
    "exact elsewhere, nearly so here",
  );
});

test("headings that git or diff has cut are taken", () => {
  const long = `class ${"Long".repeat(30)}:`;
  const text = `def f():\n  x\n${long}\n  x\n`;
  assert.equal(apply(text, `@@ -9 +9 @@ ${long.slice(0, 80)}`, "-  x"), text.slice(0, -4));
  assert.equal(apply(text, `@@ ${long.slice(0, 40)}`, "-  x"), text.slice(0, -4));
  assert.equal(apply(text, `@@ ${long.slice(0, 40)}\ufffd`, "-  x"), text.slice(0, -4));
  assert.throws(() => apply(text, `@@ ${long.slice(0, 30)}`, "-  x"), refused(/is not in the file/));
});

test("line numbers move with the hunks that their text places, and decide nothing when those disagree", () => {
  const text = "0\n0\n0\nfirst\nx\n1\nx\nlast\nx\n";
  const moved = ["@@ -1 +1 @@", "-first", "+FIRST", "@@ -4 +4 @@", "-x", "+y"];
  assert.equal(apply(text, ...moved), "0\n0\n0\nFIRST\nx\n1\ny\nlast\nx\n", "both are three lines below their numbers");
  assert.throws(
    () => apply(text, ...moved, "@@ -9 +9 @@", "-last"),
    refused(/hunk 2: "x" fits 3 places: lines 5, 7, 9/),
  );
  assert.throws(() => apply(text, "@@ -5 +5 @@", "-x", "@@ -7 +7 @@", "-last"), refused(/hunk 1: "x" fits/));
});

test("hunks without old lines need a place", () => {
  const text = "def f():\n  a\ndef g():\n  a\n";
  assert.throws(
    () => apply(text, "@@", "+z"),
    refused(/hunk 1: it only adds lines, and nothing says where; add lines of context.*"\*\*\* End of File"/),
  );
  assert.equal(apply("", "@@", "+z"), "z\n");
  assert.equal(apply(text, "@@", "+z", "*** End of File"), `${text}z\n`);
  assert.equal(apply(text, "@@ def f():", "+  z"), text.replace("f():\n", "f():\n  z\n"));
  assert.throws(() => apply(text, "@@   a", "+z"), refused(/the @@ line fits 2 places: lines 2 .*, 4/));
  assert.equal(apply(text, "@@ -0,0 +1 @@", "+z"), `z\n${text}`);
  assert.equal(apply(text, "@@ -2,0 +3 @@ def f():", "+  z"), text.replace("  a\n", "  a\n  z\n"));
  assert.equal(apply(text, "@@ -4,0 +5 @@", "+z"), `${text}z\n`);
  assert.throws(() => apply(text, "@@ -5,0 +6 @@", "+z"), refused(/adds lines after line 5, but the file has 4 lines/));
  assert.throws(
    () => apply(text, "@@ -2,3 +2,4 @@", "+z"),
    refused(/nothing says where/),
    "it has not the three lines",
  );
  assert.throws(
    () => apply(text, "@@ -2,0 +3 @@ def g():", "+z"),
    refused(/after line 2, which is not below its heading "def g\(\):"/),
  );
  const around = ["@@ -2,0 +3 @@", "+z", "@@ -9 +10 @@", "-def g():"];
  assert.throws(
    () => apply(text, ...around),
    refused(/hunk 1: it only adds lines, and the hunks around it have moved/),
  );
});

test("the order of hunks never decides, except between hunks that list all places", () => {
  const text = "x\nmiddle\nx\n";
  assert.throws(() => apply(text, "@@", "-middle", "@@", "-x"), refused(/hunk 2: "x" fits 2 places: lines 1, 3/));
  assert.equal(apply(text, "@@", "-x", "+1", "@@", "-x", "+2"), "1\nmiddle\n2\n");
  assert.throws(() => apply("x\nx\nx\n", "@@", "-x", "+1", "@@", "-x", "+2"), refused(/fits 3 places/));
  assert.throws(
    () => apply("a\nb\n", "@@", "-b", "@@", "-a"),
    refused(/hunk 2: its place is line 1, but hunk 1 ends at line 2; hunks go from the top down/),
  );
  assert.throws(
    () => apply("a\nb\nc\n", "@@", " a", "-b", "@@", " b", "-c"),
    refused(/hunk 2: its place is line 2, but hunk 1 ends at line 2/),
  );
});

test("hunks that list all places may have headings, which decide first", () => {
  const text = "def f(\n  a,\n): ...\n\ndef f(\n  a,\n): ...\n";
  const [first, second] = [["@@ def f(", "-  a,", "+  b,"], ["@@ def f(", "-  a,", "+  c,"]] as const;
  assert.equal(apply(text, ...first, ...second), text.replace("  a", "  b").replace("  a", "  c"));
  assert.throws(() => apply(text, ...first), refused(/fits 2 places/));
  assert.throws(
    () => apply(BODY, "@@ class B:", ...CHANGE, "@@ class A:", ...CHANGE),
    refused(/hunk 2: its place is line 3/),
  );
});

test("a hunk does not see what an earlier one adds", () => {
  assert.throws(
    () => apply("a\nb\n", "@@", "-a", "+new", "@@", "-new", "+newer"),
    refused(/hunk 2: "new" is not in the file/),
  );
  assert.equal(apply("a\nx\n", "@@", "-a", "+x", "@@", "-x", "+y"), "x\ny\n");
});

test("lines that are not there are refused with the nearest place and what differs", () => {
  assert.throws(
    () => apply("a\nb\nc\nd\n", "@@", " b", " c", "-D"),
    refused(
      /hunk 1: "b" and what follows are not in the file; the nearest place is line 2, but there line 4 is "d" where the patch has "D"/,
    ),
  );
  assert.throws(
    () => apply("a\nb\n", "@@", " b", "-c"),
    refused(/nearest place is line 2, but there the file ends where the patch has "c"/),
  );
  assert.throws(
    () => apply("a\n", "@@", "-x", "*** End of File"),
    refused(/"x" and what follows are not the last lines of the file: line 1 is "a"/),
  );
});

const LINES = [
  "a",
  "b",
  "",
  "  c",
  "\tc",
  "}",
  "class A",
  "def f()",
  "  def g():",
  "out:",
  "é",
  "+e",
  "-f",
  "@@ g",
  "*** h",
  "\\ x",
];
const line = fc.constantFrom(...LINES);
/** Files with many equal lines, and edits of them. */
const changes = fc.record({
  lines: fc.array(line, { maxLength: 40 }),
  edits: fc.array(fc.record({ at: fc.nat(40), remove: fc.nat(3), add: fc.array(line, { maxLength: 3 }) }), {
    minLength: 1,
    maxLength: 4,
  }),
  endings: fc.constantFrom(["\n"], ["\r\n"], ["\n", "\n", "\r\n"]),
  endingAt: fc.array(fc.nat(2), { minLength: 60, maxLength: 60 }),
  open: fc.tuple(fc.boolean(), fc.boolean()),
  mark: fc.constantFrom(["", ""], ["\ufeff", "\ufeff"], ["\ufeff", ""], ["", "\ufeff"]),
  context: fc.nat(3),
}).map(({ lines, edits, endings, endingAt, open, mark, context }) => {
  const ended = (text: string, i: number) => text + (endings[(endingAt[i] ?? 0) % endings.length] ?? "\n");
  const old = lines.map(ended);
  const now = [...old];
  for (const { at, remove, add } of edits) now.splice(at, remove, ...add.map((text, i) => ended(text, at + i)));
  const join = (parts: readonly string[], isOpen: boolean, start: string | undefined) =>
    (start ?? "") + (isOpen ? parts.join("").replace(/\n$/, "") : parts.join(""));
  return { before: join(old, open[0], mark[0]), after: join(now, open[1], mark[1]), context };
}).filter(({ before, after }) => before !== after);

function outcome(text: string, lines: readonly string[]): string | ToolError {
  try {
    return apply(text, ...lines);
  } catch (error) {
    if (error instanceof ToolError) return error;
    throw error;
  }
}

test("a diff with line numbers makes the file that it was made for", () => {
  fc.assert(
    fc.property(changes, ({ before, after, context }) => {
      const patch = diffLines(before, after, context).flatMap((
        { numbers, heading, lines },
      ) => [`${numbers} ${heading}`, ...lines]);
      const result = outcome(before, patch);
      // Without context, a hunk can be silent about CRLF
      const isSilent = result instanceof ToolError && /the hunk does not show how its own end/.test(result.message);
      if (!isSilent) assert.equal(result, after, patch.join("\n"));
      else assert.ok(before.includes("\r\n") && context === 0, patch.join("\n"));
    }),
    { numRuns: 2_000 },
  );
});

test("a diff without line numbers, in any order of its hunks, makes that file or is refused", () => {
  let made = 0;
  fc.assert(
    fc.property(
      changes,
      fc.boolean(),
      fc.boolean(),
      fc.nat(3),
      ({ before, after, context }, withHeading, isMixed, turn) => {
        const hunks = diffLines(before, after, context);
        const olds = new Set(hunks.map(({ lines }) => lines.filter((text) => !text.startsWith("+")).join("\n")));
        // Hunks that list all places of the same lines are told apart by their order alone
        const order = isMixed && olds.size === hunks.length ? [...hunks.slice(turn), ...hunks.slice(0, turn)] : hunks;
        const patch = order.flatMap((
          { heading, lines, hasOld },
        ) => [withHeading && hasOld ? `@@ ${heading}` : "@@", ...lines]);
        const result = outcome(before, patch);
        if (result instanceof ToolError) return;
        made++;
        assert.equal(result, after, patch.join("\n"));
      },
    ),
    { numRuns: 2_000 },
  );
  assert.ok(made > 100, `${made} were made`);
});

test("a diff of lines that are all different needs no line numbers", () => {
  fc.assert(
    fc.property(changes, fc.integer({ min: 1, max: 3 }), fc.boolean(), ({ before, after }, context, withHeading) => {
      let count = 0;
      const old = before.replaceAll(/(?<=[^\n\r])(?=\r?\n)|(?<=\n)(?=\r?\n)/g, () => ` ${count++}.`);
      const patch = diffLines(old, after, context).flatMap((
        { heading, lines, hasOld },
      ) => [withHeading && hasOld ? `@@ ${heading}` : "@@", ...lines]);
      if (old !== after) assert.equal(outcome(old, patch), after, patch.join("\n"));
    }),
    { numRuns: 500 },
  );
});
