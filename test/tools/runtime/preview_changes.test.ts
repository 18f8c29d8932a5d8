import assert from "node:assert/strict";
import { test } from "node:test";
import type { Approval } from "../../../lib/base/records/approval.ts";
import { jsonOf, withWorld } from "../../support/world.ts";

const CONFIG = { security: { write_file: { enabled: true } } };

/** Asks about a call as a program does, and gives what the person is shown. */
async function asked(
  tool: string,
  input: unknown,
  files: Readonly<Record<string, string>>,
  config: Readonly<Record<string, unknown>> = CONFIG,
  environment: Readonly<Record<string, string>> = {},
) {
  let shown: Approval & { readonly description: { readonly title: string; readonly input: string } } | undefined;
  await withWorld(async (world) => {
    const gateway = await world.gateway({ script: ["-"], config, files, environment });
    const { approval_id: id } = await jsonOf(gateway.call(`/v1/tools/${tool}/call`, { body: { input } }));
    shown = await jsonOf(gateway.call(`/v1/approvals/${id}`));
  });
  assert.ok(shown !== undefined);
  return shown;
}

test("a person sees what each tool of files would make of the file that is there", async () => {
  const files = { "a.md": "one\ntwo\nthree\n", "b.md": "old\n", "c.md": "last\n" };
  const patch = [
    "*** Begin Patch",
    "*** Update File: a.md",
    "*** Move to: moved.md",
    "@@",
    "-two",
    "+2",
    "*** Delete File: b.md",
    "*** End Patch",
  ].join("\n");
  const edit = await asked("file_edit", { path: "a.md", edits: [{ old_text: "two", new_text: "2" }] }, files);
  assert.equal(
    edit.description.input,
    'path: "a.md"\nFile "a.md": changed, +1 -1 lines\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three',
  );
  const patched = await asked("apply_patch", { patch }, files);
  assert.deepEqual(patched.changes?.map(({ kind, path, from }) => [kind, from, path]), [
    ["move", "a.md", "moved.md"],
    ["delete", undefined, "b.md"],
  ]);
  assert.match(patched.description.input, /-two\n\+2\n three\nFile "b\.md": deleted, \+0 -1 lines\n@@.*\n-old$/s);
  const over = await asked("write_file", { path: "c.md", content: "new\n", overwrite: true }, files);
  assert.match(over.description.title, /wants to change c\.md$/);
  assert.match(over.description.input, /\n-last\n\+new$/);
  const taken = await asked("write_file", { path: "c.md", content: "new\n" }, files);
  assert.match(taken.description.input, /^! As things stand the call would fail: Cannot write "c\.md": it exists/);
});

test("what would be written is shown where the file that is there is no text, or may hold credentials", async () => {
  const config = { autonomy: { allow_sensitive_file_writes: true }, ...CONFIG };
  for (const [path, old] of [["run.sh", "\0\0"], [".env", "KEY=1\n"]] as const) {
    const input = { path, content: "rm -rf ~\n", overwrite: true };
    const { changes: [change] = [], description } = await asked("write_file", input, { [path]: old }, config);
    assert.equal(change?.diff, null);
    assert.match(description.input, /^path: .*\nFile .*: changed, .*\nThe whole input:\n\{.*rm -rf ~/s);
  }
});

test("a text that hides by its length says so, in the first line", async () => {
  const content = `${"\n".repeat(30_000)}rm -rf ~\n${"x".repeat(20_000)}\n${"y\n".repeat(5_000)}`;
  const { changes: [change] = [], description } = await asked("write_file", { path: "long.md", content }, {});
  assert.ok(change !== undefined && change.left_out > 0);
  assert.equal((change.diff ?? "").split("\n").length + change.left_out, 35_003);
  assert.match(description.input, /^! Not all is shown here: \d+ lines of the difference are left out/);
});

test("a known secret in the name of a file is in no part of what the person is shown of the change", async () => {
  const secret = "sk-very-secret-key-0123456789";
  const provider = { kind: "anthropic", base_url: "http://127.0.0.1:1", api_key_env: "K", max_retries: 0 };
  const edits = [{ old_text: "a", new_text: "b" }];
  for (const files of [{}, { [secret]: "a\n" }]) {
    const shown = await asked("file_edit", { path: secret, edits }, files, { ...CONFIG, provider }, { K: secret });
    const { changes, fails, description } = shown;
    assert.ok(changes !== undefined || fails !== undefined);
    assert.ok(!JSON.stringify([changes, fails, description]).includes(secret), JSON.stringify(description));
  }
});
