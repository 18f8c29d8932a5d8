import assert from "node:assert/strict";
import { appendFileSync, linkSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { git, initRepository, isThere } from "../../support/git_fixture.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const CONTAINED: ConfigChanges = {
  autonomy: { level: "full" },
  allowed_commands: ["sh", "git", "cat"],
  shell: { forbidden_chars: [], max_arg_length: 10_000, max_output_bytes: 200_000, sandbox: "require" },
};

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind !== "contained" ? probe.text : isThere("git") ? false : "git is not installed";

type Run = (script: string) => Promise<string>;

/** Runs `use` with a workspace that is a repository; `run` gives what a contained script writes, status and errors included. */
const withSandbox = (
  files: Readonly<Record<string, string>>,
  use: (run: Run, workspace: Workspace) => Promise<void>,
) =>
  withWorkspace(files, async (workspace) => {
    initRepository(workspace.root);
    const bench = createToolBench({ root: workspace.root, config: CONTAINED });
    try {
      await use(async (script) => {
        const { result } = await bench.call("shell", { command: `sh -c '${script}'` });
        return result.output;
      }, workspace);
    } finally {
      await bench.processes.close();
    }
  });

const HOSTILE = `[remote "origin"]
	url = https://ada:s3cret@example.com/a.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[http]
	extraHeader = Authorization: Bearer s3cret
[http "https://example.com/"]
	extraHeader = Authorization: Basic s3cret
[credential]
	helper = "!echo password=s3cret"
[url "https://ada:s3cret@example.com/"]
	insteadOf = https://example.com/
[include]
	path = ../s3cret
[filter "evil"]
	clean = touch ran; cat
	smudge = touch ran; cat
[diff "evil"]
	textconv = touch ran; cat
[alias]
	st = !touch ran
[core]
	fsmonitor = touch ran; true
	hooksPath = hooks
	pager = touch ran; cat
`;

