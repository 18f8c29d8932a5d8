import assert from "node:assert/strict";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { git, gitTest as test, initRepository } from "../../support/git_fixture.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { GIT_CONTAINED, GIT_ON, withRepository } from "./with_repository.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { withWorkspace } from "../../support/workspace.ts";

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
  }, { config: GIT_CONTAINED }));

test("status shows renames and what changed inside of submodules; log of a branch without a commit says so", () =>
  withRepository({ "a.txt": "one\ntwo\nthree\n" }, async ({ ok, refused, root, path, write }) => {
    initRepository(path("..", "library"));
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", path("..", "library"), "sub");
    git(root, "commit", "-q", "-m", "with a submodule");
    assert.equal(await ok({ op: "status" }), "## main");
    git(root, "mv", "a.txt", "b.txt");
    assert.equal(await ok({ op: "status" }), "## main\nR  a.txt -> b.txt");
    git(root, "mv", "b.txt", "a.txt");
    write("sub/new.txt", "new\n");
    assert.equal(await ok({ op: "status" }), "## main\n ? sub");
    git(path("sub"), "add", "new.txt");
    assert.equal(await ok({ op: "status" }), "## main\n m sub");
    rmSync(path("sub"), { recursive: true });
    mkdirSync(path("sub"));
    assert.equal(
      await ok({ op: "status" }),
      '## main\n[Changes inside of submodules are not shown: "sub" is not checked out]',
    );
    git(root, "symbolic-ref", "HEAD", "refs/heads/next/one");
    assert.equal(await ok({ op: "log" }), "no commits yet on branch next/one");
    assert.match(await ok({ op: "log", rev: "main" }), /first$/);
    writeFileSync(path(".git/refs/heads/broken"), `${"1".repeat(40)}\n`);
    git(root, "symbolic-ref", "HEAD", "refs/heads/broken");
    assert.match(await refused({ op: "log" }), /Cannot finish git log/);
  }, { config: GIT_CONTAINED }));

