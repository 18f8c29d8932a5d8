import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { lstatSync, realpathSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { ToolError } from "../../../lib/base/errors.ts";
import { RunTaint } from "../../../lib/base/taint.ts";
import { compileAnswer, offeredMatches, type RuleMatch, type RuleSubject } from "../../../lib/guard/rule_match.ts";
import { settle } from "../../../lib/guard/rules.ts";
import { mainOf, RUN, RUN_ENV } from "../../support/gateway_process.ts";
import { until } from "../../support/until.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const CONTAINED = {
  autonomy: { auto_approve: ["shell", "process_tool"] },
  allowed_commands: ["*"],
  shell: { syntax: "contained" },
} as const satisfies ConfigChanges;
const benchOf = (workspace: Workspace, config: ConfigChanges = {}) =>
  createToolBench({ root: workspace.root, config: { ...CONTAINED, ...config } });
const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind === "contained" ? false : probe.text;

test(
  "a contained line has pipes, lists, redirections, globs, here-documents and variables",
  { skip },
  () =>
    withWorkspace({ "a.txt": "one\ntwo\n", "b.txt": "three\n", "src/c.txt": "four\n" }, async (workspace) => {
      const { call } = benchOf(workspace);
      for (
        const [command, stdout] of [
          ["cat *.txt | sort | head -1", "one"],
          ["test -f a.txt && echo yes || echo no; false || echo again", "yes\nagain"],
          ["grep -c o < a.txt > out 2>/dev/null; cat out", "2"],
          ["cat <<E | tr a-z A-Z\nhello\nE", "HELLO"],
          ['x=$(wc -l < a.txt); echo "lines: $x"', "lines: 2"],
          ['for f in *.txt; do basename "$f"; done', "a.txt\nb.txt"],
          [`echo ${"x".repeat(5000)} | wc -c`, "5001"],
          ["cd src && pwd && cat c.txt", `${workspace.root}/src\nfour`],
        ] as const
      ) {
        const { ran, result } = await call("shell", { command });
        assert.equal(ran, true, `${command}: ${result.output}`);
        assert.equal(result.output, `status=0\nstdout:\n${stdout}\nstderr:`, command);
      }
      assert.equal(await readFile(workspace.path("out"), "utf8"), "2\n");
    }),
);

test(
  "what nobody can tell asks, though the tool is approved, and so does a line with a network",
  { skip },
  () =>
    withWorkspace({ "a.txt": "a\n" }, async (workspace) => {
      const { call, configure } = benchOf(workspace);
      for (
        const [command, reason] of [
          ["eval 'ls'", /nobody can tell what its command line runs: "eval" of bash/],
          ["x=ls; $x", /which program "\$x" is/],
          ["echo `ls`", /a backtick/],
          ["f() { ls; }; f", /"\(" stands behind a word/],
        ] as const
      ) {
        const { ran, result } = await call("shell", { command });
        assert.equal(ran, false, command);
        assert.match(result.output, reason);
        assert.match(result.output, /written in plainer parts it runs without asking/);
        const approved = await call("shell", { command }, {
          approver: async () => ({ decision: "approve", reason: "" }),
        });
        assert.equal(approved.ran, true, command);
        const started = await call("process_tool", { op: "start", command });
        assert.equal(started.ran, false, command);
      }
      configure({
        ...CONTAINED,
        shell: { syntax: "contained", network: "allowlist" },
        url_access: { domain_allowlist: ["example.org"] },
      });
      const { ran, result } = await call("shell", "ls");
      assert.equal(ran, false);
      assert.match(result.output, /its command line reaches the network; set \[security\.shell\] network = "none"/);
    }),
);

test("after content from outside a contained line asks", { skip }, () =>
  withWorkspace({}, async (workspace) => {
    const { call } = benchOf(workspace);
    const taint = new RunTaint(["web_fetch"]);
    const { ran, result } = await call("shell", "ls | cat", { taint });
    assert.equal(ran, false);
    assert.match(result.output, /content from outside/);
  }));

