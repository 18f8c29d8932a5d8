import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import process from "node:process";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { git, gitTest as test, initRepository } from "../../support/git_fixture.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { GIT_ON, type RepositoryWorkspace, withRepository } from "./with_repository.ts";

const SECRET = "outside: this must never be read";
const OPERATIONS: readonly Readonly<Record<string, unknown>>[] = [
  ...["status", "diff", "log", "show", "branch", "stash", "push", "pull"].map((op) => ({ op })),
  { op: "add", paths: ["."] },
  { op: "commit", message: "x", paths: ["a.txt"] },
  { op: "checkout", rev: "HEAD" },
];

/** Changes that make a sound repository lead out of the workspace. */
const ESCAPES: Readonly<Record<string, (at: RepositoryWorkspace) => void>> = {
  "a .git file that names a folder outside": ({ path, outside, write }) => {
    renameSync(path(".git"), `${outside}/git`);
    write(".git", `gitdir: ${outside}/git\n`);
  },
  "a relative .git file": ({ path, outside, write }) => {
    renameSync(path(".git"), `${outside}/git`);
    write(".git", "gitdir: ../outside/git\n");
  },
  "a .git link": ({ path, outside }) => {
    renameSync(path(".git"), `${outside}/git`);
    symlinkSync("../outside/git", path(".git"));
  },
  "a common folder outside": ({ path, outside, write }) => {
    renameSync(path(".git"), `${outside}/git`);
    write(".git/commondir", "../../outside/git\n");
    write(".git/HEAD", "ref: refs/heads/main\n");
  },
  "an object store outside": ({ write, outside }) => {
    initRepository(`${outside}/other`);
    write(".git/objects/info/alternates", `# borrowed\n${outside}/other/.git/objects\n`);
  },
  "a quoted object store": ({ write, outside }) => {
    write(".git/objects/info/alternates", `"${outside.replace("outside", "\\157utside")}"\n`);
  },
  "an object store that borrows from outside": ({ write, path, outside }) => {
    initRepository(path("below"));
    mkdirSync(path("below/.git/objects/info"), { recursive: true });
    write("below/.git/objects/info/alternates", `${outside}\n`);
    write(".git/objects/info/alternates", "../../below/.git/objects\n");
  },
  "an object folder that is a link": ({ path, outside }) => symlinkSync(outside, path(".git/objects/zz")),
  "a log that is a link": ({ path, outside }) => {
    rmSync(path(".git/logs/HEAD"));
    symlinkSync(`${outside}/secret.txt`, path(".git/logs/HEAD"));
  },
  "a log that is a link to what is not there yet": ({ path, outside }) => {
    rmSync(path(".git/logs/HEAD"));
    symlinkSync(`${outside}/new.txt`, path(".git/logs/HEAD"));
  },
  "a log that is a hard link": ({ path, outside }) => {
    rmSync(path(".git/logs/HEAD"));
    linkSync(`${outside}/secret.txt`, path(".git/logs/HEAD"));
  },
  "a message file that is a link": ({ path, outside }) => {
    rmSync(path(".git/COMMIT_EDITMSG"));
    symlinkSync(`${outside}/secret.txt`, path(".git/COMMIT_EDITMSG"));
  },
  "a configuration that is a link": ({ path, outside }) => {
    renameSync(path(".git/config"), `${outside}/config`);
    symlinkSync(`${outside}/config`, path(".git/config"));
  },
  "core.worktree outside": ({ root, outside }) => git(root, "config", "core.worktree", outside),
};

for (const [name, escape] of Object.entries(ESCAPES)) {
  test(`every operation refuses ${name}`, () =>
    withRepository({ "a.txt": "one\n" }, async (at) => {
      at.bench.configure({ ...GIT_ON, shell: { sandbox: "off" } });
      at.write("a.txt", "two\n");
      escape(at);
      for (const input of OPERATIONS) assert.match(await at.refused(input), /^Cannot run git: .*(outside|elsewhere)/);
      assert.equal(readFileSync(`${at.outside}/secret.txt`, "utf8"), `${SECRET}\n`);
      assert.equal(existsSync(`${at.outside}/new.txt`), false);
    }));
}