test("works in a folder below the top and on a repository below the workspace", () =>
  withWorkspace({ "app/src/a.txt": "a\n", "app/b.txt": "b\n" }, async ({ root, write, path }) => {
    initRepository(path("app"));
    const { call } = createToolBench({ root, config: GIT_ON });
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

test("log, show and diff take a file as path, or files as paths", () =>
  withRepository({ "a.txt": "one\n", "src/b.txt": "b\n", "src/-x": "x\n", ".env": "TOKEN=s3cret\n" }, async (at) => {
    const { ok, refused, write, path, root } = at;
    write("a.txt", "two\n");
    write("src/b.txt", "bb\n");
    write(".env", "TOKEN=s3cret2\n");
    git(root, "commit", "-q", "-a", "-m", "second");
    write("src/-x", "xx\n");
    git(root, "commit", "-q", "-a", "-m", "third");
    for (const input of [{ path: "src/b.txt" }, { path: "src", paths: ["b.txt"] }]) {
      assert.match(await ok({ op: "log", ...input }), /^\S+ \S+ Ada: second\n\S+ \S+ Ada: first$/);
      const shown = await ok({ op: "show", rev: "HEAD~1", ...input });
      assert.match(shown, /^commit .*\+bb$/s);
      assert.doesNotMatch(shown, /two/);
      assert.match(await ok({ op: "diff", rev: "HEAD~2..HEAD", ...input }), /-b\n\+bb$/);
    }
    // A name like an option, and one like a wildcard, are names
    assert.match(await ok({ op: "log", path: "src/-x" }), /^\S+ \S+ Ada: third[^\n]*\n\S+ \S+ Ada: first$/);
    assert.match(await ok({ op: "show", path: "src/-x" }), /\+xx$/);
    write("*", "star\n");
    assert.equal(await ok({ op: "log", path: "*" }), "no commits");
    // A file that was removed has a history by its name
    rmSync(path("src/b.txt"));
    assert.match(await ok({ op: "log", path: "src", paths: ["b.txt"], limit: 1 }), /second$/);
    assert.match(await ok({ op: "show", rev: "HEAD~1", path: ".env" }), /Left out, .*"\.env"/);
    assert.match(
      await refused({ op: "log", path: "a.txt", paths: ["a.txt"] }),
      /"paths" are below a folder, and "path" is a file/,
    );
    assert.match(await refused({ op: "show", rev: "HEAD:a.txt", paths: ["a.txt"] }), /"rev" names a file/);
    assert.match(await refused({ op: "show", rev: "HEAD:a.txt", path: "a.txt" }), /"path" is a file/);
    assert.match(await refused({ op: "log", path: "none.txt" }), /there is no such folder or file/);
  }));

test("a file as path leads nowhere outside the workspace", () =>
  withRepository({ "a.txt": "one\n" }, async ({ ok, refused, path }) => {
    symlinkSync("../outside", path("out"));
    symlinkSync("../outside/secret.txt", path("link"));
    for (const attack of ["out/secret.txt", "../outside/secret.txt", "/etc/passwd"]) {
      for (const op of ["log", "show", "diff"]) {
        assert.match(await refused({ op, path: attack }), /outside the workspace|relative|\.\./, `${op} ${attack}`);
      }
    }
    // A link is the name that git knows. Nobody follows it
    assert.equal(await ok({ op: "log", path: "link" }), "no commits");
  }));

test("a reading operation changes no byte of the repository, without a sandbox either", () =>
  withRepository({ "a.txt": "one\n", "b.txt": "b\n" }, async ({ ok, write, path, bench }) => {
    bench.configure({ ...GIT_ON, autonomy: { level: "read_only" }, shell: { sandbox: "off" } });
    write("a.txt", "two\n");
    // Its time alone changes, which makes git want to refresh the index
    utimesSync(path("b.txt"), 1, 1);
    const before = bytesOf(path(".git"));
    for (const op of ["status", "diff", "log", "show", "branch"]) await ok({ op });
    assert.doesNotMatch(await ok({ op: "diff" }), /b\.txt/);
    await ok({ op: "diff", rev: "HEAD" });
    assert.deepEqual(bytesOf(path(".git")), before);
  }));

test("access follows the operation: read_only looks alone, supervised asks for the rest", () =>
  withRepository({ "a.txt": "one\n" }, async ({ bench, root }) => {
    const head = git(root, "rev-parse", "HEAD");
    const inputs = {
      read: ["status", "diff", "log", "show", "branch"].map((op) => ({ op })),
      write: [{ op: "add", paths: ["a.txt"] }, { op: "commit", message: "x" }, { op: "checkout", rev: "HEAD" }, {
        op: "stash",
      }],
      network: [{ op: "push" }, { op: "pull" }],
    };
    for (const [access, calls] of Object.entries(inputs)) {
      for (const input of calls) {
        for (const level of ["read_only", "supervised"] as const) {
          bench.configure({ enable_git: true, autonomy: { level } });
          const outcome = await bench.call("git_operations", input);
          assert.deepEqual([outcome.access, outcome.ran], [access, access === "read"], `${input.op} ${level}`);
        }
      }
    }
    bench.configure({});
    assert.match((await bench.call("git_operations", { op: "status" })).result.output, /enable_git = true/);
    assert.equal(git(root, "rev-parse", "HEAD"), head);
  }));

test("what a person approves runs, on the files as they were shown", () =>
  withRepository({ "a.txt": "one\n" }, async ({ bench, root, write }) => {
    bench.configure({ enable_git: true });
    const approve = () => Promise.resolve({ decision: "approve" as const, reason: "" });
    write("a.txt", "two\n");
    for (const input of [{ op: "add", paths: ["a.txt"] }, { op: "commit", message: "approved" }]) {
      const { result, ran } = await bench.call("git_operations", input, { approver: approve });
      assert.deepEqual([ran, result.isError], [true, false], result.output);
    }
    assert.match(git(root, "log", "-1", "--format=%s"), /^approved$/m);
    write("a.txt", "three\n");
    const { result, ran } = await bench.call("git_operations", { op: "add", paths: ["a.txt"] }, {
      approver: () => {
        write("a.txt", "something else\n");
        return approve();
      },
    });
    assert.equal(ran, false);
    assert.match(result.output, /is not what it was when the call was approved/);
  }));

test("the user's own configuration gives the name and e-mail address, and nothing else", () =>
  withTemporaryFolder((home) =>
    withRepository({ "a.txt": "one\n" }, async ({ ok, refused, root, write, path }) => {
      git(root, "config", "--unset", "user.name");
      git(root, "config", "--unset", "user.email");
      write("a.txt", "two\n");
      assert.match(await refused({ op: "commit", message: "x", paths: ["a.txt"] }), /tell me who you are/i);
      const marker = join(home, "marker");
      writeFileSync(
        join(home, ".gitconfig"),
        `[include]\npath = more\n[core]\nfsmonitor = touch ${marker}\nhooksPath = ${home}\n[commit]\ngpgSign = true\n`,
      );
      writeFileSync(join(home, "more"), "[user]\nname = Grace\nemail = grace@example.com\n");
      writeFileSync(join(home, "pre-commit"), `#!/bin/sh\ntouch ${marker}\n`, { mode: 0o755 });
      await ok({ op: "commit", message: "second", paths: ["a.txt"] });
      assert.match(await ok({ op: "show" }), /^Author: Grace <grace@example\.com>$/m);
      assert.equal(existsSync(marker), false);
      assert.equal(readFileSync(path("a.txt"), "utf8"), "two\n");
    }, { home })
  ));

test("files that a filter of the user's own is meant for are left to the user", () =>
  withTemporaryFolder((home) =>
    withRepository(
      { "a.txt": "one\n", "big.bin": "pointer\n", ".gitattributes": "*.txt filter=\n*.bin filter=lfs\n" },
      async (at) => {
        const { ok, refused, write, root } = at;
        const programs =
          "clean = git-lfs clean -- %f\nsmudge = git-lfs smudge -- %f\nprocess = git-lfs filter-process\n";
        writeFileSync(join(home, ".gitconfig"), `[filter "lfs"]\n${programs}required = true\n`);
        write("a.txt", "two\n");
        write("big.bin", "the content itself\n");
        assert.match(await ok({ op: "status" }), /^ M big\.bin$/m);
        for (const paths of [["."], ["big.bin"]]) {
          assert.match(await refused({ op: "add", paths }), /"big\.bin" by the filter "lfs", which is not run here/);
          assert.match(await refused({ op: "commit", message: "x", paths }), /filter "lfs"/);
          assert.match(await refused({ op: "checkout", paths }), /filter "lfs"/);
        }
        assert.match(await refused({ op: "stash" }), /filter "lfs"/);
        await ok({ op: "commit", message: "second", paths: ["a.txt"] });
        git(root, "commit", "-qam", "third");
        assert.match(await refused({ op: "checkout", rev: "HEAD~1" }), /filter "lfs"/);
      },
      { home },
    )
  ));

test("output is the same whatever a repository has configured about it", () =>
  withRepository({ "a.txt": "one\n", "ü.txt": "u\n" }, async ({ root, ok, write }) => {
    write("a.txt", "two\n");
    write("ü.txt", "ü\n");
    const inputs = [{ op: "status" }, { op: "diff" }, { op: "show" }, { op: "branch" }];
    const outputs = () => Promise.all(inputs.map((input) => ok(input)));
    const before = await outputs();
    const settings = {
      ...{ "color.ui": "always", "color.status": "always", "color.diff": "always", "color.diff.new": "red" },
      ...{ "color.branch": "always", "core.quotePath": "true", "diff.noprefix": "true", "diff.mnemonicPrefix": "true" },
      ...{
        "diff.orderFile": "order",
        "format.pretty": "oneline",
        "format.filenameMaxLength": "5",
        "log.date": "relative",
      },
      ...{ "diff.renames": "copies", "status.short": "false", "status.branch": "false", "gpg.minTrustLevel": "fully" },
      ...{
        "grep.patternType": "perl",
        "column.ui": "always",
        "i18n.logOutputEncoding": "latin1",
        "log.decorate": "full",
      },
      ...{
        "core.pager": "cat -v",
        "status.showUntrackedFiles": "no",
        "diff.submodule": "log",
        "log.showSignature": "true",
      },
    };
    for (const [key, value] of Object.entries(settings)) git(root, "config", key, value);
    assert.deepEqual(await outputs(), before);
    await ok({ op: "commit", message: "second", paths: ["."] });
  }));

test("long output is cut with a notice", () =>
  withRepository({ "long.txt": "0123456789\n".repeat(20_000) }, async ({ ok }) => {
    for (const input of [{ op: "show" }, { op: "show", rev: "HEAD:long.txt" }]) {
      const output = await ok(input);
      assert.ok(output.length < 66_000);
      assert.match(output, /\n\[Cut: ask for less at a time, with "paths" or "limit"\]$/);
    }
  }));

test("a file that is not text is named, not shown", () =>
  withRepository({ "a.bin": new Uint8Array([0, 1, 2]) }, async ({ ok, refused }) => {
    assert.match(await refused({ op: "show", rev: "HEAD:a.bin" }), /not text/);
    assert.match(await ok({ op: "show" }), /Binary files .* differ/);
  }));

/** Content by path of everything in a folder. */
function bytesOf(folder: string): ReadonlyMap<string, string> {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).sort();
  return new Map(
    files.map((name) => {
      const path = join(folder, name);
      const { mtimeMs, size } = statSync(path);
      return [name, statSync(path).isFile() ? `${size} ${mtimeMs} ${readFileSync(path, "base64")}` : "folder"];
    }),
  );
}