test(
  "files with outside content taint a run whose line may read them",
  { skip },
  () =>
    withWorkspace({ "src/page.md": "x\n", "other.md": "y\n" }, async (workspace) => {
      const taint = new RunTaint(["web_fetch"]);
      const { call } = benchOf(workspace, { autonomy: { level: "full" } });
      // Deno tells whole seconds, so that a file which was written just before counts too
      await until(() => Date.now() >= lstatSync(workspace.path("other.md")).ctimeMs + 1_000);
      await call("shell", "echo z > src/page.md", { taint });
      for (
        const [command, isTainted] of [
          ["cat other.md | sort", false],
          ["echo *.md", false],
          ["cat < src/page.md", true],
          ["cd src && cat page.md", true],
          ["cat src/*.md", true],
          ['echo "$(cat src/page.md)"', true],
          ['f=src/page.md; head "$f"', true],
        ] as const
      ) {
        const run = new RunTaint([]);
        await call("shell", { command }, { taint: run });
        assert.equal(run.isTainted, isTainted, command);
      }
    }),
);

test(
  "a list of commands counts for every part, and what starts no program is free",
  { skip },
  () =>
    withWorkspace({ "a.txt": "a\n" }, async (workspace) => {
      const { call } = benchOf(workspace, { allowed_commands: ["cat", "sort"] });
      assert.equal((await call("shell", "cd . && cat a.txt | sort && echo ok")).ran, true);
      for (
        const command of [
          "cat a.txt | wc",
          "cat a.txt; rm a.txt",
          "echo $(rm a.txt)",
          "/bin/cat a.txt",
          "CI=1 rm a.txt",
        ]
      ) {
        const { ran, result } = await call("shell", { command });
        assert.equal(ran, false, command);
        assert.match(result.output, /^Cannot run ".*": \[security\] allowed_commands has cat, sort/, command);
      }
      const { result } = await call("shell", "$x a.txt");
      assert.match(result.output, /nobody can tell whether \[security\] allowed_commands has all that it runs/);
    }),
);

test(
  "words of a line that name credentials or forbidden places are refused, in the folder that it is in",
  { skip },
  () =>
    withWorkspace({ ".env": "A=1\n", "src/a.txt": "a\n", "private/x": "x\n" }, async (workspace) => {
      const { call } = benchOf(workspace, { autonomy: { ...CONTAINED.autonomy, forbidden_paths: ["private"] } });
      for (
        const command of [
          "cat .env | wc",
          "ls; cat < .env",
          "cd src && cat ../.env",
          "cp a .env.bak",
          'cat "$(cat .env)"',
        ]
      ) {
        const { ran, result } = await call("shell", { command });
        assert.equal(result.isError, true, command);
        assert.match(result.output, /credentials/, command);
        assert.equal(ran && !result.isError, false);
      }
      for (
        const command of ["cat private/x", "cd src && cat ../private/x", "echo a > private/y", "cd private && cat x"]
      ) {
        assert.match((await call("shell", { command })).result.output, /forbidden path ".*private"/, command);
      }
      // The sandbox hides what no word names
      for (const command of ["cat .e*", 'x=.en; cat "${x}v"', "cat priv*/x", "find . -name 'x' -exec cat {} +"]) {
        const { result } = await call("shell", { command });
        assert.doesNotMatch(result.output, /A=1|^x$/m, command);
      }
      const outside = "ls /nowhere > /dev/null 2>&1; cat /tmp/x 2> /dev/null; echo a > /tmp/a && cat /tmp/a";
      assert.equal((await call("shell", outside)).result.output, "status=0\nstdout:\na\nstderr:");
    }),
);

test(
  "an approval binds the programs and files of every part",
  { skip },
  () =>
    withWorkspace({ "a.txt": "a\n", "src/run.sh": "echo 1\n" }, async (workspace) => {
      for (
        const command of [
          "sort a.txt | wc",
          "ls; cat < a.txt",
          "cd src && sh run.sh",
          "sh src/run.sh",
          "ls && ./src/run.sh",
        ]
      ) {
        const { call } = benchOf(workspace, { autonomy: {} });
        const { ran, result } = await call("shell", { command }, {
          approver: async ({ binding: { bound } }) => {
            assert.equal(bound.length, 1, command);
            workspace.write(command.includes("run.sh") ? "src/run.sh" : "a.txt", `${Math.random()}\n`);
            return { decision: "approve", reason: "" };
          },
        });
        assert.deepEqual([ran, /is not what it was/.test(result.output)], [false, true], command);
      }
    }),
);

