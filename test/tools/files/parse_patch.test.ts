import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { parsePatch, pathsOf } from "../../../lib/tools/files/parse_patch.ts";

const patch = (...lines: readonly string[]) => ["*** Begin Patch", ...lines, "*** End Patch"].join("\n");

test("reads every kind of section", () => {
  const sections = parsePatch(patch(
    "*** Add File: a b.txt",
    "+one",
    "+",
    "*** Delete File: old.txt",
    "*** Update File: src/x.ts",
    "*** Move to: src/y.ts",
    "@@ class A",
    "@@   method()",
    " keep",
    "-remove",
    "+add",
    "",
    "@@",
    "+last",
    "*** End of File",
    "*** Update File: z",
    " no at sign",
    "-x",
    "*** Update File: only",
    "*** Move to: moved",
  ));
  const line = (kind: string, text: string) => ({ kind, text, crlf: false });
  const plain = { anchors: [], numbers: undefined, startOfFile: false, endOfFile: false, lastLine: undefined };
  assert.deepEqual(sections, [
    { kind: "add", path: "a b.txt", content: "one\n\n" },
    { kind: "delete", path: "old.txt" },
    {
      kind: "update",
      path: "src/x.ts",
      moveTo: "src/y.ts",
      hunks: [
        {
          ...plain,
          anchors: ["class A", "  method()"],
          lines: [line("keep", "keep"), line("remove", "remove"), line("add", "add"), line("keep", "")],
        },
        { ...plain, lines: [line("add", "last")], endOfFile: true },
      ],
    },
    {
      kind: "update",
      path: "z",
      moveTo: undefined,
      hunks: [{ ...plain, lines: [line("keep", "no at sign"), line("remove", "x")] }],
    },
    { kind: "update", path: "only", moveTo: "moved", hunks: [] },
  ]);
  assert.deepEqual(pathsOf(sections), ["a b.txt", "old.txt", "src/x.ts", "src/y.ts", "z", "only", "moved"]);
});

/** The first hunk of a patch of one file. */
function hunkOf(...lines: readonly string[]) {
  const [section] = parsePatch(patch("*** Update File: a", ...lines));
  assert.ok(section?.kind === "update");
  return section.hunks[0];
}

test("line numbers and headings of git and diff are read", () => {
  assert.deepEqual(hunkOf("@@ -1,2 +3,4 @@ class X", "-x")?.numbers, { line: 1, count: 2, heading: "class X" });
  assert.deepEqual(hunkOf("@@ -7 +7 @@", "-x")?.numbers, { line: 7, count: 1, heading: "" });
  assert.deepEqual(hunkOf("@@ -0,0 +1 @@\r", "+x")?.numbers, { line: 0, count: 0, heading: "" });
  const both = hunkOf("@@ class A", "@@ -7 +7 @@   def f():", "-x");
  assert.deepEqual([both?.anchors, both?.numbers?.heading], [["class A"], "def f():"]);
  assert.deepEqual(hunkOf("@@ -7 @@", "-x")?.anchors, ["-7 @@"], "not a range of lines");
});

test("a missing newline at the end is read, and ties the hunk to the end", () => {
  const none = "\\ No newline at end of file";
  const read = (...lines: readonly string[]) => {
    const hunk = hunkOf("@@", ...lines);
    return [hunk?.lines.length, hunk?.endOfFile, hunk?.lastLine];
  };
  assert.deepEqual(read("-x", "+y"), [2, false, undefined]);
  assert.deepEqual(read("-x", none, "+y"), [2, true, "closed"]);
  assert.deepEqual(read("-x", "+y", none), [2, true, "open"]);
  assert.deepEqual(read("-x", none, "+y", none), [2, true, "open"]);
  assert.deepEqual(read("-x", " y", none), [2, true, undefined]);
  assert.deepEqual(read("-x", none, "+y", "*** End of File"), [2, true, "closed"]);
  assert.equal(hunkOf("@@", "-\ufeffx")?.startOfFile, true);
  assert.deepEqual(parsePatch(patch("*** Add File: a", "+x", "+y", none)), [{
    kind: "add",
    path: "a",
    content: "x\ny",
  }]);
});