test(
  "git works in the sandbox: status, log, diff and what build scripts ask for",
  { skip },
  () =>
    withSandbox({ "a.txt": "one\n", "sub/b.txt": "two\n" }, async (run, { path, write }) => {
      git(path(""), "remote", "add", "origin", "https://ada:s3cret@example.com/a.git");
      write("a.txt", "changed\n");
      write("new.txt", "new\n");
      assert.equal(
        await run("git status --porcelain && git rev-parse --abbrev-ref HEAD && git remote get-url origin"),
        "status=0\nstdout:\n M a.txt\n?? new.txt\nmain\nhttps://example.com/a.git\nstderr:",
      );
      assert.match(
        await run("git log --format=%s && git diff && git config user.name"),
        /^status=0\n.*first\n.*\+changed\nAda/s,
      );
      assert.match(await run("git describe --always --dirty; cd sub && git rev-parse --show-prefix"), /-dirty\nsub\//);
    }),
);

test(
  "no call in the sandbox shows a credential of the configuration, or runs a program that it names",
  { skip },
  () =>
    withSandbox({ "a.txt": "one\n", ".gitattributes": "* filter=evil diff=evil\n" }, async (run, { path, write }) => {
      appendFileSync(path(".git/config"), HOSTILE);
      write("hooks/post-checkout", "touch ran");
      write("a.txt", "two\n");
      const output = await run(
        "cat .git/config; git config --list --show-origin; git remote -v; git status; git diff; git st; git -p log; " +
          "grep -r s3cret . ; ls ran; git fetch",
      );
      assert.match(output, /https:\/\/example\.com\/a\.git/);
      assert.match(output, /modified: +a\.txt/);
      assert.match(output, /\+two/);
      assert.doesNotMatch(output, /s3cret|evil "|touch ran|extraheader/i);
      assert.match(output, /cannot access .ran./);
      assert.match(readFileSync(path(".git/config"), "utf8"), /s3cret/);
    }),
);

test(
  "a copy is made for each call: a configuration edited between two calls shows in the second",
  { skip },
  () =>
    withSandbox({}, async (run, { path }) => {
      assert.match(await run("git config user.name"), /\nAda\n/);
      git(path(""), "config", "user.name", "Grace");
      git(path(""), "config", "credential.helper", "s3cret");
      assert.match(await run("git config user.name"), /\nGrace\n/);
      writeFileSync(path(".git/config"), "[core\n\tname = s3cret\n");
      assert.equal(
        await run("cat .git/config; git rev-parse --is-inside-work-tree"),
        "status=0\nstdout:\n[core]\n\trepositoryformatversion = 0\ntrue\nstderr:",
      );
      rmSync(path(".git/config"));
      assert.match(await run("ls .git/config; git rev-parse --is-inside-work-tree"), /\ntrue\n.*No such file/s);
      symlinkSync("../notes.txt", path(".git/config"));
      writeFileSync(path("notes.txt"), "[user]\n\tname = s3cret\n");
      assert.doesNotMatch(await run("cat .git/config; git config user.name; cat notes.txt"), /s3cret/);
    }),
);

test(
  "the configurations of submodules and working trees are scrubbed as well",
  { skip },
  () =>
    withSandbox({ "a.txt": "one\n" }, async (run, { path, write }) => {
      write("lib/b.txt", "two\n");
      initRepository(path("lib"));
      git(path(""), "-c", "advice.addEmbeddedRepo=false", "add", "lib");
      writeFileSync(path(".gitmodules"), '[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n');
      git(path(""), "submodule", "--quiet", "absorbgitdirs", "lib");
      git(path(""), "config", "extensions.worktreeConfig", "true");
      git(path(""), "worktree", "add", "-q", "tree", "-b", "topic");
      git(path("tree"), "config", "--worktree", "http.extraHeader", "s3cret");
      git(path("tree"), "config", "--worktree", "user.name", "Grace");
      git(path("lib"), "remote", "add", "origin", "https://ada:s3cret@example.com/lib.git");
      const output = await run(
        "git -C lib status --porcelain && git -C lib remote get-url origin && git -C tree rev-parse --abbrev-ref HEAD && " +
          "git -C tree config user.name && git status --porcelain; grep -r s3cret .",
      );
      assert.match(output, /^status=1\nstdout:\nhttps:\/\/example\.com\/lib\.git\ntopic\nGrace\n/);
      assert.doesNotMatch(output, /s3cret/);
    }),
);

test(
  "the configuration of a bare repository, under whatever name, and of its working trees is scrubbed as well",
  { skip },
  () =>
    withSandbox({ "a.txt": "one\n" }, async (run, { path }) => {
      for (const bare of ["store.git", "deep/plain"]) {
        git(path(""), "clone", "-q", "--bare", ".", bare);
        appendFileSync(path(`${bare}/config`), HOSTILE);
      }
      git(path("store.git"), "config", "extensions.worktreeConfig", "true");
      git(path("store.git"), "worktree", "add", "-q", "../tree", "-b", "topic");
      git(path("tree"), "config", "--worktree", "http.extraHeader", "s3cret");
      linkSync(path("store.git/config"), path("linked.txt"));
      const output = await run(
        "git -C store.git rev-parse --is-bare-repository; git -C deep/plain log --format=%s; git -C tree st; " +
          "git -C store.git push -q ../deep/plain main:other; git -C deep/plain rev-parse --abbrev-ref other; " +
          "cat store.git/config deep/plain/config linked.txt; grep -r s3cret . ; ls ran tree/ran store.git/ran",
      );
      assert.match(output, /\ntrue\nfirst\n/);
      assert.match(output, /\nother\n/, "it takes what is pushed");
      assert.match(output, /url = "https:\/\/example\.com\/a\.git"/);
      assert.doesNotMatch(output, /s3cret|evil "|touch ran|extraheader/i);
      assert.match(readFileSync(path("store.git/config"), "utf8"), /s3cret/);
      await run("rm -rf store.git/HEAD store.git/objects store.git/refs");
      assert.doesNotMatch(await run("cat store.git/config"), /s3cret/, "a command before it has taken the rest away");
    }),
);

test(
  "what the sandbox shows of a repository can be neither changed nor moved",
  { skip },
  () =>
    withSandbox({ "sub/a.txt": "a\n" }, async (run, { path }) => {
      initRepository(path("sub"));
      const before = readFileSync(path(".git/config"), "utf8");
      for (
        const attack of [
          "git config core.fsmonitor evil",
          "echo evil > .git/config",
          "mv .git/config .git/other",
          "rm -f .git/config",
          "echo evil > .git/hooks/pre-commit",
          "git commit --allow-empty -m x",
          "mv sub moved",
          "cat .git/config > c && mv c .git/config",
        ]
      ) {
        assert.match(await run(attack), /Read-only file system|Device or resource busy|cannot create/, attack);
      }
      assert.equal(readFileSync(path(".git/config"), "utf8"), before);
    }),
);

test(
  "another name of a configuration, and a file named like one, stay empty",
  { skip },
  () =>
    withSandbox({}, async (run, { path, write }) => {
      git(path(""), "config", "credential.helper", "s3cret");
      linkSync(path(".git/config"), path("linked.txt"));
      write(".git/refs/x/config", "s3cret");
      write("plain/.git/config", "[user]\n\tname = s3cret\n");
      const output = await run("cat linked.txt .git/refs/x/config plain/.git/config; git config user.name");
      assert.match(output, /\nAda\n/);
      assert.doesNotMatch(output, /s3cret/);
    }),
);
