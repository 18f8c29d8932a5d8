import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { namedFiles } from "../../../lib/system/process/screen_arguments.ts";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { git, gitTest, initRepository } from "../../support/git_fixture.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const CONFIG: ConfigChanges = {
  allowed_commands: ["sh", "cat", "echo", "ls"],
  enable_git: true,
  shell: { sandbox: "off" },
};

/** Calls, does something once the person was asked, and approves. */
async function approved(root: string, call: readonly [tool: string, input: unknown], between: () => void = () => {}) {
  const bench = createToolBench({ root, config: CONFIG });
  let asked: ApprovalRequest | undefined;
  const { ran, result } = await bench.call(...call, {
    approver: (request) => {
      asked = request;
      between();
      return Promise.resolve({ decision: "approve", reason: "" });
    },
  });
  return {
    ran,
    output: result.output,
    isError: result.isError,
    bound: asked?.binding.bound,
    files: asked?.binding.files,
  };
}

const SCRIPT = { "build.sh": "echo built\n", "sub/other.sh": "echo other\n" };
const REPLACED = /what it would change, or the tool itself, is not what it was when the call was approved/;

/** Commands that run or read a file of the workspace, and what another program does to it while the approval waits. */
const COMMANDS: readonly (readonly [command: string, name: string, change: (root: string) => void])[] = [
  ["sh build.sh", "a file that is changed", (root) => appendFileSync(join(root, "build.sh"), "echo more\n")],
  ["sh ./build.sh", "a file with another spelling", (root) => appendFileSync(join(root, "build.sh"), "x")],
  ["sh sub/../build.sh", "a way over a folder", (root) => appendFileSync(join(root, "build.sh"), "x")],
  ["sh later.sh", "a file that appears", (root) => writeFileSync(join(root, "later.sh"), "echo later\n")],
  ["sh build.sh", "a file that goes", (root) => rmSync(join(root, "build.sh"))],
  ["sh build.sh", "a file that another takes the place of", (root) => {
    renameSync(join(root, "sub/other.sh"), join(root, "build.sh"));
  }],
  ["sh build.sh", "a file that becomes a link", (root) => {
    rmSync(join(root, "build.sh"));
    symlinkSync("sub/other.sh", join(root, "build.sh"));
  }],
  ["sh build.sh", "a file that becomes a folder", (root) => {
    rmSync(join(root, "build.sh"));
    mkdirSync(join(root, "build.sh"));
  }],
  ["echo --file=build.sh", "a value of an option", (root) => appendFileSync(join(root, "build.sh"), "x")],
  ["echo -fbuild.sh", "a value glued to an option", (root) => appendFileSync(join(root, "build.sh"), "x")],
];

for (const [command, name, change] of COMMANDS) {
  test(`a command is bound to the files it names: ${name} (${command})`, () =>
    withWorkspace(SCRIPT, async ({ root }) => {
      const { ran, output } = await approved(root, ["shell", { command }], () => change(root));
      assert.equal(ran, false, output);
      assert.match(output, REPLACED);
    }));
}

test("a process that is started is bound to the files its command names too", () =>
  withWorkspace(SCRIPT, async ({ root }) => {
    const call = ["process_tool", { op: "start", command: "sh build.sh" }] as const;
    const { ran, output } = await approved(root, call, () => appendFileSync(join(root, "build.sh"), "x"));
    assert.equal(ran, false, output);
  }));

test("a file that is written again with the same content is the same", () =>
  withWorkspace(SCRIPT, async ({ root }) => {
    const again = () => writeFileSync(join(root, "build.sh"), SCRIPT["build.sh"]);
    assert.ok((await approved(root, ["shell", { command: "sh build.sh" }], again)).ran);
  }));

test("namedFiles() looks at nothing outside the workspace, whatever leads there", () =>
  withWorkspace(SCRIPT, async ({ root, outside }) => {
    symlinkSync(join(outside, "secret.txt"), join(root, "link"));
    const args = [join(outside, "secret.txt"), "../outside/secret.txt", "link", "--file=link", "build.sh"];
    const named = await namedFiles(args, { workspaceRoot: root, signal: new AbortController().signal });
    assert.deepEqual(named.filter(({ kind }) => kind !== "none").map(({ path }) => path), ["build.sh"]);
  }));

test("a command whose files stay as they are runs, and the person is shown what it is bound to", () =>
  withWorkspace(SCRIPT, async ({ root }) => {
    const change = () => appendFileSync(join(root, "sub/other.sh"), "x");
    const { ran, output, bound } = await approved(root, ["shell", { command: "sh build.sh now" }], change);
    assert.ok(ran, output);
    assert.match(output, /built/);
    assert.deepEqual(bound?.map(({ kind, name }) => [kind, name]), [["file", "build.sh"]]);
    assert.match(bound?.[0]?.sha256 ?? "", /^[0-9a-f]{64}$/);
  }));

const GIT_FILES = { "a.txt": "one\n", "src/b.txt": "b\n", "src/c.txt": "c\n" };