test("CRLF is kept of single lines, and means nothing throughout", () => {
  const text = patch("*** Update File: a", "@@ -1,2 +1,2 @@ heading", "-x", "+y", "\\ No newline at end of file");
  assert.deepEqual(parsePatch(text.replaceAll("\n", "\r\n")), parsePatch(text));
  assert.deepEqual(hunkOf("@@", "-x\r", "+y")?.lines.map(({ crlf }) => crlf), [true, false]);
  const last = hunkOf("@@", "-x\r", "\\ No newline at end of file")?.lines;
  assert.deepEqual(last, [{ kind: "remove", text: "x\r", crlf: false }], "a line feed would have to follow");
  const kept = parsePatch(patch("*** Add File: a", "+x\r", "+y\r"));
  assert.deepEqual(kept, [{ kind: "add", path: "a", content: "x\r\ny\r\n" }]);
});

test("a malformed patch is refused with its line", () => {
  const refused: readonly (readonly [patch: string, message: RegExp])[] = [
    ["", /line 1: it must be "\*\*\* Begin Patch"/],
    ["hello", /line 1/],
    ["\n*** Begin Patch\n*** End Patch", /line 1/],
    ["*** Begin Patch\n*** Delete File: a", /line 2: "\*\*\* End Patch" is missing after it/],
    ["*** Begin Patch\n*** End Patch\nmore", /line 3: nothing may follow/],
    [patch(), /line 2: the patch changes no file/],
    [patch("text"), /line 2: it must start with "\*\*\* Add File:"/],
    [patch("*** Rename File: a"), /line 2/],
    [patch("*** Add File:"), /line 2: the path is missing/],
    [patch("*** Add File: a", "no plus"), /line 3: each line of a new file must start with "\+"/],
    [patch("*** Update File: a"), /the section has no hunk/],
    [patch("*** Update File: a", "@@"), /line 3: the hunk has no lines/],
    [patch("*** Update File: a", "@@ -1 +1 @@", "@@ -2 +2 @@", "-x"), /line 3: the hunk has no lines/],
    [patch("*** Update File: a", "@@", "-x", "\\ No newline", "-y"), /line 6: only the last line can have/],
    [patch("*** Update File: a", "@@", "+x", "\\ No newline", " y"), /line 6: only the last line can have/],
    [patch("*** Update File: a", "@@", "\\ No newline", "+y"), /line 4: each line of a hunk must start with/],
    [patch("*** Add File: a", "+x", "\\ No newline", "+y"), /line 5: only the last line can have/],
    [patch("*** Update File: a", ...Array.from({ length: 17 }, () => "@@ x"), "-x"), /line 19: a hunk has at most 16/],
    [patch("*** Update File: a", "@@", "x"), /line 4: each line of a hunk must start with a space/],
    [patch("*** Delete File: a", " text"), /line 3/],
    [patch("*** Update File: a", "*** Move to: ", "-x"), /line 3: the path is missing/],
    [patch(...Array.from({ length: 201 }, (_, i) => `*** Delete File: ${i}`)), /at most 200 files/],
  ];
  for (const [text, message] of refused) {
    assert.throws(
      () => parsePatch(text),
      (error) => error instanceof ToolError && error.code === "patch_malformed" && message.test(error.message),
      text,
    );
  }
});

test("a megabyte of white space is read in no time", () => {
  const text = patch("*** Update File: a", `-x${"\n ".repeat(500_000)}`, "+y");
  const [section] = parsePatch(text);
  assert.ok(section?.kind === "update" && section.hunks[0]?.lines.length === 500_002);
});

test("any text is a patch or a ToolError", () => {
  const line = fc.constantFrom(
    "*** Begin Patch",
    "*** End Patch",
    "*** Add File: a",
    "*** Update File: b",
    "*** Delete File: c",
    "*** Move to: d",
    "*** End of File",
    "@@",
    "@@ x",
    "@@ -1 +1 @@",
    "\\ No newline at end of file",
    "+x",
    "-x",
    " x",
    "",
    "x",
    "\r",
  );
  fc.assert(
    fc.property(fc.array(line, { maxLength: 12 }), (lines) => {
      try {
        assert.ok(parsePatch(patch(...lines)).length > 0);
      } catch (error) {
        assert.ok(error instanceof ToolError, String(error));
      }
    }),
    { numRuns: 200 },
  );
});
