import assert from "node:assert/strict";
import {
  closeSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { execFileSync } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const KEY = `-----BEGIN OPENSSH PRIVATE KEY-----\n${"QUFB".repeat(16)}\n-----END OPENSSH PRIVATE KEY-----\n`;
const SHELL = { forbidden_chars: [], max_arg_length: 100_000 } as const;
const FULL: ConfigChanges = {
  autonomy: { level: "full" },
  allowed_commands: ["sh", "cat", "mv", "cp", "ls", "mkdir", "head"],
  enable_git: true,
};
const CONTAINED: ConfigChanges = { ...FULL, shell: { ...SHELL, sandbox: "require" } };
const UNCONTAINED: ConfigChanges = { ...FULL, shell: { ...SHELL, sandbox: "off" } };

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind === "contained" ? false : probe.text;

const files = {
  ".git/config": "[core]\n",
  ".git/HEAD": "ref: refs/heads/main\n",
  ".agents/a.md": "agent",
  ".claude/skills/s/SKILL.md": "skill",
  ".plugins/p.json": "plugin",
  "plugins/q.json": "plugin",
  ".postern/sops/s.toml": "sop",
  "sub/.git/config": "[core]\n",
  "sub/a.txt": "a",
  "a.txt": "a",
};

async function shell({ call }: ToolBench, command: string): Promise<string> {
  return (await call("shell", { command })).result.output;
}

/** Runs with the bench of a workspace, and ends what it started. */
const withBench = (
  config: ConfigChanges,
  use: (bench: ToolBench, workspace: Workspace) => Promise<void>,
  content: Readonly<Record<string, string>> = files,
) =>
  withWorkspace(content, async (workspace) => {
    const bench = createToolBench({ root: workspace.root, config });
    try {
      await use(bench, workspace);
    } finally {
      await bench.processes.close();
    }
  });

const inQuarantine = ({ path }: Workspace): readonly string[] => {
  const folder = path("..", "quarantine");
  return existsSync(folder) ? readdirSync(folder, { recursive: true }).map(String).sort() : [];
};

test(
  "what steers git and Postern is read-only in the sandbox, cannot be moved, and other files can",
  { skip },
  () =>
    withBench(CONTAINED, async (bench, { path }) => {
      for (const name of [".git", ".agents", ".claude", ".plugins", "plugins", ".postern", "sub/.git"]) {
        for (
          const attack of [
            `touch ${name}/new`,
            `mv ${name} moved`,
            `rm -r ${name}`,
            `f=$(find ${name} -type f | head -n 1); echo x > "$f"`,
            `chmod -R 777 ${name} && touch ${name}/new`,
          ]
        ) {
          const output = await shell(bench, `sh -c '${attack}'`);
          assert.match(output, /Read-only file system|Device or resource busy|cannot create/, `${attack}: ${output}`);
        }
      }
      for (const [name, content] of Object.entries(files)) assert.equal(readFileSync(path(name), "utf8"), content);
      assert.match(
        await shell(bench, "sh -c 'echo b > a.txt; mkdir -p src/plugins; mv sub/a.txt src/plugins/b'"),
        /^status=0/,
      );
      assert.equal(readFileSync(path("src/plugins/b"), "utf8"), "a");
    }),
);

test(
  "a repository cannot be moved, given a program to run and moved back",
  { skip },
  () =>
    withBench(CONTAINED, async (bench, workspace) => {
      const script = 'mv .git g; printf "[core]\\nfsmonitor = ./evil\\n" > g/config; mv g .git';
      const output = await shell(bench, `sh -c '${script}'`);
      assert.match(output, /busy/);
      assert.equal(readFileSync(workspace.path(".git/config"), "utf8"), "[core]\n");
      // Nor the folder of a repository, where git would find another one by its name. Its configuration may be read here
      bench.configure({
        ...CONTAINED,
        autonomy: { level: "full", allow_sensitive_file_reads: true, allow_sensitive_file_writes: true },
      });
      assert.match(await shell(bench, "mv sub moved"), /busy/);
      assert.match(await shell(bench, "sh -c 'echo evil > sub/.git/config'"), /Read-only file system|cannot create/);
      assert.deepEqual(inQuarantine(workspace), []);
    }),
);

for (const [how, config] of [["in the sandbox", CONTAINED], ["without a sandbox", UNCONTAINED]] as const) {
  test(`a protected name that appears during a call is moved to quarantine and told, ${how}`, {
    skip: config === CONTAINED && skip,
  }, () =>
    withBench(config, async (bench, workspace) => {
      const made = ["src/.git", ".agents", ".claude", ".plugins", "plugins", ".postern", "postern.toml"];
      for (const name of made) {
        const isFile = name.endsWith(".toml");
        const command = isFile ? `echo evil > ${name}` : `mkdir -p ${name}; echo evil > ${name}/x`;
        const { result } = await bench.call("shell", { command: `sh -c '${command}'` });
        assert.match(result.output, new RegExp(`"${name}" appeared during the call and was moved to quarantine`));
        assert.equal(existsSync(workspace.path(name)), false, name);
        const { quarantined } = result.data as { quarantined: readonly { path: string; place: string }[] };
        assert.equal(quarantined.length, 1);
        assert.equal(quarantined[0]?.path, name);
        assert.equal(readFileSync(join(quarantined[0]?.place ?? "", isFile ? "" : "x"), "utf8"), "evil\n");
      }
      // A link, a file in place of a folder, and the same name again
      const link = await shell(bench, "sh -c 'mkdir other; ln -s other .agents; echo gitdir: other > sub/.git'");
      assert.match(link, /"\.agents" appeared/);
      assert.match(link, /"sub\/\.git" appeared/);
      assert.equal(existsSync(workspace.path("other")), true);
      assert.match(
        await shell(bench, "sh -c 'mkdir x; echo a > x/plugins; mkdir -p y/plugins'"),
        /^status=0\nstdout:\nstderr:$/,
      );
    }, { "sub/a.txt": "a" }));
}

test(
  "git_operations may write what commands may not",
  { skip },
  () =>
    withBench(CONTAINED, async (bench, workspace) => {
      const { git, initRepository } = await import("../../support/git_fixture.ts");
      initRepository(workspace.root);
      workspace.write("new.txt", "new");
      const added = await bench.call("git_operations", { op: "add", paths: ["new.txt"] });
      assert.equal(added.result.isError, false, added.result.output);
      assert.match(git(workspace.root, "status", "--short"), /^A {2}new\.txt/m);
      assert.deepEqual(inQuarantine(workspace), []);
    }, { "a.txt": "a" }),
);

test(
  "what a process makes that runs on is moved once it has ended, and told with its output",
  { skip },
  () =>
    withBench({ ...CONTAINED, process: { allowed_commands: ["sh"] } }, async (bench, workspace) => {
      const command = "sh -c 'until [ -e go ]; do sleep 0.02; done; mkdir .agents'";
      const started = await bench.call("process_tool", { op: "start", command });
      const { id } = started.result.data as { id: string };
      writeFileSync(workspace.path("go"), "");
      const output = async () => (await bench.call("process_tool", { op: "output", id })).result.output;
      await until(async () => (await output()).includes("status=0"), "it does not end");
      assert.match(await output(), /"\.agents" appeared during the call and was moved to quarantine/);
      assert.equal(existsSync(workspace.path(".agents")), false);
    }, {}),
);

test("without a note of it no command starts, and none is left of one that ended or never started", () =>
  withBench({ ...UNCONTAINED, process: { allowed_commands: ["sh"], max_processes: 1 } }, async (bench, workspace) => {
    const notes = workspace.path("..", "commands");
    assert.match(await shell(bench, "sh -c 'ls ../commands'"), /\.json/);
    const start = () =>
      bench.call("process_tool", { op: "start", command: "sh -c 'until [ -e go ]; do sleep 0.02; done'" });
    await start();
    assert.match((await start()).result.output, /max_processes allows 1/);
    assert.equal(readdirSync(notes).length, 1, "the process that runs on has its note");
    writeFileSync(workspace.path("go"), "");
    await until(() => readdirSync(notes).length === 0, "its note stays");
    await rm(notes, { recursive: true });
    writeFileSync(notes, "");
    assert.match(await shell(bench, "mkdir ran"), /^Cannot run the command: a note of it cannot be written/);
    assert.ok(!existsSync(workspace.path("ran")));
  }, {}));

test("what a command made before its gateway was killed is moved at the next start, and its note is gone", () =>
  withBench(UNCONTAINED, async (bench, workspace) => {
    const notes = workspace.path("..", "commands");
    // The command keeps its note, as a killed gateway leaves it; a damaged one lies beside it
    await shell(bench, "sh -c 'cp -r ../commands ../kept'");
    renameSync(workspace.path("..", "kept"), notes);
    for (const name of [".git", "sub/.git", "plugins"]) workspace.write(`${name}/config`, "evil");
    writeFileSync(workspace.path(".git/config"), "[core]\n");
    const { quarantined, unchecked } = await bench.processes.lookAfterKill();
    assert.deepEqual([quarantined.map(({ path }) => path).sort(), unchecked], [["plugins", "sub/.git"], false]);
    assert.equal(readFileSync(join(quarantined[0]?.place ?? "", "config"), "utf8"), "evil");
    assert.equal(readFileSync(workspace.path(".git/config"), "utf8"), "[core]\n", "what was there before stays");
    assert.deepEqual(readdirSync(notes), []);
    writeFileSync(join(notes, "torn.json"), '{"v":1,"works');
    assert.deepEqual(await bench.processes.lookAfterKill(), { quarantined: [], unchecked: true });
    assert.deepEqual(await bench.processes.lookAfterKill(), { quarantined: [], unchecked: false });
  }, { ".git/config": "[core]\n" }));

test("a full quarantine stops commands, since nothing in it is thrown away", () =>
  withBench(UNCONTAINED, async (bench, workspace) => {
    for (let i = 0; i < 100; i++) workspace.write(`../quarantine/${i}/x`, "");
    assert.match(
      await shell(bench, "ls"),
      /quarantine holds as much as it may; a person must look at it and remove it$/,
    );
  }));

test("a folder that a link takes the place of is not emptied of what lies elsewhere", {
  skip: process.platform !== "linux",
}, () =>
  withWorkspace({ "sub/x": "" }, async (workspace) => {
    const { createQuarantine } = await import("../../../lib/system/process/quarantine.ts");
    const { systemClock } = await import("../../../lib/base/clock.ts");
    const { createSystemRandom } = await import("../../../lib/base/random.ts");
    workspace.write("../outside/.git/config", "theirs");
    const { dev, ino, birthtimeNs } = lstatSync(join(workspace.outside, ".git"), { bigint: true });
    renameSync(workspace.path("sub"), workspace.path("away"));
    symlinkSync(workspace.outside, workspace.path("sub"));
    const quarantine = createQuarantine({
      folder: workspace.path("..", "quarantine"),
      clock: systemClock,
      random: createSystemRandom(),
    });
    const identity = `${dev}:${ino}:${birthtimeNs}`;
    const taken = await quarantine.take([{ path: workspace.path("sub/.git"), identity }], workspace.root);
    assert.deepEqual(taken, [{ path: "sub/.git", place: undefined }]);
    assert.equal(readFileSync(join(workspace.outside, ".git/config"), "utf8"), "theirs");
  }));

const SECRETS = {
  ".kube/config": "secret\n",
  ".docker/config.json": "secret\n",
  "deep/.cargo/credentials.toml": "secret\n",
  "deep/.config/gcloud/x": "secret\n",
  "notes.txt": KEY,
  ".env": "secret\n",
  "plain/a.txt": "shown\n",
};

test(
  "sensitive files stay hidden when their folders are renamed, over any number of calls",
  { skip },
  () =>
    withBench(CONTAINED, async (bench) => {
      for (
        const move of ["mv .kube k", "mv .docker d", "mv deep/.cargo deep/c", "mv deep/.config deep/c2", "mv deep e"]
      ) {
        await shell(bench, `sh -c '${move}'`);
        const output = await shell(bench, "sh -c 'cat $(find . -type f)'");
        assert.doesNotMatch(output, /secret|PRIVATE/, move);
        assert.match(output, /shown/);
      }
    }, SECRETS),
);

test(
  "hard links of the user's and the workspace's secrets are hidden, other hard links are read",
  { skip },
  () =>
    withTemporaryFolder((home) =>
      withWorkspace({ ".env": "secret\n", "plain.txt": "shown\n" }, async (workspace) => {
        const { Processes } = await import("../../../lib/system/process/processes.ts");
        const { createCommandLookup } = await import("../../../lib/system/process/command_lookup.ts");
        const { systemClock } = await import("../../../lib/base/clock.ts");
        mkdirSync(join(home, ".ssh/deep"), { recursive: true });
        mkdirSync(join(home, "data"));
        writeFileSync(join(home, ".ssh/deep/key"), "secret of the user\n");
        writeFileSync(join(home, ".netrc"), "secret of the user\n");
        writeFileSync(join(home, "data/postern.db"), "secret of Postern\n");
        linkSync(join(home, ".ssh/deep/key"), workspace.path("one"));
        linkSync(join(home, ".netrc"), workspace.path("two"));
        linkSync(join(home, "data/postern.db"), workspace.path("three"));
        linkSync(workspace.path(".env"), workspace.path("four"));
        linkSync(workspace.path("plain.txt"), workspace.path("five"));
        const processes = new Processes({
          commands: createCommandLookup(),
          clock: systemClock,
          home,
          ownPaths: [join(home, "data")],
          quarantine: { folder: join(home, "quarantine") },
          notes: join(home, "commands"),
          marker: "test",
        });
        const { stdout } = await processes.run({
          words: ["sh", "-c", "cat one two three four five"],
          scope: { workspaceRoot: workspace.root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
          sandbox: "require",
          timeoutMs: 10_000,
          maxOutputBytes: 1000,
          signal: new AbortController().signal,
        });
        assert.equal(stdout.text, "shown\n");
        await processes.close();
      })
    ),
);

test(
  "a link under a protected name cannot be led to another place",
  { skip },
  () =>
    withBench(CONTAINED, async (bench, workspace) => {
      symlinkSync("conf/agents", workspace.path(".agents"));
      symlinkSync("nowhere", workspace.path(".plugins"));
      assert.match(await shell(bench, "sh -c 'echo evil > .agents/a.md'"), /Read-only file system|cannot create/);
      const led = await shell(bench, "sh -c 'mv conf c; mkdir -p conf/agents nowhere; echo evil > conf/agents/a.md'");
      assert.match(led, /(?:Read-only file system|cannot create).*busy|busy.*(?:Read-only file system|cannot create)/s);
      assert.match(led, /"\.plugins" appeared during the call/);
      assert.equal(readFileSync(workspace.path(".agents/a.md"), "utf8"), "agent");
    }, { "conf/agents/a.md": "agent" }),
);

test(
  "what no mount can reach refuses the command: a path that grew too long",
  { skip },
  () =>
    withBench(CONTAINED, async (bench, { root }) => {
      // Step by step, as a program that holds its folder open can, taken along to where no path reaches
      const name = "n".repeat(220);
      const opened = [openSync(root, "r")];
      for (let i = 0; i < 20; i++) {
        const at = `/proc/self/fd/${opened.at(-1)}`;
        mkdirSync(`${at}/${name}`);
        renameSync(`${at}/far`, `${at}/${name}/far`);
        opened.push(openSync(`${at}/${name}`, "r"));
      }
      for (const each of opened) closeSync(each);
      const output = await shell(bench, "sh -c 'echo ran'");
      // The test's own clean-up does not reach it either
      execFileSync("rm", ["-rf", join(root, name)]);
      assert.match(output, /^Cannot run the command in the sandbox: .*ENAMETOOLONG/);
    }, { "far/.env": "secret\n" }),
);

test("without a sandbox no argument names a folder that holds sensitive files, save the workspace itself", () =>
  withBench(UNCONTAINED, async (bench, workspace) => {
    linkSync(workspace.path(".env"), workspace.path("innocent"));
    symlinkSync("deep", workspace.path("link"));
    const attacks = ["mv deep e", "cp -r deep/.cargo c", "cp -r link x", "cat notes.txt", "cat innocent", "mv .kube k"];
    for (const attack of [...attacks, "cp -r --target=deep x", "head -c99 notes.txt", "ls deep"]) {
      assert.match(await shell(bench, attack), /^Cannot run the command with the argument .*credentials/, attack);
    }
    assert.match(await shell(bench, "ls ."), /^status=0\nstdout:\n.*notes\.txt/s);
    assert.match(await shell(bench, "cat plain/a.txt"), /shown/);
    assert.match(await shell(bench, "ls plain"), /a\.txt/);
    bench.configure({
      ...UNCONTAINED,
      autonomy: { level: "full", allow_sensitive_file_reads: true, allow_sensitive_file_writes: true },
    });
    assert.match(await shell(bench, "cat notes.txt"), /PRIVATE/);
  }, SECRETS));

test(
  "no folder on the way to a secret can be moved, so that no other command finds it elsewhere",
  { skip },
  () =>
    withBench(CONTAINED, async (bench, { path }) => {
      for (const folder of ["deep", "deep/.cargo", "deep/.config", "keys", "keys/more"]) {
        // In another folder that is a mount, mv copies what it sees, and cannot remove the rest
        const output = await shell(bench, `mv ${folder} ${folder}.moved`);
        assert.match(output, /Device or resource busy|Operation not permitted/, folder);
      }
      for (const [name, content] of Object.entries(SECRETS)) assert.equal(readFileSync(path(name), "utf8"), content);
      assert.match(await shell(bench, "mv plain moved"), /^status=0/);
    }, { ...SECRETS, "keys/more/notes.txt": KEY }),
);
