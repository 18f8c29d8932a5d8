import assert from "node:assert/strict";
import { test } from "node:test";
import { describeApproval, whyAsked } from "../../lib/guard/describe_approval.ts";

test("a person is asked with a reason, and not with the refusal of a call that nobody could answer", () => {
  const refusal =
    'Cannot call "write_file" without approval: it writes, which level "supervised" asks about; set x to allow it';
  assert.equal(
    whyAsked(refusal),
    'You are asked because it writes, which level "supervised" asks about; set x to allow it',
  );
  assert.equal(whyAsked("The procedure begins with a step"), "The procedure begins with a step");
});

/** Returns the input of a call as the person who is asked reads it. */
const shown = (tool: string, input: unknown, maxInput = 20_000) =>
  describeApproval({
    ...{ id: "apr_1", tool, access: "write", workspace: "/w", input, input_digest: "d", reason: "", files: [] },
    ...{ bound: [], containment: null },
  }, { maxInput }).input;

test("a person reads a change of a file line by line, with every field of the input", () => {
  const edit = (old_text: string, new_text: string) => ({ old_text, new_text });
  for (
    const [tool, input, text] of [
      [
        "file_edit",
        { path: "a.md", edits: [edit("x\nMonday\ny", "x\nTuesday\ny")] },
        'path: "a.md"\n x\n-Monday\n+Tuesday\n y',
      ],
      [
        "file_edit",
        { path: "a.md", edits: [edit("a", ""), edit("b", "c")], dry_run: true },
        'path: "a.md"\ndry_run: true\n@@ 1 of 2 @@\n-a\n@@ 2 of 2 @@\n-b\n+c',
      ],
      ["write_file", { path: "b\n+c", content: "one\n\ntwo\n" }, 'path: "b\\n+c"\n+one\n+\n+two'],
      ["write_file", { path: "b", content: "a\u202eb" }, 'path: "b"\n+a\\u202eb\n\\ no line break at the end'],
      ["apply_patch", { patch: "*** Begin Patch\n+a\n*** End Patch" }, "  *** Begin Patch\n  +a\n  *** End Patch"],
    ] as const
  ) {
    assert.equal(shown(tool, input), text);
  }
});

test("an input that is no such change, or a long one, is shown as JSON", () => {
  for (
    const [tool, input] of [
      ["file_edit", { path: "a", edits: [{ old_text: "a", new_text: "b", more: 1 }] }],
      ["file_edit", { path: "a", edits: "a" }],
      ["write_file", { path: "a", content: 1 }],
      ["write_file", { content: "a", patch: "b" }],
      ["write_file", "text"],
      ["shell", { command: "ls" }],
      ["files__write_file", { path: "a", content: "b" }],
    ] as const
  ) {
    assert.equal(shown(tool, input), JSON.stringify(input, null, 2));
  }
  assert.match(
    shown("write_file", { path: "a", content: "b".repeat(500) }, 100),
    /^\{\n {2}"path": "a",.*\[cut: 100 of/s,
  );
});
