import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { git, gitTest as test, initRepository } from "../../support/git_fixture.ts";
import { someOf } from "../../support/seeded_random.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { GIT_CONTAINED, type RepositoryWorkspace, withRepository } from "./with_repository.ts";

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const SHELL = { forbidden_chars: [], max_arg_length: 10_000, sandbox: "auto" } as const;
const CONTAINED = { ...GIT_CONTAINED, allowed_commands: ["sh"], shell: SHELL } as const;

/** Runs `use` with a repository and contained programs, and ends what it started. */
const withContained = (use: (at: RepositoryWorkspace) => Promise<void>) =>
  withRepository({ "a.txt": "one\n" }, async (at) => {
    try {
      await use(at);
    } finally {
      await at.bench.processes.close();
    }
  }, { config: CONTAINED });

/** Runs `use` while a program of the workspace runs. */
async function whileProgramRuns({ bench, write }: RepositoryWorkspace, use: () => Promise<void>): Promise<void> {
  write("run.sh", "echo started; sleep 1000");
  const started = await bench.call("process_tool", { op: "start", command: "sh run.sh" });
  const { id } = started.result.data as { id: string };
  const said = async () => (await bench.call("process_tool", { op: "output", id })).result.output;
  await until(async () => (await said()).includes("started"));
  try {
    await use();
  } finally {
    await bench.call("process_tool", { op: "kill", id });
  }
}

/** Layouts in a folder of the workspace: the working tree does not lie on the way to its configuration. */
const LAYOUTS: Readonly<Record<string, (at: RepositoryWorkspace) => string>> = {
  "a linked working tree": ({ path, write }) => {
    write("x/main/a.txt", "one\n");
    initRepository(path("x/main"));
    git(path("x/main"), "worktree", "add", "-q", "-b", "side", "../tree");
    return "x/tree";
  },
  "a git folder elsewhere": ({ path, write }) => {
    write("x/tree/a.txt", "one\n");
    initRepository(path("x/tree"));
    renameSync(path("x/tree/.git"), path("x/store"));
    write("x/tree/.git", "gitdir: ../store\n");
    return "x/tree";
  },
  "a link to a git folder": ({ path, write }) => {
    write("x/tree/a.txt", "one\n");
    initRepository(path("x/tree"));
    renameSync(path("x/tree/.git"), path("x/store"));
    symlinkSync("../store", path("x/tree/.git"));
    return "x/tree";
  },
  "a submodule": ({ path, write }) => {
    write("../library/a.txt", "one\n");
    initRepository(path("..", "library"));
    write("x/super/b.txt", "b\n");
    initRepository(path("x/super"));
    const allow = ["-c", "protocol.file.allow=always"];
    git(path("x/super"), ...allow, "submodule", "--quiet", "add", path("..", "library"), "sub");
    for (const [key, value] of [["user.name", "Ada"], ["user.email", "ada@example.com"]] as const) {
      git(path("x/super/sub"), "config", key, value);
    }
    return "x/super/sub";
  },
  "a linked working tree of a bare repository": ({ path, write }) => {
    write("x/seed/a.txt", "one\n");
    initRepository(path("x/seed"));
    git(path("x"), "clone", "-q", "--bare", "seed", "bare.git");
    git(path("x/bare.git"), "worktree", "add", "-q", "../tree", "main");
    git(path("x/tree"), "config", "user.name", "Ada");
    git(path("x/tree"), "config", "user.email", "ada@example.com");
    return "x/tree";
  },
};

for (const [name, arrange] of someOf(Object.entries(LAYOUTS), 0)) {
  test(`${name} in a folder is written to, also while a program runs that was started after it`, () =>
    withContained(async (at) => {
      const folder = arrange(at);
      const { ok, path, write } = at;
      const work = async () => {
        write(`${folder}/a.txt`, "two\n");
        await ok({ op: "stash", path: folder });
        assert.equal(readFileSync(path(folder, "a.txt"), "utf8"), "one\n");
        await ok({ op: "stash", path: folder, rev: "stash@{0}" });
        await ok({ op: "checkout", path: folder, paths: ["a.txt"] });
        assert.equal(readFileSync(path(folder, "a.txt"), "utf8"), "one\n");
      };
      await work();
      await whileProgramRuns(at, work);
    }));
}

test("no command writes hooks into the bare repository of a working tree, or into what a .git link leads to", async (context) => {
  if (probe.kind !== "contained") return context.skip(probe.text);
  await withContained(async (at) => {
    LAYOUTS["a linked working tree of a bare repository"]?.(at);
    at.write("y/a.txt", "one\n");
    initRepository(at.path("y"));
    renameSync(at.path("y/.git"), at.path("store"));
    symlinkSync("../store", at.path("y/.git"));
    at.write("plant.sh", "for d in x/bare.git store; do echo x > $d/hooks/post-commit; done; true");
    await at.bench.call("shell", { command: "sh plant.sh" });
    for (const folder of ["x/bare.git", "store"]) {
      assert.ok(existsSync(at.path(folder)), folder);
      assert.equal(existsSync(at.path(folder, "hooks/post-commit")), false, folder);
    }
  });
});

