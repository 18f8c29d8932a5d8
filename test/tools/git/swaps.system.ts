import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { CheckedGit } from "../../../lib/system/git/checked_git.ts";
import type { Repository } from "../../../lib/system/git/git.ts";
import type { Processes } from "../../../lib/system/process/processes.ts";
import { git, initRepository, isThere } from "../../support/git_fixture.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { GIT_CONTAINED, type RepositoryWorkspace, withRepository } from "./with_repository.ts";

/*
 * A contained program that runs exchanges files and folders of the workspace while Postern checks a repository, or git works on it. Where
 * a test can, it makes the exchange itself at the moment that counts; what a program may do is what its sandbox lets it do.
 */

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind !== "contained" ? probe.text : isThere("git") ? false : "git is not installed";

const SHELL = { forbidden_chars: [], max_arg_length: 10_000, sandbox: "require" } as const;
const CONTAINED = { ...GIT_CONTAINED, allowed_commands: ["sh"], shell: SHELL } as const;
const PLANT = "mkdir -p .git/hooks ../.git/hooks; touch ran ../ran .git/hooks/ran ../.git/hooks/ran";
/** A configuration whose filter leaves marks wherever it may write */
const HOSTILE = `[filter "evil"]\n\tclean = "${PLANT}; cat"\n\tsmudge = "${PLANT}; cat"\n`;

/** Runs `use` with a repository whose files pass a filter, once one is configured. */
const withAttributes = (use: (at: RepositoryWorkspace) => Promise<void>) =>
  withRepository({ "a.txt": "one\n", ".gitattributes": "* filter=evil\n" }, async (at) => {
    try {
      await use(at);
    } finally {
      await at.bench.processes.close();
    }
  }, { config: CONTAINED });

/** Starts a script in the sandbox, and waits until it says `started`. @returns what gives its output so far */
async function startProgram({ bench, write }: RepositoryWorkspace, script: string): Promise<() => Promise<string>> {
  write("run.sh", script);
  const started = await bench.call("process_tool", { op: "start", command: "sh run.sh" });
  const { id } = started.result.data as { id: string };
  const said = async () => (await bench.call("process_tool", { op: "output", id })).result.output;
  await until(async () => (await said()).includes("started"));
  return said;
}

/** Opens the repository at the top for a call that adds files. @param onRun called before each process, with its words */
function openTop(
  { root, bench }: RepositoryWorkspace,
  onRun: (words: readonly string[]) => void = () => {},
): Promise<Repository> {
  const run: Processes["run"] = (request) => {
    onRun(request.words);
    return bench.processes.run(request);
  };
  return new CheckedGit({ processes: { run }, home: "/nonexistent", ownPaths: [] }).open({
    folder: ".",
    files: false,
    scope: { workspaceRoot: root, forbiddenPaths: [], sandbox: "require", credentials: false },
    use: { content: true, merges: true, network: false, submodules: true },
    writes: true,
    signal: new AbortController().signal,
  });
}

const ranAnything = ({ path }: RepositoryWorkspace) => existsSync(path("ran")) || existsSync(path(".git/hooks/ran"));

for (
  const args of [["add", "--", ":(top)"], ["add", "--", ":(top,literal)sub"], [
    "stash",
    "push",
    "--no-include-untracked",
  ]]
) {
  test(
    `a submodule that a program puts in its place after the check is not looked into (${args.join(" ")})`,
    { skip },
    () =>
      withAttributes(async (at) => {
        const { root, path, write } = at;
        write("sub/f.txt", "one\n");
        initRepository(path("sub"));
        git(root, "add", "sub");
        git(root, "commit", "-qm", "with a submodule");
        renameSync(path("sub"), path("../kept"));
        mkdirSync(path("sub"));
        await startProgram(at, "echo started; sleep 1000");
        write("a.txt", "longer than before\n");
        const plant = () => {
          renameSync(path("../kept"), path("sub"));
          appendFileSync(path("sub/.git/config"), HOSTILE);
          write("sub/.gitattributes", "* filter=evil\n");
          write("sub/f.txt", "two\n");
        };
        const opening = openTop(at).then(async (repository) => {
          plant();
          return await repository.run(args);
        });
        await assert.rejects(opening, { code: "git_unsettled" });
        assert.equal(ranAnything(at), false);
      }),
  );
}