/** Calls of git, what was there when they were asked about, and what is changed afterwards. */
const GIT_CALLS: readonly {
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
  readonly before?: (root: string) => void;
  readonly change: (root: string) => void;
}[] = [
  {
    name: "add of a file that is changed",
    input: { op: "add", paths: ["a.txt"] },
    before: (root) => writeFileSync(join(root, "a.txt"), "two\n"),
    change: (root) => writeFileSync(join(root, "a.txt"), "TWO\n"),
  },
  {
    name: "add of a folder with a file that is changed",
    input: { op: "add", paths: ["src"] },
    before: (root) => writeFileSync(join(root, "src/b.txt"), "new\n"),
    change: (root) => writeFileSync(join(root, "src/b.txt"), "NEW\n"),
  },
  {
    name: "add of a folder in which a file appears",
    input: { op: "add", paths: ["src"] },
    change: (root) => writeFileSync(join(root, "src/new.txt"), "new\n"),
  },
  {
    name: "add of a folder in which a file is removed",
    input: { op: "add", paths: ["."] },
    change: (root) => rmSync(join(root, "src/c.txt")),
  },
  {
    name: "commit of an index that is changed",
    input: { op: "commit", message: "m" },
    before(root) {
      writeFileSync(join(root, "a.txt"), "two\n");
      git(root, "add", "a.txt");
    },
    change(root) {
      writeFileSync(join(root, "src/b.txt"), "smuggled\n");
      git(root, "add", "src/b.txt");
    },
  },
  {
    name: "commit of a path whose file is changed",
    input: { op: "commit", message: "m", paths: ["a.txt"] },
    before: (root) => writeFileSync(join(root, "a.txt"), "two\n"),
    change: (root) => writeFileSync(join(root, "a.txt"), "TWO\n"),
  },
  {
    name: "commit onto another branch",
    input: { op: "commit", message: "m" },
    before(root) {
      writeFileSync(join(root, "a.txt"), "two\n");
      git(root, "add", "a.txt");
    },
    change: (root) => void git(root, "switch", "-q", "-c", "release"),
  },
  {
    name: "stash of a file that is changed",
    input: { op: "stash" },
    before: (root) => writeFileSync(join(root, "a.txt"), "two\n"),
    change: (root) => writeFileSync(join(root, "a.txt"), "TWO\n"),
  },
  {
    name: "checkout of a file with work that was not there",
    input: { op: "checkout", paths: ["a.txt"] },
    before: (root) => writeFileSync(join(root, "a.txt"), "two\n"),
    change: (root) => writeFileSync(join(root, "a.txt"), "a day's work\n"),
  },
  {
    name: "checkout of a branch that was moved",
    input: { op: "checkout", branch: "topic" },
    before: (root) => void git(root, "branch", "topic"),
    change(root) {
      git(root, "commit", "-q", "--allow-empty", "-m", "second");
      git(root, "branch", "-f", "topic");
      git(root, "reset", "-q", "--soft", "HEAD~1");
    },
  },
];

for (const { name, input, before, change } of GIT_CALLS) {
  gitTest(`git is bound to what it would take: ${name}`, () =>
    withWorkspace(GIT_FILES, async ({ root }) => {
      initRepository(root);
      before?.(root);
      const { ran, output, bound } = await approved(root, ["git_operations", input], () => change(root));
      assert.equal(ran, false, output);
      assert.match(output, REPLACED);
      assert.ok(bound?.every(({ sha256 }) => sha256 === null || /^[0-9a-f]{64}$/.test(sha256)), JSON.stringify(bound));
    }));
}

gitTest(
  "git runs when what it would take is as it was, and looking at it changes nothing",
  () =>
    withWorkspace(GIT_FILES, async ({ root }) => {
      initRepository(root);
      writeFileSync(join(root, "src/b.txt"), "two\n");
      writeFileSync(join(root, "src/new.txt"), "new\n");
      const add = await approved(root, ["git_operations", { op: "add", paths: ["src"] }], () => {
        assert.equal(git(root, "diff", "--cached", "--name-only"), "", "nothing was added for the approval");
      });
      assert.ok(add.ran && !add.isError, add.output);
      assert.deepEqual(add.bound?.map(({ kind, name }) => [kind, name]), [
        ["head", "refs/heads/main"],
        ["index", "index"],
        ["files", "src (2 changed)"],
      ]);
      assert.deepEqual(add.files, [], "the names of folders are no files that it changes");
      const change = () => writeFileSync(join(root, "a.txt"), "not staged\n");
      const commit = await approved(root, ["git_operations", { op: "commit", message: "second" }], change);
      assert.ok(commit.ran && !commit.isError, commit.output);
    }),
);

gitTest(
  "git asks nobody about a file whose name is not UTF-8, since its content could not be bound",
  async (context) => {
    if (process.platform !== "linux") return context.skip("needs names of any bytes");
    await withWorkspace(GIT_FILES, async ({ root }) => {
      initRepository(root);
      // Deno opens no such name itself
      const write = (text: string) =>
        void execFileSync("sh", ["-c", `printf ${text} > "$(printf 'src/k\\374y.txt')"`], { cwd: root });
      write("one");
      const { ran, output, bound } = await approved(root, ["git_operations", { op: "add", paths: ["src"] }], () => {
        write("two");
      });
      assert.equal(ran, false, output);
      assert.equal(bound, undefined);
      assert.match(output, /Cannot ask about git add: the name of "src\/k\ufffdy.txt" is not UTF-8.*rename it/);
      assert.equal(git(root, "diff", "--cached", "--name-only"), "");
      const other = await approved(root, ["git_operations", { op: "add", paths: ["a.txt"] }]);
      assert.ok(other.ran && !other.isError, other.output);
    });
  },
);

gitTest("push is bound to the address of the remote", () =>
  withWorkspace(GIT_FILES, async ({ root }) => {
    initRepository(root);
    git(root, "remote", "add", "origin", "https://one.test/r.git");
    const { ran, output, bound } = await approved(root, ["git_operations", { op: "push" }], () => {
      git(root, "remote", "set-url", "origin", "https://other.test/r.git");
    });
    assert.equal(ran, false, output);
    assert.deepEqual(bound?.map(({ name }) => name), ["refs/heads/main", "origin https://one.test/r.git"]);
  }));
