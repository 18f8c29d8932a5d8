import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { CheckedGit } from "../../../lib/system/git/checked_git.ts";
import { readTree } from "../../support/file_tree.ts";
import { git, gitTest as test, initRepository } from "../../support/git_fixture.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import { GIT_CONTAINED, GIT_ON } from "./with_repository.ts";

/** A workspace that is a linked working tree of a repository beside it. */

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const isContained = probe.kind === "contained";

interface LinkedTree extends Workspace {
  readonly bench: ToolBench;
  /** The repository's own folder */
  readonly main: string;
  call(input: Readonly<Record<string, unknown>>): Promise<string>;
}

const withLinkedTree = (config: ConfigChanges, use: (at: LinkedTree) => Promise<void>) =>
  withWorkspace({}, async (workspace) => {
    const main = join(workspace.outside, "main");
    mkdirSync(main);
    writeFileSync(join(main, "a.txt"), "one\n");
    writeFileSync(join(main, ".env"), "TOKEN=s3cret\n");
    initRepository(main);
    git(main, "worktree", "add", "-q", "-b", "side", workspace.root);
    const bench = createToolBench({ root: workspace.root, config });
    const call = async (input: Readonly<Record<string, unknown>>) =>
      (await bench.call("git_operations", input)).result.output;
    try {
      await use({ ...workspace, bench, main, call });
    } finally {
      await bench.processes.close();
    }
  });

const READS = ["status", "diff", "log", "show", "branch"];
const WRITES: readonly Readonly<Record<string, unknown>>[] = [
  { op: "add", paths: ["."] },
  { op: "commit", message: "x", paths: ["a.txt"] },
  { op: "checkout", rev: "HEAD" },
  ...["stash", "push", "pull"].map((op) => ({ op })),
];

for (const [what, config] of [["without a sandbox", GIT_ON], ["in the sandbox", GIT_CONTAINED]] as const) {
  test(`${what}, a linked working tree whose repository lies outside is read and not changed`, () =>
    withLinkedTree(config, async ({ main, call, write }) => {
      write("a.txt", "two\n");
      const before = readTree(main);
      assert.equal(await call({ op: "status" }), "## side\n M a.txt");
      assert.match(await call({ op: "diff" }), /-one\n\+two$/);
      assert.match(await call({ op: "log" }), /Ada: first \(HEAD -> side, main\)$/);
      assert.match(await call({ op: "show" }), /\+one\n\[Left out, sensitive.*"\.env"\]$/s);
      assert.match(await call({ op: "show", rev: "HEAD:.env" }), /it is sensitive/);
      assert.match(await call({ op: "branch" }), /^on branch side\n/);
      for (const input of WRITES) {
        assert.match(
          await call(input),
          /^Cannot run git: "\.git" leads to a git folder outside the workspace; status, diff, log, show and branch work here;/,
          JSON.stringify(input),
        );
      }
      assert.deepEqual(readTree(main), before);
    }));
}

test("a working tree leads to no repository that does not name it, and to none in a forbidden path", () =>
  withLinkedTree(GIT_ON, async ({ main, bench, call, path, write, outside }) => {
    const own = join(main, ".git/worktrees/root");
    const everyRead = async (says: RegExp) => {
      for (const op of READS) assert.match(await call({ op }), says, op);
    };
    const away =
      /^Cannot run git: "\.git" leads to a git folder outside the workspace; open the folder .* git worktree repair/;
    git(main, "worktree", "add", "-q", "-b", "other", join(outside, "other"));
    for (const named of [join(main, ".git"), join(main, ".git/worktrees/other"), join(main, ".git/refs")]) {
      write(".git", `gitdir: ${named}\n`);
      await everyRead(away);
    }
    write(".git", `gitdir: ${own}\n`);
    const back = readFileSync(join(own, "gitdir"), "utf8");
    for (const text of ["", `${outside}/.git\n`, `${path("x")}/.git\n`, `${path("a.txt")}\n`, `${back}${back}`]) {
      writeFileSync(join(own, "gitdir"), text);
      await everyRead(away);
    }
    writeFileSync(join(own, "gitdir"), back);
    for (const text of ["../../..\n", `${join(outside, "other")}\n`, "none\n"]) {
      writeFileSync(join(own, "commondir"), text);
      await everyRead(away);
    }
    writeFileSync(join(own, "commondir"), "../..\n");
    assert.equal(await call({ op: "status" }), "## side");
    for (const forbidden of [main, join(main, ".git"), join(main, ".git/worktrees")]) {
      bench.configure({ ...GIT_ON, autonomy: { level: "full", forbidden_paths: [forbidden] } });
      await everyRead(/forbidden path/);
    }
  }));