test("a repository with a submodule that is not checked out works while no program runs, and commits while one does", {
  skip,
}, () =>
  withAttributes(async (at) => {
    const { root, ok, refused, path, write } = at;
    git(root, "update-index", "--add", "--cacheinfo", `160000,${git(root, "rev-parse", "HEAD").trim()},sub`);
    git(root, "commit", "-qm", "with a submodule");
    mkdirSync(path("sub"));
    write("a.txt", "longer than before\n");
    assert.match(await ok({ op: "add", paths: ["a.txt"] }), /^M {2}a\.txt$/m);
    await startProgram(at, "echo started; sleep 1000");
    assert.match(await refused({ op: "add", paths: ["a.txt"] }), /"sub\/\.git" is not there/);
    assert.match(await ok({ op: "commit", message: "more" }), /^\[main /);
    await ok({ op: "checkout", branch: "side", rev: "HEAD" });
  }));

test(
  "a .git link that a program exchanges for the time of the check leads git nowhere",
  { skip },
  () =>
    withAttributes(async (at) => {
      const { path, write } = at;
      renameSync(path(".git"), path("store"));
      symlinkSync("store", path(".git"));
      await startProgram(at, "echo started; sleep 1000");
      cpSync(path("store"), path("evil"), { recursive: true });
      renameSync(path(".git"), path("aside"));
      symlinkSync("evil", path(".git"));
      write("a.txt", "longer than before\n");
      const back = (words: readonly string[]) => {
        if (!words.includes("--list") || !existsSync(path("aside"))) return;
        renameSync(path(".git"), path("other"));
        renameSync(path("aside"), path(".git"));
      };
      await assert.rejects(openTop(at, back), {
        code: "git_unsettled",
        message: /"evil" appeared while a program runs/,
      });
    }),
);

test(
  "a link of a protected name that leads nowhere is no known repository once it is called .git",
  { skip },
  () =>
    withAttributes(async (at) => {
      const { path, outside } = at;
      // Outside, where no cover lies over it whose loss would end the program
      const aside = join(outside, "aside");
      renameSync(path(".git"), aside);
      symlinkSync("evil", path(".claude"));
      const said = await startProgram(at, "mv .claude .git; echo moved=$?; echo started; sleep 1000");
      assert.match(await said(), /moved=0/);
      renameSync(aside, path("evil"));
      const hide = (words: readonly string[]) => {
        if (words.includes("--list") && existsSync(path("evil"))) renameSync(path("evil"), aside);
      };
      await assert.rejects(openTop(at, hide), { code: "git_unsettled" });
    }),
);

test("a configuration that is a link is frozen as what it leads to", { skip }, () =>
  withAttributes(async (at) => {
    const { path, write } = at;
    renameSync(path(".git/config"), path("shared"));
    symlinkSync("../shared", path(".git/config"));
    const repository = await openTop(at);
    appendFileSync(path("shared"), HOSTILE);
    write("a.txt", "longer than before\n");
    assert.equal((await repository.run(["add", "--", "a.txt"])).code, 0);
    assert.equal(ranAnything(at), false);
  }));

test(
  "a configuration of the working tree that was not there when it was checked counts for nothing",
  { skip },
  () =>
    withAttributes(async (at) => {
      const { root, path, write } = at;
      git(root, "config", "extensions.worktreeConfig", "true");
      const repository = await openTop(at);
      writeFileSync(path(".git/config.worktree"), HOSTILE);
      write("a.txt", "longer than before\n");
      assert.equal((await repository.run(["add", "--", "a.txt"])).code, 0);
      assert.equal(ranAnything(at), false);
    }),
);

test(
  "a program that waits for its next call counts as one that runs",
  { skip },
  () =>
    withRepository({ "a.txt": "one\n" }, async ({ root, bench, refused, ok, path, write }) => {
      const made = "mkdir -p ../made/.git/objects ../made/.git/refs; echo ref: refs/heads/main > ../made/.git/HEAD";
      write("plugin/plugin.sh", `read line; ${made}; echo done; read line`);
      const prepared = await bench.processes.prepareProgram({
        title: "plugin",
        program: { file: "sh", args: [path("plugin/plugin.sh")], folder: path("plugin") },
        rights: { workspace: "write", hosts: { entries: [], key: "" } },
        taint: [],
        scope: { workspaceRoot: root, forbiddenPaths: [], workspaceOnly: true, allowSensitive: false },
        sandbox: "require",
        section: "[plugins]",
        signal: new AbortController().signal,
      });
      const program = await prepared.start();
      try {
        // The end of a call
        await prepared.after();
        program.stdin.write("\n");
        await new Promise((resolve) => program.stdout.once("data", resolve));
        assert.match(await refused({ op: "status", path: "made" }), /"made\/\.git" appeared while a program runs/);
        await program.end();
        await ok({ op: "status", path: "made" });
      } finally {
        await program.end();
        await bench.processes.close();
      }
    }, { config: CONTAINED }),
);

for (const target of [".git", "known/.git"]) {
  test(`a branch that is checked out while a program exchanges a folder writes no hooks (${target})`, {
    skip,
  }, () =>
    withAttributes(async (at) => {
      const { root, path, write, bench } = at;
      initRepository(path("known"));
      mkdirSync(path(target, "hooks"), { recursive: true });
      git(root, "switch", "-q", "-c", "evil");
      for (let n = 1000; n < 3000; n++) write(`d/hooks/a${n}`, `${"x".repeat(1000)}${n}`);
      write("d/hooks/post-commit", "#!/bin/sh\n");
      chmodSync(path("d/hooks/post-commit"), 0o755);
      git(root, "add", "d");
      git(root, "commit", "-qm", "hooks");
      git(root, "switch", "-q", "main");
      const swap = "while [ ! -e d/hooks/a1001 ]; do :; done; mv d e; mv -T l d; sleep 1000";
      await startProgram(at, `ln -s ${target} l; echo started; ${swap}`);
      await bench.call("git_operations", { op: "checkout", branch: "evil" });
      assert.equal(existsSync(path(target, "hooks/post-commit")), false);
    }));
}

for (const [folder, name, secret] of [["private", "z.txt", "forbidden"], [".git", "config", "hunter2"]] as const) {
  test(`files that are added while a program exchanges their folder are those of that folder (${folder})`, {
    skip,
  }, () =>
    withRepository({ "a.txt": "one\n" }, async (at) => {
      const { root, path, write, bench } = at;
      try {
        write("private/z.txt", "forbidden content\n".repeat(20));
        git(root, "remote", "add", "origin", "https://me:hunter2hunter2@example.com/x.git");
        write("d/a", "x");
        write(`d/${name}`, "x");
        git(root, "add", "d");
        git(root, "commit", "-qm", "files");
        // git takes a while for this one, and leaves a sign
        write("d/a", randomBytes(30_000_000));
        writeFileSync(path(`d/${name}`), "y".repeat(100));
        bench.configure({ ...CONTAINED, autonomy: { level: "full", forbidden_paths: ["private"] } });
        const swap = 'while :; do set -- .git/objects/??/tmp_obj*; test -e "$1" && break; done; mv d e; mv -T l d';
        await startProgram(at, `ln -s ${folder} l; echo started; ${swap}; sleep 1000`);
        await bench.call("git_operations", { op: "add", paths: ["d"] });
        assert.ok(!git(root, "show", `:d/${name}`).includes(secret));
      } finally {
        await bench.processes.close();
      }
    }, { config: CONTAINED }));
}

/** renameat2 with RENAME_EXCHANGE, every millisecond */
const EXCHANGE =
  'my ($p, $l) = ("pin", "l"); while (1) { syscall(316, -100, $p, -100, $l, 2); select(undef, undef, undef, 0.001) }';
const noPerl = process.arch === "x64" && spawnSync("perl", ["-v"]).status === 0 ? false : "it needs perl on x86-64";

test("no command sees what lies outside, though a program exchanges a folder while the sandbox is made", {
  skip: skip || noPerl,
}, () =>
  withRepository({ "a.txt": "one\n" }, async (at) => {
    try {
      const places = `mkdir pin; touch pin/.env; ln -s ${at.outside} l`;
      await startProgram(at, `${places}; echo started; exec perl -e '${EXCHANGE}'`);
      at.write("look.sh", "cat pin/secret.txt l/secret.txt");
      for (let n = 0; n < 200; n++) {
        const { result } = await at.bench.call("shell", { command: "sh look.sh" });
        assert.doesNotMatch(result.output, /must never be read/);
      }
      assert.deepEqual(readdirSync(at.outside), ["secret.txt"]);
    } finally {
      await at.bench.processes.close();
    }
  }, { config: CONTAINED }));