test(
  "a conversation goes on in the folder that a line goes to first",
  { skip },
  () =>
    withWorkspace({ "src/deep/a.txt": "a\n", "b.txt": "b\n" }, async (workspace) => {
      const { call } = benchOf(workspace);
      const at = async (command: string, conversationId: string | null = "c1") =>
        (await call("shell", { command }, { conversationId })).result.output;
      assert.equal(await at("cd src && ls"), "status=0\nfolder=src\nstdout:\ndeep\nstderr:");
      assert.equal(await at("cd deep; false"), "status=1\nfolder=src/deep\nstdout:\nstderr:");
      assert.equal(await at("cat a.txt"), "status=0\nfolder=src/deep\nstdout:\na\nstderr:");
      assert.equal(await at("(cd ../.. && cat b.txt)"), "status=0\nfolder=src/deep\nstdout:\nb\nstderr:");
      // Another conversation, and a call outside of one, begin in the workspace
      assert.equal(await at("cat b.txt", "c2"), "status=0\nstdout:\nb\nstderr:");
      assert.equal(await at("cat b.txt", null), "status=0\nstdout:\nb\nstderr:");
      // The person who is asked reads where it runs
      const shown: unknown[] = [];
      const asked = benchOf(workspace, { autonomy: {} });
      await asked.call("shell", "cd src", {
        conversationId: "c3",
        approver: async () => ({ decision: "approve", reason: "" }),
      });
      await asked.call("shell", "ls", {
        conversationId: "c3",
        approver: async ({ input }) => {
          shown.push(input);
          return { decision: "deny", rule: "approval", reason: "no" };
        },
      });
      assert.deepEqual(shown, [{ command: "cd './src' || exit\nls" }]);
      const process = await call("process_tool", { op: "start", command: "pwd" }, { conversationId: "c1" });
      const { id } = process.result.data as { readonly id: string };
      await until(
        async () => (await call("process_tool", { op: "output", id })).result.output.includes("src/deep\n"),
        "no output",
      );
      // Not out of the workspace, and nothing runs where the folder is gone
      assert.equal(await at("cd ../../.. && true"), "status=0\nfolder=src/deep\nstdout:\nstderr:");
      await rm(workspace.path("src/deep"), { recursive: true });
      assert.match(await at("touch here"), /^status=1\nstdout:\nstderr:\n.*No such file/);
      assert.equal(await at("ls"), "status=0\nstdout:\nb.txt\nsrc\nstderr:");
      await at("cd src");
      assert.equal(await at("cd .. && ls"), "status=0\nstdout:\nb.txt\nsrc\nstderr:");
    }),
);

test(
  "without bubblewrap the gateway does not start, and says the way out",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      workspace.write("../postern.toml", '[security.shell]\nsyntax = "contained"\n');
      // A machine whose bubblewrap is no program
      const hidden = ["--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bwrap", "--"];
      const args = ["gateway", "--config", workspace.path("../postern.toml"), "--data-dir", workspace.path("../data")];
      const child = spawn("bwrap", [...hidden, ...RUN, mainOf(), ...args, "--port", "0"], {
        cwd: workspace.root,
        env: { ...RUN_ENV, NO_COLOR: "1", HOME: workspace.path("..") },
      });
      const [said, [code]] = await Promise.all([text(child.stderr), once(child, "close")]);
      assert.equal(code, 78);
      assert.match(
        said,
        /Cannot use "security\.shell\.syntax" = "contained": it needs the sandbox, and bubblewrap is not installed; install bubblewrap and allow user namespaces, or set syntax = "plain"/,
      );
    }),
);

