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
  assert.deepEqual(sections, [
    { kind: "add", path: "a b.txt", content: "one\n\n" },
    { kind: "delete", path: "old.txt" },
    {
      kind: "update",
      path: "src/x.ts",
      moveTo: "src/y.ts",
      hunks: [
        {
          anchors: ["class A", "  method()"],
          lines: [
            { kind: "keep", text: "keep" },
            { kind: "remove", text: "remove" },
            { kind: "add", text: "add" },
            { kind: "keep", text: "" },
          ],
          endOfFile: false,
        },
        { anchors: [], lines: [{ kind: "add", text: "last" }], endOfFile: true },
      ],
    },
    {
      kind: "update",
      path: "z",
      moveTo: undefined,
      hunks: [{
        anchors: [],
        lines: [{ kind: "keep", text: "no at sign" }, { kind: "remove", text: "x" }],
        endOfFile: false,
      }],
    },
    { kind: "update", path: "only", moveTo: "moved", hunks: [] },
  ]);
  assert.deepEqual(pathsOf(sections), ["a b.txt", "old.txt", "src/x.ts", "src/y.ts", "z", "only", "moved"]);
});

test("line numbers of other patch formats are no anchors, and CRLF throughout means nothing", () => {
  const text = patch("*** Update File: a", "@@ -1,2 +1,2 @@ heading", "-x", "+y", "\\ No newline at end of file");
  const [section] = parsePatch(text);
  assert.ok(section?.kind === "update");
  assert.deepEqual(section.hunks[0]?.anchors, []);
  assert.equal(section.hunks[0]?.lines.length, 2);
  assert.deepEqual(parsePatch(text.replaceAll("\n", "\r\n")), parsePatch(text));
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
