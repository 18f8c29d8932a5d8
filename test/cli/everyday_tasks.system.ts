import assert from "node:assert/strict";
import { existsSync, realpathSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { applyPreset } from "../../cli/presets.ts";
import { parseToml } from "../../lib/config/toml.ts";
import { git as runGit, initRepository } from "../support/git_fixture.ts";
import { scriptedTasks, toolTurn } from "../support/scripted_tasks.ts";
import { createToolBench } from "../support/tool_bench.ts";
import { type RunningGateway, withWorld, type World } from "../support/world.ts";

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const inSystem = (name: string) => ["/usr/bin", "/usr/local/bin"].some((folder) => existsSync(`${folder}/${name}`));
const lacking = ["git", "make", "awk", "npm", "curl"].filter((name) => !inSystem(name));
const skip = probe.kind === "contained" ? false : probe.text;

const FILES = {
  "README.md": "# Sums\n\nAdds numbers.\n",
  "package.json": `${
    JSON.stringify(
      {
        name: "sums",
        type: "module",
        scripts: {
          test: "node --test test/*.test.js",
          build: "mkdir -p dist && cp src/*.js dist/",
          lint: "node --check src/sum.js",
          fail: "node -e 'process.exit(3)'",
        },
      },
      null,
      2,
    )
  }\n`,
  "src/sum.js": "export function sum(a, b) {\n  return a - b;\n}\n",
  "src/old_name.js": "export const oldName = 1; // TODO: rename\n",
  "src/big.js": `${Array.from({ length: 400 }, (_, index) => `export const n${index} = ${index};`).join("\n")}\n`,
  "test/sum.test.js":
    'import assert from "node:assert/strict";\nimport { test } from "node:test";\nimport { sum } from "../src/sum.js";\ntest("adds", () => assert.equal(sum(1, 2), 3));\n',
  "scripts/count.js": "console.log(process.argv.slice(2).length, 'words');\n",
  "scripts/run.sh": "#!/bin/sh\necho ran $1\n",
  Makefile: "all: out.txt\n\nout.txt: README.md\n\twc -l < README.md > out.txt\n\ncheck:\n\t@echo checked\n",
  "data/people.csv": "name,age\nAda,36\nGrace,85\nAlan,41\n",
  "data/log.txt": "info a\nerror b\ninfo c\nerror d\nwarn e\n",
  ".gitignore": "dist/\nout.txt\n.env\n",
};

/** Call of a task with what its result must say. */
type Step = readonly [tool: string, input: Readonly<Record<string, unknown>>, says: RegExp];
/** Task with its calls, and the questions that a person is asked in it. */
type Task = readonly [task: string, steps: readonly Step[], questions: 0 | 1];

const sh = (command: string, says: RegExp): Step => ["shell", { command }, says];
const git = (input: Readonly<Record<string, unknown>>, says: RegExp): Step => ["git_operations", input, says];
const line = (task: string, command: string, says: RegExp): Task => [task, [sh(command, says)], 0];

/** Tasks of a day, in this order on one folder. */
const TASKS: readonly Task[] = [
  line("look around", "ls -la && cat README.md", /^status=0[^]*Adds numbers/),
  line("find files by name", "find . -name '*.js' -not -path './node_modules/*' | sort", /^status=0[^]*src\/sum\.js/),
  ["find files by a pattern", [["glob_search", { pattern: "src/**/*.js" }, /src\/sum\.js/]], 0],
  line("find a text in the shell", "grep -rn TODO src", /^status=0[^]*old_name\.js:1/),
  ["find a text", [["content_search", { pattern: "TODO" }, /old_name\.js:1/]], 0],
  ["read a file", [["read_file", { path: "src/sum.js" }, /return a - b/]], 0],
  line(
    "read a part of a file",
    "sed -n '10,12p' src/big.js; head -3 src/big.js; tail -n 2 src/big.js",
    /n9 = [^]*n399/,
  ),
  line("count lines", "wc -l src/*.js | tail -1", /^status=0\nstdout:\n\s*404 total/),
  line("run the tests, which fail", "npm test", /^status=1[^]*-1 !== 3/),
  ["edit a file", [[
    "file_edit",
    { path: "src/sum.js", edits: [{ old_text: "a - b", new_text: "a + b" }] },
    /^dry_run=false path=src\/sum\.js/,
  ]], 1],
  line("run the tests again", "npm test 2>&1 | tail -20", /^status=0[^]*pass 1/),
  line("run one test file", "node --test test/sum.test.js", /^status=0[^]*pass 1/),
  line("build", "npm run build && ls dist", /^status=0[^]*sum\.js/),
  line("lint", "npm run lint --silent && echo clean", /^status=0\nstdout:\nclean/),
  line("run with a variable", "CI=1 npm test --silent | grep -c '^ok'", /^status=0\nstdout:\n1/),
  ["patch two files", [[
    "apply_patch",
    {
      patch: "*** Begin Patch\n*** Update File: README.md\n@@\n-Adds numbers.\n+Adds two numbers.\n" +
        "*** Add File: docs/use.md\n+# Use\n*** End Patch",
    },
    /M README\.md\nA docs\/use\.md/,
  ]], 1],
  ["create a file", [["write_file", { path: "src/product.js", content: "export const n = 1;\n" }, /product\.js/]], 1],
  line("create a file in the shell", "cat > notes.md <<'E'\n# $HOME\nE\ncat notes.md", /^status=0\nstdout:\n# \$HOME/),
  line("create folders", "mkdir -p src/lib/deep && touch src/lib/deep/a.js && ls src/lib", /^status=0\nstdout:\ndeep/),
  line("rename a file", "mv src/old_name.js src/new_name.js && ls src", /^status=0[^]*new_name\.js/),
  line(
    "rename a symbol",
    "sed -i 's/oldName/newName/g' src/*.js && grep -c newName src/new_name.js",
    /^status=0[^]*\n1/,
  ),
  line(
    "rename in all files",
    "grep -rl newName src | xargs sed -i 's/newName/best/g'; cat src/new_name.js",
    /const best/,
  ),
  line("copy and delete", "cp -r docs old && rm -rf old && test ! -e old && echo gone", /^status=0\nstdout:\ngone/),
  line("compare two files", "diff -u dist/sum.js src/product.js", /^status=1[^]*\+export const n = 1/),
  line("run a script of node", "node scripts/count.js one two", /^status=0\nstdout:\n2 words/),
  line("run a line of node", `node -e 'console.log(require("./package.json").name)'`, /^status=0\nstdout:\nsums/),
  line("run a script", "chmod +x scripts/run.sh && ./scripts/run.sh now", /^status=0\nstdout:\nran now/),
  line("make", "make && cat out.txt && make check", /^status=0[^]*3\nchecked/),
  line("pipe", "grep error data/log.txt | sort -r | head -1 | tr a-z A-Z", /^status=0\nstdout:\nERROR D/),
  line("cut columns", "tail -n +2 data/people.csv | cut -d, -f2 | sort -n | tail -1", /^status=0\nstdout:\n85/),
  line("sum a column", "awk -F, 'NR>1 {s+=$2} END {print s}' data/people.csv", /^status=0\nstdout:\n162/),
  line("loop over files", 'for f in src/*.js; do echo "$f: $(wc -l < "$f")"; done', /^status=0[^]*src\/sum\.js: 3/),
  line(
    "loop over lines",
    'while IFS=, read -r name age; do echo "$name"; done < data/people.csv',
    /^status=0[^]*Grace/,
  ),
  line("ask a condition", "if [ -f Makefile ]; then echo yes; else echo no; fi", /^status=0\nstdout:\nyes/),
  line("keep a result", 'count=$(ls src | wc -l); echo "there are $count"', /^status=0\nstdout:\nthere are 5/),
  line("look at every file found", "find src -name '*.js' -exec wc -l {} +", /^status=0[^]*405 total/),
  line("pack and list", "tar czf /tmp/src.tgz src && tar tzf /tmp/src.tgz | head -1", /^status=0\nstdout:\nsrc\//),
  line("bound a command", "timeout 20 npm run lint --silent; echo $?", /^status=0\nstdout:\n0/),
  line("look at programs", "node --version; git --version; command -v make", /^status=0[^]*git version[^]*make/),
  ["work in a folder", [
    sh("cd src && ls", /^status=0\nfolder=src/),
    sh("cat sum.js", /^status=0\nfolder=src[^]*a \+ b/),
  ], 0],
  line("see what changed in the shell", "git status --short && git diff --stat", /^status=0[^]*M README\.md/),
  line("read the history in the shell", "git log --oneline -3; git blame src/sum.js | head -2", /^status=0[^]*first/),
  ["see what changed", [
    git({ op: "status" }, /M README\.md/),
    git({ op: "diff", path: "src/sum.js" }, /\+ +return a \+ b/),
  ], 0],
  ["start a branch", [git({ op: "checkout", branch: "work", rev: "HEAD" }, /^## work/)], 1],
  ["commit", [git({ op: "commit", message: "sum: add", paths: ["src/sum.js"] }, /^\[work [0-9a-f]+\] sum: add/)], 1],
  ["read the history", [git({ op: "log", limit: 1 }, /Ada: sum: add/)], 0],
  ["start a process", [
    ["process_tool", { op: "start", command: "tail -f data/log.txt" }, /^id=p1 status=running/],
    ["process_tool", { op: "kill", id: "p1" }, /^id=p1 status=killed/],
  ], 0],
  ["remember", [
    ["memory_store", { key: "style", value: "two spaces" }, /Stored "style"/],
    ["memory_recall", { query: "style" }, /two spaces/],
  ], 0],
  ["plan", [["task_plan", { op: "create", tasks: ["Read", "Write"] }, /1\. \[pending\] Read/]], 0],
  ["compute in the shell", [sh("echo $((40 + 2))", /^status=0\nstdout:\n42/)], 1],
];

/** Calls of a day that are refused, each with the way out that the agent is told. */
const REFUSED: readonly Task[] = [
  line(
    "commit in the shell",
    "git add -A && git commit -m more",
    /^status=128[^]*\n\[Commands change no git repository; the tool git_operations does: add, commit, checkout, stash\]$/,
  ),
  line(
    "stash in the shell",
    "git stash",
    /^status=1\nstdout:\nstderr:\n\[Commands change no git repository; the tool git_operations/,
  ),
  line("branch in the shell", "git checkout -b other", /^status=128[^]*the tool git_operations/),
  line("ask the network", "curl -sS https://example.com/", /^status=6[^]*\[security\.shell\] network = "allowlist"/),
  line(
    "clone",
    "git clone -q https://example.com/x.git /tmp/x",
    /^status=128[^]*\[security\.shell\] network = "allowlist"/,
  ),
  line(
    "a program of the home folder",
    "no-such-program --help",
    /^status=127[^]*\n\[Commands find the programs of the system/,
  ),
  line(
    "a script for a missing program",
    "printf '#!/usr/bin/env nonode\\n' > a.sh; chmod +x a.sh; ./a.sh",
    /^status=127[^]*\n\[Commands find the programs/,
  ),
  line(
    "install for the system",
    "touch /usr/lib/x",
    /^status=1[^]*\n\[Commands write to the workspace and to \/tmp alone/,
  ),
  line(
    "a file of secrets in the shell",
    "cat .env",
    /allow_sensitive_file_reads and allow_sensitive_file_writes together open them/,
  ),
  line(
    "compare a tracked file of secrets",
    "git status --short && git diff --stat; cat data/log.txt",
    /unsupported file type[^]*\n\[Files of credentials are hidden from commands, .*; the tool git_operations compares the others: /,
  ),
  [
    "a file of secrets",
    [["read_file", { path: ".env" }, /\[autonomy\] allow_sensitive_file_reads = true opens them/]],
    0,
  ],
  line("a file of the system", "cat /etc/hosts", /forbidden path "\/etc"; name other files/),
  ["instructions of agents", [["write_file", { path: "AGENTS.md", content: "x" }, /a person can, in an editor/]], 0],
  line(
    "settings of agents",
    "mkdir .claude",
    /was moved to quarantine, since it is a protected name; a person finds it at/,
  ),
  ["a schedule", [[
    "cron_add",
    { schedule: "every day at 9:00", prompt: "Tidy" },
    /it is off; set \[cron\] enabled = true/,
  ]], 0],
  ["a request", [[
    "http_request",
    { method: "GET", url: "https://example.com/" },
    /it is off; set \[http_request\] enabled = true/,
  ]], 0],
  ["a branch that is not there", [
    git({ op: "checkout", branch: "nowhere" }, /give "rev" to make it there, such as "HEAD"/),
  ], 1],
];

/** A gateway under the preset `code`, whose model makes the calls of each task. @param hosts those that commands reach. Default: none */
async function underCode(world: World, tasks: readonly Task[], hosts?: readonly string[]): Promise<RunningGateway> {
  const workspace = await world.workspace(FILES);
  initRepository(workspace.root);
  workspace.write(".env", "SECRET=canary-of-the-env-file\n");
  const text = await applyPreset("", "code");
  const more = hosts === undefined
    ? ""
    : `[url_access]\nallow_loopback = true\ndomain_allowlist = ${JSON.stringify(hosts)}\n`;
  const network = hosts === undefined ? "$&" : '$&\nnetwork = "allowlist"';
  return await world.gateway({
    config: {
      ...parseToml(text.replace(/^syntax = .*$/m, network) + more, "postern.toml"),
      gateway: { rate_limit_max: 0 },
    },
    script: scriptedTasks(Object.fromEntries(
      tasks.map(([task, steps]) => [task, [...steps.map(([tool, input]) => toolTurn(tool, input)), "Done"]]),
    )),
    workspace,
  });
}

/** Has the agent do a task in a conversation of its own, and says yes to each question. */
async function perform(gateway: RunningGateway, [task, steps, questions]: Task): Promise<void> {
  const chat = await gateway.chat();
  chat.send({ type: "hello", events: true });
  chat.send(task);
  const ENDS = ["done", "error", "approval_needed"];
  const outputs: string[] = [];
  let asked = 0;
  for (let last = ""; last !== "done";) {
    const frames = await chat.readUntil(({ type }) => ENDS.includes(type));
    outputs.push(...frames.filter(({ type }) => type === "tool_end").map(({ output }) => String(output)));
    const end = frames.at(-1);
    last = end?.type ?? "";
    assert.notEqual(last, "error", `${task}: ${JSON.stringify(end)}`);
    if (last !== "approval_needed") continue;
    asked++;
    chat.send({ type: "approve", approval_id: end?.["approval_id"] });
  }
  assert.equal(outputs.length, steps.length, task);
  for (const [index, [, , says]] of steps.entries()) assert.match(outputs[index] ?? "", says, task);
  assert.equal(asked, questions, `${task}: questions`);
  await chat.leave();
}

/** Returns the tasks whose programs are installed for the whole system, where commands find them. */
function possible(tasks: readonly Task[], say: (text: string) => void): readonly Task[] {
  if (lacking.length > 0) say(`tasks with ${lacking.join(", ")} are left out: not installed for the whole system`);
  const programs = new RegExp(
    `\\b(?:${["no one", ...lacking, ...lacking.includes("npm") ? ["node"] : []].join("|")})\\b`,
  );
  return tasks.filter(([, steps]) => !steps.some(([, { command }]) => programs.test(String(command))));
}

test(
  "under the preset code 50 everyday tasks are done, with one question at most",
  { skip },
  (t) =>
    withWorld(async (world) => {
      assert.equal(TASKS.length, 50);
      const gateway = await underCode(world, TASKS);
      for (const task of possible(TASKS, (text) => t.diagnostic(text))) await perform(gateway, task);
    }),
);

test("under the preset code what is refused says the way out", { skip }, (t) =>
  withWorld(async (world) => {
    const gateway = await underCode(world, REFUSED);
    runGit(gateway.workspace.root, "add", "--force", ".env");
    for (const task of possible(REFUSED, (text) => t.diagnostic(text))) await perform(gateway, task);
  }));

test("with an allowed host a line asks once and reaches it, and another host is named with its entry", {
  skip: skip || (lacking.includes("curl") ? "curl is not installed" : false),
}, () =>
  withWorld(async (world) => {
    const server = createServer((_request, response) => response.end("hello from the host\n")).listen(0, "127.0.0.1");
    await once(server, "listening");
    world.onEnd(async () => void server.close());
    const { port } = server.address() as AddressInfo;
    const tasks: readonly Task[] = [
      ["reach it", [sh(`curl -sS http://127.0.0.1:${port}/ | tr a-z A-Z`, /^status=0[^]*HELLO FROM THE HOST/)], 1],
      ["reach another", [sh("curl -sS https://example.com/", /\[Relay: [^]*example\.com[^]*domain_allowlist/)], 1],
    ];
    const gateway = await underCode(world, tasks, [`127.0.0.1:${port}`]);
    for (const task of tasks) await perform(gateway, task);
  }));