test("what a command makes is moved to quarantine, but not the folders that it leads to", () =>
  withContained(async (at) => {
    const folders = "mkdir -p g m/.git; echo ref: refs/heads/main > g/HEAD; echo ../../src > m/.git/commondir";
    at.write("src/b.txt", "b\n");
    at.write("plant.sh", `${folders}; mkdir l; ln -s ../g l/.git`);
    const { result } = await at.bench.call("shell", { command: "sh plant.sh" });
    assert.match(result.output, /"m\/\.git" appeared/);
    assert.match(result.output, /"l\/\.git" appeared/);
    assert.deepEqual(["src/b.txt", "g/HEAD", "m/.git", "l/.git"].map((name) => existsSync(at.path(name))), [
      ...[true, true],
      ...[false, false],
    ]);
  }));

/** A branch of the remote that can be followed. */
function withTopic({ root }: RepositoryWorkspace): void {
  git(root, "remote", "add", "origin", "http://127.0.0.1:9/x");
  git(root, "update-ref", "refs/remotes/origin/topic", "HEAD");
}

test("the upstream is noted in a configuration that is a link, and where the last line ends in a backslash", () =>
  withContained(async (at) => {
    withTopic(at);
    const { root, ok, path } = at;
    renameSync(path(".git/config"), path("shared"));
    symlinkSync("../shared", path(".git/config"));
    appendFileSync(path("shared"), "\tprune = true\\");
    assert.equal(await ok({ op: "checkout", branch: "topic" }), "## topic...origin/topic\n?? shared");
    assert.equal(git(root, "config", "remote.origin.prune"), "true\n");
    assert.equal(git(root, "config", "branch.topic.merge"), "refs/heads/topic\n");
  }));

test("a branch that has an upstream keeps it, and gets no second one", () =>
  withContained(async (at) => {
    withTopic(at);
    const { root, ok, path } = at;
    appendFileSync(path(".git/config"), '[branch "topic"]\n\tremote = origin\n\tmerge = refs/heads/old\n');
    assert.match(await ok({ op: "checkout", branch: "topic" }), /^## topic\.\.\.origin\/old/);
    assert.equal(git(root, "config", "--get-all", "branch.topic.merge"), "refs/heads/old\n");
  }));

test("a configuration with lines for thousands of branches is taken", () =>
  withContained(async ({ ok, path }) => {
    const lines = Array.from({ length: 4000 }, (_, n) =>
      `[branch "topic/${n}"]\n\tremote = origin\n\tmerge = refs/heads/topic/${n}\n`);
    appendFileSync(path(".git/config"), lines.join(""));
    assert.equal(await ok({ op: "status" }), "## main");
  }));

const FORBIDDEN = { ...CONTAINED, autonomy: { level: "full", forbidden_paths: ["private"] } } as const;

/** Ways from a repository into one in a forbidden path. */
const WAYS: Readonly<Record<string, (at: RepositoryWorkspace) => void>> = {
  "a .git file": ({ write }) => write("w/.git", "gitdir: ../private/.git\n"),
  "a .git link": ({ path }) => {
    mkdirSync(path("w"));
    symlinkSync("../private/.git", path("w/.git"));
  },
  "a common folder": ({ write }) => {
    write("w/.git/HEAD", "ref: refs/heads/main\n");
    write("w/.git/commondir", "../../private/.git\n");
  },
  "an object store and a link among its refs": ({ path, write }) => {
    initRepository(path("w"));
    write("w/.git/objects/info/alternates", "../../../private/.git/objects\n");
    rmSync(path("w/.git/refs/heads/main"));
    symlinkSync("../../../../private/.git/refs/heads/main", path("w/.git/refs/heads/main"));
  },
};

for (const [name, arrange] of Object.entries(WAYS)) {
  test(`no repository shows what lies in a forbidden path by ${name}`, () =>
    withContained(async (at) => {
      at.write("private/p.txt", "forbidden content\n");
      initRepository(at.path("private"));
      arrange(at);
      at.bench.configure(FORBIDDEN);
      for (const input of [{ op: "show", rev: "HEAD:p.txt" }, { op: "show" }, { op: "log" }, { op: "stash" }]) {
        const output = await at.refused({ ...input, path: "w" });
        assert.match(output, /forbidden path/);
        assert.doesNotMatch(output, /forbidden content/);
      }
    }));
}

test("a sensitive file that the index takes for unchanged is not overwritten", () =>
  withContained(async ({ root, refused, ok, path, write }) => {
    write(".env", "TOKEN=committed\n");
    git(root, "add", "-f", ".env");
    git(root, "commit", "-qm", "with a file of credentials");
    git(root, "update-index", "--assume-unchanged", ".env");
    write(".env", "TOKEN=mine alone\n");
    write("a.txt", "two\n");
    for (const input of [{ op: "checkout", paths: [".env"] }, { op: "checkout", paths: ["."] }, { op: "stash" }]) {
      assert.match(await refused(input), /would overwrite "\.env"/);
      assert.equal(readFileSync(path(".env"), "utf8"), "TOKEN=mine alone\n");
    }
    await ok({ op: "checkout", paths: ["a.txt"] });
    writeFileSync(path(".env"), "TOKEN=committed\n");
  }));