test("a linked working tree and a git folder elsewhere in the workspace are fine", () =>
  withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused, path, write }) => {
    git(root, "worktree", "add", "-q", "-b", "side", "tree");
    assert.equal(await ok({ op: "status", path: "tree" }), "## side");
    write("tree/b.txt", "b\n");
    await ok({ op: "add", path: "tree", paths: ["b.txt"] });
    assert.match(await ok({ op: "commit", path: "tree", message: "in the tree" }), /^\[side /);
    renameSync(path(".git"), path("elsewhere"));
    write(".git", "gitdir: elsewhere\n");
    assert.match(await ok({ op: "status" }), /^## main/);
    write("tree/.git", "nothing of git's\n");
    assert.match(
      await refused({ op: "status", path: "tree" }),
      /^Cannot run git: "tree\/\.git" is a file that names no/,
    );
    git(root, "config", "core.worktree", "..");
    assert.match(await ok({ op: "status" }), /^## main/);
  }));

test("a submodule whose git folder lies in its parent's works, one that leads outside is refused", () =>
  withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused, path, write, outside }) => {
    initRepository(path("..", "library"));
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", path("..", "library"), "sub");
    assert.match(await ok({ op: "add", paths: ["."] }), /^A {2}sub$/m);
    await ok({ op: "commit", message: "with a submodule" });
    assert.equal(await ok({ op: "status", path: "sub" }), "## main...origin/main");
    write("sub/new.txt", "new\n");
    await ok({ op: "add", path: "sub", paths: ["new.txt"] });
    git(path("sub"), "config", "core.worktree", outside);
    for (const input of [{ op: "add", paths: ["a.txt"] }, { op: "stash" }, { op: "status", path: "sub" }]) {
      assert.match(await refused(input), /"core\.worktree": the files would lie elsewhere/);
    }
  }));

