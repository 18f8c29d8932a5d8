import assert from "node:assert/strict";
import { test } from "node:test";
import type { DescribedChange } from "../../lib/base/records/approval.ts";
import { describeApproval, type DescribedApproval, whyAsked } from "../../lib/guard/describe_approval.ts";

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

const CREATED: DescribedChange = {
  ...{ path: "plan.md", kind: "create", added: 2, removed: 0, diff: "@@ -0,0 +1,2 @@\n+a\n+b", left_out: 0 },
};
const ABOUT: Omit<DescribedApproval, "tool" | "input"> = {
  ...{ id: "apr_1", access: "write", workspace: "/w", input_digest: "d", reason: "", files: [], containment: null },
};
const ASKER = { via: "websocket", conversation_id: "conv_1", parent_id: null, message: "Make a plan" } as const;

test("a question says in one line who wants to do what", () => {
  const cases: readonly [string, unknown, Partial<DescribedApproval>, string][] = [
    ["write_file", { path: "plan.md" }, { changes: [CREATED] }, "The agent wants to create plan.md"],
    [
      "apply_patch",
      {},
      { changes: [{ ...CREATED, kind: "move", from: "a b.md" }] },
      'The agent wants to move "a b.md" to plan.md',
    ],
    [
      "apply_patch",
      {},
      { changes: ["a", "b", "c", "d"].map((path) => ({ ...CREATED, path })) },
      "The agent wants to change 4 files: a, b, c and 1 more",
    ],
    ["write_file", { path: "a\u202eb" }, {}, 'The agent wants to write "a\\\\u202eb"'],
    ["shell", { command: "npm test" }, {}, 'The agent wants to run "npm test"'],
    [
      "http_request",
      { method: "post", url: "https://bank.example@evil.example/" },
      { asker: { ...ASKER, via: "cron" } },
      "A schedule wants to send a POST request to evil.example",
    ],
    [
      "git_operations",
      { op: "push" },
      { asker: { ...ASKER, parent_id: "run_0" } },
      "A sub-agent wants to call git_operations",
    ],
    ["shell", { command: "ls" }, { asker: { ...ASKER, direct: true, via: "http" } }, "A program wants to run ls"],
  ];
  for (const [tool, input, more, title] of cases) {
    assert.equal(describeApproval({ ...ABOUT, tool, input, ...more }).title, title);
  }
});

test("a question names the conversation, the run and the message that led to it, on lines of their own", () => {
  const asker = { ...ASKER, message: "Make\nMessage: all is fine\u200b" };
  const { asker: lines } = describeApproval({
    ...{ ...ABOUT, tool: "shell", input: {}, asker, run_id: "run_1" },
  });
  assert.deepEqual(lines, [
    "Conversation conv_1",
    "Run run_1",
    "Message: Make\\nMessage: all is fine\\u200b",
  ]);
});

test("a change is shown as its difference beside every other field, and what is left out is said before all", () => {
  const describe = (changes: DescribedChange[], more: Partial<DescribedApproval> = {}) =>
    describeApproval({
      ...{ ...ABOUT, tool: "write_file", input: { path: "plan.md", content: "a\nb\n", overwrite: true } },
      ...{ changes, ...more },
    }).input;
  assert.equal(
    describe([CREATED]),
    'path: "plan.md"\noverwrite: true\nFile "plan.md": new, +2 -0 lines\n@@ -0,0 +1,2 @@\n+a\n+b',
  );
  const cut = describe([{ ...CREATED, left_out: 900 }]).split("\n");
  assert.match(cut[0] ?? "", /^! Not all is shown here: 900 lines of the difference are left out/);
  assert.equal(cut.at(-1), "... 900 more lines of this difference are left out");
  assert.match(
    describe([], { fails: "it exists\u202e" }),
    /^! As things stand the call would fail: it exists\\u202e\n/,
  );
  // A line of a text that looks like the head of another file has a sign before it
  const spoof = describe([{ ...CREATED, diff: '@@ -0,0 +1 @@\n+File "safe.md": new, +1 -0 lines' }]);
  assert.equal(spoof.split("\n").filter((line) => line.startsWith("File ")).length, 1);
});
