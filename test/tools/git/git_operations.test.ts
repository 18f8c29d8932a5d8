import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { git, initRepository } from "../../support/git_fixture.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const FULL: ConfigChanges = { autonomy: { level: "full" }, enable_git: true };

type Call = (input: Readonly<Record<string, unknown>>) => Promise<string>;

/** A workspace that is a repository; `ok` fails the test for an error, `refused` for anything else. */
function withRepository(
  files: Readonly<Record<string, string>>,
  use: (at: Workspace & { readonly ok: Call; readonly refused: Call }) => Promise<void>,
  config: ConfigChanges = FULL,
) {
  return withWorkspace(files, async (workspace) => {
    initRepository(workspace.root);
    const { call } = createToolBench({ root: workspace.root, config });
    const outcome = (isError: boolean): Call => async (input) => {
      const { result } = await call("git_operations", input);
      assert.equal(result.isError, isError, result.output);
      return result.output;
    };
    await use({ ...workspace, ok: outcome(false), refused: outcome(true) });
  });
}

test("looks, adds, commits, switches, restores and stashes", () =>
  withRepository({ "a.txt": "one\n", "src/b.txt": "b\n" }, async ({ ok, root, write, path }) => {
    assert.equal(await ok({ op: "status" }), "## main");
    assert.equal(await ok({ op: "diff" }), "no differences");
    write("a.txt", "two\n");
    write("new file.txt", "new\n");
    assert.equal(await ok({ op: "status" }), '## main\n M a.txt\n?? "new file.txt"');
    assert.match(await ok({ op: "diff" }), /^diff --git a\/a\.txt b\/a\.txt\n.*-one\n\+two$/s);
    assert.equal(await ok({ op: "diff", staged: true }), "no differences");
    assert.equal(await ok({ op: "add", paths: ["."] }), '## main\nM  a.txt\nA  "new file.txt"');
    assert.match(await ok({ op: "diff", staged: true, paths: ["a.txt"] }), /\+two$/);
    assert.match(
      await ok({ op: "commit", message: "second\n\nwith /etc/passwd and -flags" }),
      /^\[main [0-9a-f]+\] second/,
    );
    assert.match(await ok({ op: "log" }), /^[0-9a-f]+ [\d-]+ Ada: second \(HEAD -> main\)\n[0-9a-f]+ \S+ Ada: first$/);
    assert.match(
      await ok({ op: "log", limit: 1, rev: "HEAD~1..HEAD", paths: ["a.txt"] }),
      /^\S+ \S+ Ada: second[^\n]*$/,
    );
    assert.match(await ok({ op: "show" }), /^commit .*\n {4}with \/etc\/passwd and -flags\n.*\+two\n.*\+new$/s);
    assert.equal(await ok({ op: "show", rev: "HEAD~1:a.txt" }), "one");
    assert.match(await ok({ op: "diff", rev: "HEAD~1..HEAD", paths: ["a.txt"] }), /-one\n\+two$/);

    assert.equal(await ok({ op: "checkout", branch: "topic/x", rev: "HEAD~1" }), "## topic/x");
    assert.equal(readFileSync(path("a.txt"), "utf8"), "one\n");
    assert.equal(await ok({ op: "checkout", branch: "main" }), "## main");
    assert.match(
      await ok({ op: "branch" }),
      /^on branch main\n\* main [0-9a-f]+ {2}second\n {2}topic\/x [0-9a-f]+ {2}first$/,
    );
    assert.equal(await ok({ op: "checkout", rev: "HEAD~1" }), "## HEAD (no branch)");
    await ok({ op: "checkout", branch: "main" });

    write("a.txt", "three\n");
    await ok({ op: "add", paths: ["a.txt"] });
    assert.equal(await ok({ op: "checkout", paths: ["a.txt"], staged: true }), "## main\n M a.txt");
    assert.match(await ok({ op: "stash", message: "later" }), /^Saved working directory/);
    assert.equal(readFileSync(path("a.txt"), "utf8"), "two\n");
    assert.match(await ok({ op: "log", rev: "stash" }), /^stash@\{0\} [\d-]+ On main: later$/);
    assert.match(await ok({ op: "show", rev: "stash@{0}" }), /\+three$/);
    assert.equal(await ok({ op: "stash", rev: "stash@{0}" }), "## main\n M a.txt");
    assert.equal(await ok({ op: "log", rev: "stash" }), "no stashes");
    assert.equal(await ok({ op: "checkout", paths: ["a.txt"], rev: "HEAD~1" }), "## main\nM  a.txt");
    assert.equal(git(root, "fsck", "--no-dangling"), "");
  }));

test("works in a folder below the top and on a repository below the workspace", () =>
  withWorkspace({ "app/src/a.txt": "a\n", "app/b.txt": "b\n" }, async ({ root, write, path }) => {
    initRepository(path("app"));
    const { call } = createToolBench({ root, config: FULL });
    const output = async (input: unknown) => (await call("git_operations", input)).result.output;
    write("app/src/a.txt", "new\n");
    write("app/b.txt", "new\n");
    assert.equal(await output({ op: "status", path: "app" }), "## main\n M b.txt\n M src/a.txt");
    assert.equal(await output({ op: "add", path: "app/src", paths: ["a.txt"] }), "## main\nM  src/a.txt");
    assert.equal(await output({ op: "show", path: "app/src", rev: "HEAD:a.txt" }), "a");
    assert.match(
      await output({ op: "status" }),
      /^Cannot run git in ".": neither it nor a folder above it .* has a \.git$/,
    );
    assert.match(await output({ op: "status", path: "none" }), /there is no such folder/);
    assert.match(await output({ op: "status", path: "app/b.txt" }), /there is no such folder/);
  }));
