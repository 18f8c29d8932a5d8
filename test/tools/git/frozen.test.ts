import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { test } from "node:test";
import { CheckedGit } from "../../../lib/system/git/checked_git.ts";
import type { OpenOptions } from "../../../lib/system/git/git.ts";
import { git, initRepository, isThere } from "../../support/git_fixture.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { GIT_CONTAINED, type RepositoryWorkspace, withRepository } from "./with_repository.ts";

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind !== "contained" ? probe.text : isThere("git") ? false : "git is not installed";

const SHELL = { forbidden_chars: [], max_arg_length: 10_000, sandbox: "require" } as const;
const CONTAINED = { ...GIT_CONTAINED, allowed_commands: ["sh"], shell: SHELL };
const HOSTILE = `[filter "evil"]
	clean = touch ran; cat
	smudge = touch ran; cat
[diff "evil"]
	command = touch ran; cat
	textconv = touch ran; cat
[remote "origin"]
	url = http://127.0.0.1:9/evil
[core]
	hooksPath = hooks
	fsmonitor = touch ran; true
`;

/** Puts another file in the place of a configuration, as git and editors do. */
function exchange(path: string): void {
  writeFileSync(`${path}.new`, readFileSync(path, "utf8") + HOSTILE);
  renameSync(`${path}.new`, path);
}

/** Runs `use` with a repository whose files all pass a filter, once one is configured. */
const withAttributes = (use: (at: RepositoryWorkspace) => Promise<void>) =>
  withRepository(
    { "a.txt": "one\n", ".gitattributes": "*.txt filter=evil diff=evil\n" },
    async (at) => {
      try {
        await use(at);
      } finally {
        await at.bench.processes.close();
      }
    },
    { config: CONTAINED },
  );

for (
  const [what, configs] of [["configuration", ["config"]], ["one of a working tree", ["config.worktree"]]] as const
) {
  test(
    `a configuration that is exchanged after it was checked counts for no git process (${what})`,
    { skip },
    () =>
      withAttributes(async ({ root, bench, path, write }) => {
        git(root, "config", "extensions.worktreeConfig", "true");
        writeFileSync(path(".git/config.worktree"), "[core]\n\tbare = false\n");
        const opened: OpenOptions = {
          folder: ".",
          files: false,
          scope: { workspaceRoot: root, forbiddenPaths: [], sandbox: "require", credentials: false },
          use: { content: true, merges: true, network: false },
          writes: true,
          signal: new AbortController().signal,
        };
        const repository = await new CheckedGit({ processes: bench.processes, home: "/nonexistent", ownPaths: [] })
          .open(
            opened,
          );
        for (const name of configs) {
          exchange(path(`.git/${name}`));
        }
        write("a.txt", "two\n");
        for (
          const args of [["status", "--short"], ["diff"], ["add", "a.txt"], ["remote", "-v"], ["commit", "-m", "x"]]
        ) {
          const { code, stdout, stderr } = await repository.run(args);
          assert.equal(code, 0, stderr);
          assert.doesNotMatch(stdout, /evil/);
        }
        assert.equal(existsSync(path("ran")), false);
        assert.match(git(root, "config", "filter.evil.clean"), /touch ran/);
      }),
  );
}

test(
  "without a sandbox the exchanged configuration does run: what the frozen one is for",
  { skip },
  () =>
    withAttributes(async ({ root, path, write }) => {
      exchange(path(".git/config"));
      write("a.txt", "two\n");
      git(root, "add", "a.txt");
      assert.ok(existsSync(path("ran")));
    }),
);