test(
  "a remembered answer counts for a line when each part is covered",
  { skip },
  () =>
    withWorkspace({ "a.txt": "a\n" }, async (workspace) => {
      const answers: { readonly decision: "approve" | "deny"; readonly match: RuleMatch }[] = [];
      const subjects: RuleSubject[] = [];
      const bench = createToolBench({
        root: workspace.root,
        config: { ...CONTAINED, autonomy: {} },
        remembered: async (subject) => {
          const id = "rule_1";
          const said = settle(answers.map(({ decision, match }) => compileAnswer({ id, decision }, match)), subject);
          return said && { id, decision: said.then === "deny" ? "deny" : "approve" };
        },
      });
      const ask = async (command: string) =>
        (await bench.call("shell", { command }, {
          approver: async ({ subject }) => {
            subjects.push(subject);
            return { decision: "deny", rule: "approval", reason: "no" };
          },
        })).ran;
      const remember = (decision: "approve" | "deny", match: RuleMatch | undefined) =>
        void answers.push({ decision, match: match ?? assert.fail() });
      assert.equal(await ask("cat a.txt"), false);
      const [, offered] = offeredMatches(subjects[0] ?? assert.fail());
      assert.deepEqual(offered, { kind: "command", op: null, access: "write", command: ["cat", "a.txt"] });
      remember("approve", offered);
      assert.equal(await ask("cat a.txt"), true);
      for (
        const command of [
          "cat a.txt | wc -l",
          "cat a.txt > b",
          "cat a.txt; cat a.*",
          "cat a.txt; $x",
          "eval 'cat a.txt'",
        ]
      ) {
        assert.equal(await ask(command), false, command);
        assert.equal(offeredMatches(subjects.at(-1) ?? assert.fail()).length, 1, command);
      }
      // The folder decides which script it is
      remember("approve", { kind: "command", op: null, access: "write", command: ["bash", "run.sh"] });
      assert.equal(await ask("bash run.sh"), true);
      assert.equal(await ask("cd /tmp; bash run.sh"), false);
      assert.equal(await ask("cd /tmp; cat a.txt"), true);
      remember("approve", { kind: "command", op: null, access: "write", command: ["wc", "lines"] });
      assert.equal(await ask("cat a.txt | wc lines"), true);
      // Builtins that start no program need no answer of their own
      assert.equal(await ask("cd . && cat a.txt; echo done"), true);
      assert.equal(await ask("cd . && echo done"), false);
      assert.equal(await ask("cat a.txt; echo done > b"), false);
      remember("deny", { kind: "command", op: null, access: "write", command: ["wc", "lines"] });
      assert.equal(await ask("cat a.txt | wc lines"), false);
      // Nor where the tool needs no question, in whatever line the command stands
      bench.configure({ ...CONTAINED, autonomy: { auto_approve: ["shell"] } });
      for (
        const command of [
          "wc lines",
          "wc lines > b",
          "wc lines -l < a.txt",
          "x=lines; wc $x",
          "cat a.txt | env CI=1 wc lines",
          "/usr/bin/wc lines 2> b; ls",
        ]
      ) {
        const { ran, result } = await bench.call("shell", { command });
        assert.equal(ran, false, command);
        assert.match(result.output, /a person denied such a call before/, command);
      }
      assert.equal((await bench.call("shell", { command: "wc -l a.txt > b; cat b" })).ran, true);
    }),
);

test("a line whose words may name files at countless places is refused before the disk is looked at", async () => {
  const { executor } = createToolBench({ root: "/nowhere", config: CONTAINED });
  const word = Array.from({ length: 100 }, (_, index) => `a${index}`).join(",");
  const judged = (command: string) => executor.judge("shell", JSON.stringify({ command }));
  for (const command of [`echo ${`${word} `.repeat(30)}`, `cd a; cd b; cd c; echo ${`${word} `.repeat(4)}`]) {
    const refused = judged(command);
    assert.ok(refused?.kind === "bad_input" && refused.error instanceof ToolError);
    assert.equal(refused.error.code, "command_too_long");
    assert.match(refused.error.message, /at more than 4096 places; write a script to a file/);
  }
  assert.equal(judged(`git add ${"src/file.ts ".repeat(2_000)}`)?.kind, "judged");
});