test("the repository outside leads nowhere else, and runs nothing", () =>
  withLinkedTree(GIT_CONTAINED, async ({ main, call, write, outside }) => {
    const [gitDir, ran] = [join(main, ".git"), join(outside, "ran")];
    writeFileSync(join(outside, "run.sh"), `#!/bin/sh\ntouch ${ran}\n`, { mode: 0o755 });
    for (const key of ["core.fsmonitor", "diff.external", "core.pager", "filter.x.clean", "diff.x.textconv"]) {
      git(main, "config", key, join(outside, "run.sh"));
    }
    write(".gitattributes", "* filter=x diff=x\n");
    write("a.txt", "two\n");
    for (const op of READS) assert.doesNotMatch(await call({ op }), /^Cannot/, op);
    assert.equal(existsSync(ran), false);
    writeFileSync(join(gitDir, "objects/info/alternates"), `${outside}\n`);
    assert.match(await call({ op: "log" }), /"objects\/info\/alternates" leads out of the repository/);
    writeFileSync(join(gitDir, "objects/info/alternates"), "");
    symlinkSync(outside, join(gitDir, "refs/heads/away"));
    assert.match(await call({ op: "log" }), /"refs\/heads\/away" leads out of the repository/);
  }));

test("git finds the configuration outside as it was checked", async (context) => {
  if (!isContained) return context.skip(probe.text);
  await withLinkedTree({ ...GIT_CONTAINED, shell: { sandbox: "require" } }, async ({ root, main, bench, outside }) => {
    const repository = await new CheckedGit({ processes: bench.processes, home: "/nonexistent", ownPaths: [] }).open({
      folder: ".",
      files: false,
      scope: { workspaceRoot: root, forbiddenPaths: [], sandbox: "require", credentials: false },
      use: { content: false, merges: false, network: false },
      reads: true,
      writes: false,
      signal: new AbortController().signal,
    });
    const config = join(main, ".git/config");
    writeFileSync(`${config}.new`, readFileSync(config));
    appendFileSync(`${config}.new`, '[remote "evil"]\n\turl = http://127.0.0.1:9/evil\n');
    renameSync(`${config}.new`, config);
    assert.equal((await repository.run(["remote", "-v"])).stdout, "");
    const seen = await repository.run(["hash-object", "--no-filters", "--", join(outside, "secret.txt")]);
    assert.notEqual(seen.code, 0, "nothing else outside is there");
    assert.notEqual((await repository.run(["update-ref", "refs/heads/new", "HEAD"])).code, 0, "and nothing is written");
  });
});

test("while a program runs in the workspace, no repository outside is read", async (context) => {
  if (!isContained) return context.skip(probe.text);
  const shell = { sandbox: "require", forbidden_chars: [] } as const;
  await withLinkedTree({ ...GIT_CONTAINED, allowed_commands: ["sh"], shell }, async ({ bench, call, write }) => {
    write("run.sh", "echo begun; sleep 1000");
    const started = await bench.call("process_tool", { op: "start", command: "sh run.sh" });
    const { id } = started.result.data as { id: string };
    await until(async () => (await bench.call("process_tool", { op: "output", id })).result.output.includes("begun"));
    assert.match(
      await call({ op: "status" }),
      /^Cannot run git: its repository .* lies outside the workspace, and a program runs/,
    );
    await bench.call("process_tool", { op: "kill", id });
    await until(async () => (await call({ op: "status" })).startsWith("## side"));
  });
});