test(
  "a repository that appeared while a contained program runs is refused until the program has ended",
  { skip },
  () =>
    withRepository({ "a.txt": "one\n", "known/b.txt": "two\n" }, async ({ ok, refused, bench, path, write }) => {
      try {
        initRepository(path("known"));
        const script = "mkdir -p made/.git && echo > made/.git/HEAD; mv known moved; echo moved=$?; sleep 1000";
        write("run.sh", script);
        const started = await bench.call("process_tool", { op: "start", command: "sh run.sh" });
        const { id } = started.result.data as { id: string };
        const said = async () => (await bench.call("process_tool", { op: "output", id })).result.output;
        await until(async () => (await said()).includes("moved="));
        assert.match(await said(), /moved=1/, "a folder on the way to a repository keeps its name");
        initRepository(path("new"));
        for (const op of ["status", "diff", "log", "stash"]) {
          assert.match(
            await refused({ op, path: "new" }),
            /^Cannot run git: "new\/\.git" appeared while a program runs that may write there, .* from .*quarantine/,
          );
        }
        assert.equal(await ok({ op: "status", path: "known" }), "## main");
        await ok({ op: "add", path: "known", paths: ["b.txt"] });
        await bench.call("process_tool", { op: "kill", id });
        await until(() => !existsSync(path("made/.git")) && !existsSync(path("new/.git")));
        initRepository(path("newest"));
        await until(async () => !(await bench.call("git_operations", { op: "status", path: "newest" })).result.isError);
      } finally {
        await bench.processes.close();
      }
    }, { config: CONTAINED }),
);

test(
  "a writing operation writes to its own repository alone",
  { skip },
  () =>
    withRepository({ "a.txt": "one\n", "sub/b.txt": "two\n" }, async ({ root, bench, path }) => {
      try {
        initRepository(path("sub"));
        const opened: OpenOptions = {
          folder: "sub",
          files: false,
          scope: { workspaceRoot: root, forbiddenPaths: [], sandbox: "require", credentials: false },
          use: { content: true, merges: false, network: false },
          writes: true,
          signal: new AbortController().signal,
        };
        const repository = await new CheckedGit({ processes: bench.processes, home: "/nonexistent", ownPaths: [] })
          .open(
            opened,
          );
        for (const target of ["../planted", "../.git/hooks/post-commit", ".git/config"]) {
          const { code, stderr } = await repository.run([
            "diff",
            "--no-index",
            `--output=${target}`,
            "b.txt",
            ".git/HEAD",
          ]);
          assert.notEqual(code, 1, stderr);
          assert.match(stderr, /Read-only file system|could not open/);
        }
        assert.equal((await repository.run(["diff", "--no-index", "--output=mine", "b.txt", ".git/HEAD"])).code, 1);
        assert.ok(existsSync(path("sub/mine")));
      } finally {
        await bench.processes.close();
      }
    }, { config: CONTAINED }),
);

test(
  "the upstream of a new branch is added to the configuration in its place, so that covers over it hold",
  { skip },
  () =>
    withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused, path, bench }) => {
      try {
        git(root, "remote", "add", "origin", "http://127.0.0.1:9/x");
        git(root, "update-ref", 'refs/remotes/origin/top"ic', "HEAD");
        appendFileSync(path(".git/config"), "[core]\n\tabbrev = 8");
        const { ino } = statSync(path(".git/config"));
        writeFileSync(path(".git/config.lock"), "");
        assert.match(
          await refused({ op: "checkout", branch: 'top"ic' }),
          /the configuration is locked; if no git runs/,
        );
        git(root, "switch", "--quiet", "main");
        git(root, "branch", "--quiet", "-D", 'top"ic');
        renameSync(path(".git/config.lock"), path("lock"));
        assert.equal(await ok({ op: "checkout", branch: 'top"ic' }), '## top"ic...origin/top"ic\n?? lock');
        assert.equal(statSync(path(".git/config")).ino, ino);
        assert.equal(git(root, "config", 'branch.top"ic.remote'), "origin\n");
        assert.equal(git(root, "config", "core.abbrev"), "8\n");
        assert.equal(existsSync(path(".git/config.lock")), false);
      } finally {
        await bench.processes.close();
      }
    }, { config: CONTAINED }),
);

test(
  "a contained git gives new folders of a shared repository the group of those above",
  { skip },
  () =>
    withRepository({ "a.txt": "one\n" }, async ({ root, path, ok }) => {
      git(root, "config", "core.sharedRepository", "0660");
      writeFileSync(path("b.txt"), "two\n");
      const before = new Set(readdirSync(path(".git/objects")));
      await ok({ op: "add", paths: ["b.txt"] });
      const made = readdirSync(path(".git/objects")).filter((name) => !before.has(name));
      assert.ok(made.length > 0);
      for (const name of made) assert.equal(statSync(path(`.git/objects/${name}`)).mode & 0o7777, 0o2770, name);
    }, { config: GIT_CONTAINED }),
);