test("status looks into submodules and runs no program of theirs; one that leads outside is not looked into", () =>
  withRepository({ "a.txt": "one\n" }, async ({ root, ok, path, write, outside }) => {
    initRepository(path("..", "library"));
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", path("..", "library"), "sub");
    git(root, "commit", "-q", "-m", "with a submodule");
    const [ran, program] = [path("ran"), path("..", "run.sh")];
    writeFileSync(program, `#!/bin/sh\necho run >> ${ran}\nexit 1\n`, { mode: 0o755 });
    for (const key of ["core.fsmonitor", "filter.x.clean", "filter.x.process", "diff.x.textconv", "diff.external"]) {
      git(path("sub"), "config", key, program);
    }
    write("sub/.gitattributes", "* filter=x diff=x\n");
    write("sub/new.txt", "new\n");
    git(root, "config", "submodule.sub.ignore", "all");
    for (const sandbox of ["off", "auto"] as const) {
      const { call } = createToolBench({ root, config: { ...GIT_ON, shell: { sandbox } } });
      const { result } = await call("git_operations", { op: "status" });
      assert.equal(result.output, "## main\n ? sub");
      assert.equal(existsSync(ran), false);
    }
    git(root, "status", "--ignore-submodules=none");
    assert.equal(existsSync(ran), true, "git by itself runs one");
    rmSync(ran);
    git(path("sub"), "config", "core.worktree", outside);
    assert.match(
      await ok({ op: "status" }),
      /^## main\n\[Changes inside of submodules are not shown: .*core\.worktree/,
    );
    writeFileSync(path("sub/.git"), `gitdir: ${outside}\n`);
    assert.match(await ok({ op: "status" }), /\[Changes inside of submodules are not shown: .*outside the workspace/);
  }));

test("a password in the configuration of a repository is read by no file tool and no command", () =>
  withRepository({ "a.txt": "one\n" }, async ({ root, bench, ok }) => {
    git(root, "remote", "add", "origin", "https://me:hunter2hunter2@example.com/x.git");
    const outputs = [
      (await bench.call("read_file", ".git/config")).result.output,
      (await bench.call("read_file", ".GIT/./config")).result.output,
      (await bench.call("shell", "cat .git/config")).result.output,
      (await bench.call("content_search", { pattern: "hunter", path: "." })).result.output,
      await ok({ op: "branch" }),
    ];
    for (const output of outputs) assert.doesNotMatch(output, /hunter2/);
    assert.match(outputs[0] ?? "", /hold credentials/);
  }));

test("a folder that is a link out of the workspace, or lies above a repository, is none", () =>
  withRepository({ "a.txt": "one\n" }, async ({ refused, path, outside }) => {
    initRepository(outside);
    symlinkSync(outside, path("link"));
    assert.match(await refused({ op: "status", path: "link" }), /leads outside the workspace/);
    rmSync(path(".git"), { recursive: true });
    initRepository(path(".."));
    assert.match(await refused({ op: "status" }), /has a \.git$/);
  }));

test("no field is ever an option of git", () =>
  withRepository({ "a.txt": "one\n", "--upload-pack=x": "x\n" }, async ({ ok, refused, root, write, outside }) => {
    git(root, "remote", "add", "origin", "https://example.com/x.git");
    const options = [
      ...[
        "-",
        "--",
        "--upload-pack=touch x",
        "-x",
        "--output=../outside/o",
        "-O../outside/o",
        "--exec=id",
        "--no-index",
      ],
      ...[
        "--git-dir=../outside",
        "-c core.pager=id",
        "--help",
        "--end-of-options",
        "\0",
        "a\0b",
        "@{-1",
        ":/",
        "^HEAD",
      ],
    ];
    for (const text of options) {
      for (const field of ["rev", "branch", "remote"]) {
        const op = { rev: ["diff", "log", "show", "checkout", "stash"], branch: ["checkout", "push", "pull"] }[field] ??
          ["push", "pull"];
        for (const each of op) {
          const output = await refused({ op: each, [field]: text });
          assert.match(output, /^Cannot (call "git_operations"|show)/, `${each} ${field} ${text}`);
        }
      }
    }
    // As a name of a file it is one
    write("--upload-pack=x", "changed\n");
    assert.match(await ok({ op: "diff", paths: ["--upload-pack=x"] }), /\+changed$/);
    assert.equal(await ok({ op: "add", paths: ["--upload-pack=x"] }), "## main\nM  --upload-pack=x");
    await ok({ op: "commit", message: "--amend --author=x -F../outside/secret.txt" });
    assert.match(await ok({ op: "log", limit: 1 }), /Ada: --amend --author=x -F/);
    write("a.txt", "two\n");
    await ok({ op: "stash", message: "--all" });
    assert.match(await ok({ op: "log", rev: "stash" }), /--all$/);
    assert.equal(existsSync(`${outside}/o`), false);
  }));

test("paths stay inside the workspace and are taken letter by letter", () =>
  withRepository({ "a.txt": "one\n", "*.txt": "star\n", ":(top)x": "magic\n" }, async ({ ok, refused, write }) => {
    for (const path of ["../outside/secret.txt", "/etc/passwd", "a/../../outside", "a\0b", ""]) {
      for (const field of ["path", "paths"]) {
        const input = { op: "add", paths: ["a.txt"], [field]: field === "paths" ? [path] : path };
        assert.match(await refused(input), /^Cannot (run git (in|on)|call)/, `${field} ${path}`);
      }
    }
    assert.match(await refused({ op: "show", rev: "HEAD:../outside/secret.txt" }), /"\.\." is not allowed/);
    write("a.txt", "two\n");
    write("*.txt", "two\n");
    write(":(top)x", "two\n");
    for (const magic of [":", ":(top)", ":/", ":!a.txt", ":(glob)**", ":(exclude)x", ":^x", "[a].txt", "?.txt"]) {
      assert.match(await refused({ op: "add", paths: [magic] }), /did not match any files/, magic);
      assert.equal(await ok({ op: "diff", paths: [magic] }), "no differences", magic);
    }
    assert.equal(await ok({ op: "add", paths: ["*.txt", ":(top)x"] }), "## main\nM  *.txt\nM  :(top)x");
  }));

const ENV = "TOKEN=hunter2hunter2\n";

test("sensitive files are neither stored nor shown nor overwritten", () =>
  withRepository(
    { "a.txt": "one\n", ".env": ENV, "conf/Server.KEY": ENV },
    async ({ ok, refused, root, write, path }) => {
      const blob = git(root, "rev-parse", "HEAD:.env").trim();
      for (const rev of ["HEAD:.env", "HEAD:./.env", "main:conf/Server.KEY", "HEAD:.ENV"]) {
        assert.match(await refused({ op: "show", rev }), /sensitive/, rev);
      }
      // By its hash alone nobody knows its name
      assert.match(await refused({ op: "show", rev: blob }), /Cannot find the commit/);
      write(".env", "TOKEN=changed-hunter2\n");
      write("conf/Server.KEY", "changed-hunter2\n");
      write("a.txt", "two\n");
      const shown = [
        await ok({ op: "show" }),
        await ok({ op: "diff" }),
        await ok({ op: "diff", rev: "HEAD" }),
        await ok({ op: "diff", paths: [".env"] }),
        await ok({ op: "diff", paths: ["conf"] }),
      ];
      for (const output of shown) {
        assert.doesNotMatch(output, /hunter2/);
        assert.match(output, /\[Left out, sensitive, forbidden or of several names: .*"/);
      }
      assert.match(
        shown[1] ?? "",
        /\+two\n\[Left out, sensitive, forbidden or of several names: "\.env", "conf\/Server\.KEY"\]$/,
      );
      for (const paths of [[".env"], ["."], ["conf"], ["a.txt", ".env"]]) {
        assert.match(await refused({ op: "add", paths }), /would store .*allow_sensitive_file_reads = true/);
        assert.match(await refused({ op: "commit", message: "x", paths }), /would store/);
      }
      assert.match(await refused({ op: "stash" }), /would store/);
      assert.match(
        await refused({ op: "checkout", paths: ["."] }),
        /would overwrite .*allow_sensitive_file_writes = true/,
      );
      await ok({ op: "checkout", paths: ["a.txt"] });
      git(root, "commit", "-qam", "changes the key");
      assert.match(await refused({ op: "checkout", rev: "HEAD~1" }), /would overwrite/);
      assert.match(await refused({ op: "checkout", branch: "old", rev: "HEAD~1" }), /would overwrite/);
      assert.match(readFileSync(path(".env"), "utf8"), /changed/);
    },
  ));

test("a file with another name outside is neither stored nor shown", () =>
  withRepository({ "a.txt": "one\n" }, async ({ ok, refused, path, outside }) => {
    rmSync(path("a.txt"));
    linkSync(`${outside}/secret.txt`, path("a.txt"));
    linkSync(`${outside}/secret.txt`, path("b.txt"));
    for (const paths of [["a.txt"], ["b.txt"], ["."]]) assert.match(await refused({ op: "add", paths }), /hard link/);
    assert.match(await refused({ op: "commit", message: "x", paths: ["a.txt"] }), /hard link/);
    assert.match(await refused({ op: "stash" }), /hard link/);
    for (const input of [{ op: "diff" }, { op: "diff", rev: "HEAD" }]) {
      const output = await ok(input);
      assert.match(output, /^\[Left out, .*"a\.txt"\]$/);
      assert.doesNotMatch(output, /outside/);
    }
  }));

test("a repository inside a folder of credentials is one of credentials", () =>
  withRepository({ ".aws/config": ENV }, async ({ ok, refused, path }) => {
    initRepository(path(".aws"));
    assert.match(await refused({ op: "show", path: ".aws", rev: "HEAD:config" }), /sensitive/);
    assert.doesNotMatch(await ok({ op: "show", path: ".aws" }), /hunter2/);
  }));

test("new sensitive files are not swept in, forbidden paths neither; .gitignore is the way out", () =>
  withRepository({ "a.txt": "one\n" }, async ({ ok, refused, write, bench }) => {
    write("deep/.env.local", ENV);
    assert.match(await refused({ op: "add", paths: ["."] }), /"deep\/\.env\.local".*\.gitignore/);
    write(".gitignore", ".env*\n");
    assert.equal(await ok({ op: "add", paths: ["."] }), "## main\nA  .gitignore");
    bench.configure({ ...GIT_ON, autonomy: { level: "full", forbidden_paths: ["private"] } });
    write("private/x.txt", "x\n");
    assert.match(await refused({ op: "add", paths: ["private/x.txt"] }), /forbidden path/);
    assert.match(await refused({ op: "add", paths: ["."] }), /would store "private\/x\.txt", in the forbidden path/);
    assert.match(await refused({ op: "show", rev: "HEAD:private/x.txt" }), /forbidden path/);
  }));

test("what the configuration opens is open", () =>
  withRepository({ ".env": ENV }, async ({ ok, write, bench }) => {
    const autonomy = { level: "full", allow_sensitive_file_reads: true, allow_sensitive_file_writes: true } as const;
    bench.configure({ ...GIT_ON, autonomy });
    assert.match(await ok({ op: "show", rev: "HEAD:.env" }), /hunter2/);
    write(".env", "TOKEN=new\n");
    assert.match(await ok({ op: "diff" }), /\+TOKEN=new/);
    await ok({ op: "stash" });
    await ok({ op: "stash", rev: "stash@{0}" });
    await ok({ op: "add", paths: ["."] });
    await ok({ op: "commit", message: "x" });
    await ok({ op: "checkout", rev: "HEAD~1" });
  }));

test("a stash that holds a sensitive file does not come back over it", () =>
  withRepository({ ".env": ENV }, async ({ refused, root, write, path }) => {
    write(".env", "TOKEN=stashed\n");
    git(root, "stash");
    assert.match(await refused({ op: "stash", rev: "stash@{0}" }), /would overwrite "\.env"/);
    assert.equal(readFileSync(path(".env"), "utf8"), ENV);
  }));

test("variables of the gateway reach no git", (context) => {
  if ("Deno" in globalThis) {
    return Promise.resolve(context.skip("other test files have the same environment, and run at the same time"));
  }
  return withRepository({ "a.txt": "one\n" }, async ({ ok, outside, bench }) => {
    const variables = {
      GIT_DIR: outside,
      GIT_WORK_TREE: outside,
      GIT_TRACE: `${outside}/trace`,
      GIT_EXTERNAL_DIFF: `touch ${outside}/diff`,
      GIT_CONFIG_COUNT: "1",
      GIT_CONFIG_KEY_0: "core.fsmonitor",
      GIT_CONFIG_VALUE_0: `touch ${outside}/fsmonitor`,
      GIT_CONFIG_PARAMETERS: `'core.fsmonitor=touch ${outside}/fsmonitor'`,
      GIT_EXEC_PATH: outside,
      GIT_SSL_NO_VERIFY: "1",
    };
    Object.assign(process.env, variables);
    try {
      for (const sandbox of ["off", "auto"] as const) {
        bench.configure({ ...GIT_ON, shell: { sandbox } });
        assert.equal(await ok({ op: "status" }), "## main");
        assert.equal(await ok({ op: "diff" }), "no differences");
      }
    } finally {
      for (const name of Object.keys(variables)) delete process.env[name];
    }
    for (const name of ["trace", "diff", "fsmonitor"]) assert.equal(existsSync(`${outside}/${name}`), false);
  });
});

test("a key that is not UTF-8 is refused: it could not be overridden by its name", () =>
  withRepository({ "a.txt": "one\n" }, async ({ refused, path, outside }) => {
    const key = Buffer.concat([
      Buffer.from('[filter "'),
      new Uint8Array([0xff]),
      Buffer.from(`"]\nclean = touch ${outside}/x\n`),
    ]);
    appendFileSync(path(".git/config"), key);
    writeFileSync(path(".gitattributes"), Buffer.concat([Buffer.from("* filter="), new Uint8Array([0xff, 10])]));
    for (const input of OPERATIONS) assert.match(await refused(input), /not valid UTF-8/);
    assert.equal(existsSync(`${outside}/x`), false);
  }));

test("a configuration of thousands of keys, or a broken one, is an error that says so", () =>
  withRepository({}, async ({ refused, path }) => {
    const config = readFileSync(path(".git/config"));
    const keys = Array.from({ length: 300 }, (_, index) => `[filter "f${index}"]\nrequired = true\n`);
    appendFileSync(path(".git/config"), keys.join(""));
    assert.match(await refused({ op: "status" }), /more than 256 keys/);
    writeFileSync(path(".git/config"), config);
    appendFileSync(path(".git/config"), "[core\n");
    assert.match(await refused({ op: "status" }), /bad config line/);
    writeFileSync(path(".git/config"), config);
    appendFileSync(path(".git/config"), `[user]\nx = ${"y".repeat(2_000_000)}\n`);
    assert.match(await refused({ op: "status" }), /configuration is too large/);
  }));

test("a call that hangs ends with its signal, and leaves nothing running", () =>
  withRepository({ "a.txt": "one\n" }, async ({ bench, path }) => {
    rmSync(path(".git/config"));
    execFileSync("mkfifo", [path(".git/config")]);
    for (const sandbox of ["off", "auto"] as const) {
      bench.configure({ ...GIT_ON, shell: { sandbox } });
      const controller = new AbortController();
      const hanging = bench.call("git_operations", { op: "status" }, { signal: controller.signal });
      systemClock.after(200, () => controller.abort(new CancelError("client_gone")));
      await assert.rejects(hanging, CancelError);
    }
    await bench.processes.close();
  }));
