import assert from "node:assert/strict";
import { existsSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { git, initRepository, isThere } from "../../support/git_fixture.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const CONTAINED: ConfigChanges = {
  autonomy: { level: "full", forbidden_paths: ["later"] },
  allowed_commands: ["sh"],
  shell: { forbidden_chars: [], max_arg_length: 10_000, sandbox: "require" },
  enable_git: true,
};
const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind === "contained" ? false : probe.text;
const noGit = skip !== false ? skip : isThere("git") ? false : "git is not installed";

/** Answers `ping`, a file, with `pong`, as long as it runs. */
const ANSWERS = "sh -c 'touch up; while :; do if [ -e ping ]; then rm ping; touch pong; fi; sleep 0.01; done'";

const withBench = (use: (bench: ToolBench, workspace: Workspace) => Promise<void>) =>
  withWorkspace({ ".env": "OLD=1\n", "a.txt": "a\n" }, async (workspace) => {
    const bench = createToolBench({ root: workspace.root, config: CONTAINED });
    try {
      await use(bench, workspace);
    } finally {
      await bench.processes.close();
    }
  });

const appears = ({ path }: Workspace, name: string) => until(() => existsSync(path(name)), `${name} never came`);

/** Waits for a sign of life that the program gives from now on. */
async function answers(workspace: Workspace): Promise<void> {
  workspace.write("ping", "");
  await appears(workspace, "pong");
  rmSync(workspace.path("pong"));
}

function replace({ path }: Workspace, name: string, content: string): void {
  writeFileSync(path(`${name}.new`), content);
  renameSync(path(`${name}.new`), path(name));
}

const outputOf = async (bench: ToolBench, op: Readonly<Record<string, string>>) =>
  (await bench.call("process_tool", op)).result;

const SAID =
  '[".env" was replaced while the program ran and would have become readable, so it was ended; start it again]';

test(
  "a running command ends when a file of credentials is replaced that it must not read",
  { skip },
  () =>
    withBench(async (bench, workspace) => {
      const work = bench.call("shell", { command: ANSWERS });
      await appears(workspace, "up");
      replace(workspace, ".env", "NEW=1\n");
      const { result } = await work;
      assert.equal(result.output, `status=uncovered\nstdout:\nstderr:\n${SAID}`);
      assert.equal((result.data as Record<string, unknown>)["status"], "uncovered");
      // A program that is started again has the new file covered
      const { result: again } = await bench.call("shell", { command: "sh -c 'cat .env; echo ran'" });
      assert.match(again.output, /^status=0\nstdout:\nran\n/);
    }),
);

test(
  "a process that runs on ends when such a file is removed and comes back, and says why",
  { skip },
  () =>
    withBench(async (bench, workspace) => {
      const { data } = await outputOf(bench, { op: "start", command: ANSWERS });
      assert.equal((data as Record<string, unknown>)["status"], "running");
      await appears(workspace, "up");
      rmSync(workspace.path(".env"));
      // Names that were not there have no cover
      workspace.write("later", "");
      workspace.write("new.pem", "");
      await answers(workspace);
      await answers(workspace);
      workspace.write(".env", "NEW=1\n");
      await until(() => bench.processes.get("p1").state.kind !== "running", "it was not ended");
      const { output } = await outputOf(bench, { op: "output", id: "p1" });
      assert.match(output, /^id=p1 status=uncovered /);
      assert.ok(output.includes(`\n${SAID}`), output);
    }),
);

test("what a person does with git in a repository without credentials ends nothing, a credential does", {
  skip: noGit,
}, () =>
  withBench(async (bench, workspace) => {
    const { root, path } = workspace;
    initRepository(root);
    git(root, "clone", "-q", "--bare", ".", path("..", "outside", "origin.git"));
    await outputOf(bench, { op: "start", command: ANSWERS });
    await appears(workspace, "up");
    git(root, "remote", "add", "origin", path("..", "outside", "origin.git"));
    git(root, "push", "-q", "-u", "origin", "main");
    git(root, "branch", "topic");
    git(root, "branch", "-q", "-u", "origin/main", "topic");
    git(root, "config", "core.hooksPath", ".husky/_");
    await answers(workspace);
    await answers(workspace);
    git(root, "config", "http.extraHeader", "Authorization: Bearer s3cret");
    await until(() => bench.processes.get("p1").state.kind !== "running", "it was not ended");
    assert.match((await outputOf(bench, { op: "list" })).output, /status=uncovered .*\n\["\.git\/config" was replaced/);
  }));

test(
  "a command that Postern put together itself has nothing covered, and goes on",
  { skip },
  () =>
    withBench(async ({ processes }, workspace) => {
      const work = processes.run({
        words: ["sh", "-c", "touch up; until [ -e go ]; do sleep 0.01; done; cat .env"],
        scope: { workspaceRoot: workspace.root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
        composed: { env: {}, network: false, writes: true },
        sandbox: "require",
        timeoutMs: 60_000,
        maxOutputBytes: 1_000,
        signal: new AbortController().signal,
      });
      await appears(workspace, "up");
      replace(workspace, ".env", "NEW=1\n");
      workspace.write("go", "");
      const { ending, stdout } = await work;
      assert.deepEqual([ending, stdout.text], [{ kind: "exit", code: 0 }, "NEW=1\n"]);
    }),
);

test("a program that a person installed ends as well", { skip }, () =>
  withBench(async ({ processes }, workspace) => {
    const prepared = await processes.prepareProgram({
      title: 'program "sample"',
      program: { file: "sh", args: ["-c", "echo up; read -r line"], folder: workspace.path("..", "outside") },
      rights: { workspace: "read", hosts: { key: "", entries: [] } },
      taint: [],
      scope: { workspaceRoot: workspace.root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
      sandbox: "require",
      section: "[plugins]",
      signal: new AbortController().signal,
    });
    const program = await prepared.start();
    await new Promise((resolve) => program.stdout.once("data", resolve));
    replace(workspace, ".env", "NEW=1\n");
    assert.deepEqual(await program.exited, { kind: "uncovered", path: ".env" });
    await program.end();
    await prepared.after();
  }));
