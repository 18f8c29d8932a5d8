import assert from "node:assert/strict";
import { appendFileSync, chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { createToolBench } from "../../support/tool_bench.ts";
import { type FileTree, readTree, writeTree } from "../../support/file_tree.ts";
import { git, gitTest as test, initRepository } from "../../support/git_fixture.ts";
import { withGitServer } from "./git_server.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

/** A repository's configuration that runs a program, or leads elsewhere, when git obeys it. */
interface Hostile {
  readonly name: string;
  /** Lines of `.git/config`; `run` is a command that leaves a marker */
  readonly config: (run: string, workspace: Workspace) => string;
  /** `.gitattributes` */
  readonly attributes?: string;
  /** Operations that are refused, naming the key. Default: all work */
  readonly refuses?: readonly string[];
  readonly arrange?: (workspace: Workspace, run: string) => void;
}

const CONTENT = ["add", "commit", "stash", "checkout", "pull"];
const NETWORK = ["pull", "push"];
const ALL = ["status", "diff", "log", "show", "branch", ...CONTENT, "push"];

const HOSTILE: readonly Hostile[] = [
  {
    name: "filter.clean and smudge",
    refuses: CONTENT,
    config: (run) => `[filter "x"]\nclean = ${run}; cat\nsmudge = ${run}; cat\nrequired = true`,
    attributes: "* filter=x",
  },
  {
    name: "filters with an equals sign, a dot, blanks and upper case in their names",
    refuses: CONTENT,
    config: (run) =>
      ["a=b", "a=b.c", "X", "é", ""].map((name) => `[FILTER "${name}"]\nCLEAN = ${run}; cat\nsmudge = ${run}; cat`)
        .join(
          "\n",
        ),
    attributes: "a.txt filter=a=b\nb.txt filter=a=b.c\nc.txt filter=X\n*.sh filter=é\n*.md filter=",
  },
  {
    name: "filter.process",
    refuses: CONTENT,
    config: (run) => `[filter "x"]\nprocess = ${run}`,
    attributes: "* filter=x",
  },
  { name: "diff.command", config: (run) => `[diff "x"]\ncommand = ${run}`, attributes: "* diff=x" },
  { name: "diff.external", config: (run) => `[diff]\nexternal = ${run}` },
  {
    name: "diff.textconv",
    config: (run) => `[diff "x"]\ntextconv = ${run}; cat\ncachetextconv = true`,
    attributes: "* diff=x",
  },
  {
    name: "merge.default",
    refuses: ["stash", "pull"],
    config: (run) => `[merge]\ndefault = x\n[merge "x"]\ndriver = ${run}`,
  },
  { name: "core.fsmonitor", config: (run) => `[core]\nfsmonitor = ${run}` },
  {
    name: "core.pager",
    config: (run) => `[core]\npager = ${run}\n[pager]\nlog = ${run}\ndiff = ${run}\nshow = ${run}`,
  },
  { name: "core.editor", config: (run) => `[core]\neditor = ${run}\n[sequence]\neditor = ${run}` },
  { name: "commit.verbose with a template", config: (run) => `[commit]\nverbose = true\ntemplate = ${run}` },
  { name: "core.sshCommand", config: (run) => `[core]\nsshCommand = ${run}` },
  { name: "core.gitProxy", config: (run) => `[core]\ngitProxy = ${run}` },
  { name: "core.askPass", config: (run) => `[core]\naskPass = ${run}` },
  { name: "core.alternateRefsCommand", config: (run) => `[core]\nalternateRefsCommand = ${run}` },
  {
    name: "gpg.program with signing and verifying",
    config: (run) =>
      `[gpg]\nprogram = ${run}\n[gpg "ssh"]\nprogram = ${run}\ndefaultKeyCommand = ${run}\n[commit]\ngpgSign = true\n` +
      `[tag]\ngpgSign = true\n[push]\ngpgSign = true\n[log]\nshowSignature = true\n[merge]\nverifySignatures = true`,
  },
  { name: "gpg.ssh", config: (run) => `[gpg]\nformat = ssh\n[gpg "ssh"]\nprogram = ${run}\n[commit]\ngpgSign = true` },
  { name: "credential.helper", config: (run) => `[credential]\nhelper = "!${run}"` },
  { name: "credential.helper of an address", config: (run, w) => `[credential "${w.root}"]\nhelper = "!${run}"` },
  {
    name: "uploadpack and receivepack",
    refuses: NETWORK,
    config: (run) => `[remote "origin"]\nuploadpack = ${run}\nreceivepack = ${run}\nvcs = ext`,
  },
  { name: "uploadpack.packObjectsHook", config: (run) => `[uploadpack]\npackObjectsHook = ${run}` },
  {
    name: "url.pushInsteadOf",
    refuses: NETWORK,
    config: (run) => `[url "ext::sh -c '${run}' "]\npushInsteadOf = http\n[protocol "ext"]\nallow = always`,
  },
  { name: "include.path", refuses: ALL, config: () => "[include]\npath = ../evil.config", arrange: evilConfig },
  {
    name: "includeIf onbranch",
    refuses: ALL,
    config: () => '[includeIf "onbranch:**"]\npath = ../evil.config',
    arrange: evilConfig,
  },
  {
    name: "alias",
    config: (run) =>
      `[alias]\n${["status", "st", "diff", "log", "commit", "add"].map((name) => `${name} = "!${run}"`).join("\n")}`,
  },
  {
    name: "extensions.worktreeConfig",
    refuses: CONTENT,
    config: () => "[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true",
    arrange: (workspace, run) =>
      writeFileSync(
        workspace.path(".git/config.worktree"),
        `[core]\nfsmonitor = ${run}\n[filter "x"]\nclean = ${run}; cat`,
      ),
    attributes: "* filter=x",
  },
  {
    name: "a promisor remote",
    refuses: ALL,
    config: (run) =>
      `[core]\nrepositoryformatversion = 1\n[extensions]\npartialClone = evil\n[remote "evil"]\nurl = ext::sh -c '${run}'\n` +
      `promisor = true\n[protocol "ext"]\nallow = always`,
  },
  {
    name: "interactive, mergetool, difftool, web",
    config: (run) =>
      `[interactive]\ndiffFilter = ${run}\n[diff]\ntool = x\n[difftool "x"]\ncmd = ${run}\n[mergetool "x"]\ncmd = ${run}\n` +
      `[web]\nbrowser = x\n[browser "x"]\ncmd = ${run}\n[man "x"]\ncmd = ${run}\n[trailer "x"]\ncommand = ${run}\ncmd = ${run}`,
  },
  {
    name: "http.proxy",
    refuses: NETWORK,
    config: () => "[http]\nproxy = http://127.0.0.1:9\nsslVerify = false\nextraHeader = X: y",
  },
  { name: "submodule.update", config: (run) => `[submodule "x"]\nupdate = "!${run}"\nfetchRecurseSubmodules = true` },
  {
    name: ".gitmodules that updates by a command",
    refuses: [],
    config: () => "",
    arrange: (workspace, run) => submodule(workspace, "sub", `update = !${run}`),
  },
  {
    name: "a checked-out submodule with filters of its own",
    refuses: CONTENT,
    config: () => "",
    arrange: (workspace, run) => {
      submodule(workspace, "sub");
      const filter = `[filter "x"]\nclean = ${run}; cat\nsmudge = ${run}; cat\n`;
      appendFileSync(workspace.path("sub/.git/config"), filter);
      workspace.write("sub/.gitattributes", "* filter=x\n");
      workspace.write("sub/file.txt", "changed\n");
    },
  },
  {
    name: "checked-out submodules with programs of their own",
    config: () =>
      "[submodule]\nrecurse = true\n[status]\nsubmoduleSummary = true\n[diff]\nsubmodule = diff\nignoreSubmodules = none",
    arrange: (workspace, run) => {
      for (const name of ["sub", "sub/below"]) submodule(workspace, name);
      for (const name of ["sub", "sub/below"]) {
        const programs = `[core]\nfsmonitor = ${run}\nhooksPath = ${
          join(run, "..")
        }\n[diff "x"]\ntextconv = ${run}\ncommand = ${run}\n`;
        appendFileSync(workspace.path(name, ".git/config"), programs);
        workspace.write(`${name}/.gitattributes`, "* diff=x\n");
        workspace.write(`${name}/file.txt`, "changed\n");
      }
    },
  },
  {
    name: "an embedded repository that is no submodule",
    config: () => "",
    arrange: (workspace, run) => {
      initRepository(workspace.path("embedded"));
      appendFileSync(workspace.path("embedded/.git/config"), `[core]\nfsmonitor = ${run}\n`);
      workspace.write("embedded/file.txt", "changed\n");
    },
  },
  // Last: the test itself commits in what stands before
  { name: "core.hooksPath", config: () => "[core]\nhooksPath = hooks-of-mine", arrange: hooksIn("hooks-of-mine") },
  { name: "hooks in .git", config: () => "", arrange: hooksIn(".git/hooks") },
];

const CALLS: readonly (Readonly<Record<string, unknown>> & { readonly op: string })[] = [
  { op: "status" },
  { op: "diff" },
  { op: "diff", staged: true },
  { op: "diff", rev: "HEAD" },
  { op: "diff", rev: "HEAD~1..HEAD" },
  { op: "log" },
  { op: "log", rev: "stash" },
  { op: "show" },
  { op: "show", rev: "HEAD:a.txt" },
  { op: "branch" },
  { op: "add", paths: ["."] },
  { op: "commit", message: "more" },
  { op: "commit", message: "rest", paths: ["a.txt"] },
  { op: "stash", message: "later" },
  { op: "stash", rev: "stash@{0}" },
  { op: "checkout", paths: ["a.txt"] },
  { op: "checkout", paths: ["b.txt"], staged: true },
  { op: "checkout", branch: "side" },
  { op: "checkout", branch: "fresh", rev: "HEAD" },
  { op: "checkout", branch: "main" },
  { op: "pull" },
  { op: "push" },
];

/** The first call of each operation. */
const ONE_OF_EACH = CALLS.filter(({ op }, at) => CALLS.findIndex((call) => call.op === op) === at);

/** Naming the key, or what is for git itself to say. */
const REFUSED = /^Cannot run git: the repository's configuration \(.+\) has the key "[^"]+"/;
const GIT_SAYS =
  /nothing to commit|no changes added|the repository has none|fetch first|non-fast-forward|invalid value for 'submodule|local changes .* would be overwritten by (merge|checkout)/;

test("a harmless repository: every operation works", () =>
  withHostile([], async ({ workspace, call }) => {
    for (const input of CALLS) {
      const { isError, output } = await call(input);
      assert.equal(isError, false, `${JSON.stringify(input)}: ${output}`);
      change(workspace, input);
    }
    assert.equal(git(workspace.root, "rev-parse", "HEAD"), git(workspace.root, "rev-parse", "origin/main"));
  }));

const overridden = HOSTILE.filter(({ refuses }) => refuses === undefined);

for (const sandbox of ["off", "auto"] as const) {
  test(`every operation works and runs nothing of a repository that tries everything (sandbox ${sandbox})`, () =>
    withHostile(overridden, async ({ workspace, call }) => {
      for (const input of CALLS) {
        const { isError, output } = await call(input);
        assert.equal(isError, false, `${JSON.stringify(input)}: ${output}`);
        change(workspace, input);
      }
    }, sandbox));
}

for (const hostile of HOSTILE.filter(({ refuses }) => refuses !== undefined)) {
  test(`every operation names the key or works in a repository with ${hostile.name}, and runs nothing`, () =>
    withHostile([hostile], async ({ workspace, call }) => {
      const refused = new Set<string>();
      for (const input of ONE_OF_EACH) {
        const { isError, output } = await call(input);
        if (REFUSED.test(output)) refused.add(input.op);
        else if (isError) assert.match(output, GIT_SAYS, `${JSON.stringify(input)}: ${output}`);
        change(workspace, input);
      }
      assert.deepEqual([...refused], [...hostile.refuses ?? []]);
    }));
}

let changes = 0;

/** So that there is something to commit, and to put away, for the next call. */
function change(workspace: Workspace, { op }: { readonly op: string }): void {
  if (op === "add" || op === "commit") workspace.write("a.txt", `${op} ${++changes}\n`);
}

test("the canary sings: plain git runs the programs of such repositories", async () => {
  const sings = [
    "filter.clean and smudge",
    "diff.external",
    "core.fsmonitor",
    "hooks in .git",
    "alias",
    "include.path",
    "checked-out submodules with programs of their own",
  ];
  for (const hostile of HOSTILE.filter(({ name }) => sings.includes(name))) {
    await withHostile([hostile], ({ workspace, ran }) => {
      for (const args of [["diff"], ["add", "a.txt"], ["commit", "-qm", "x"], ["st"]]) {
        try {
          git(workspace.root, ...args);
        } catch {
          // A program that is no filter is a bad one
        }
      }
      assert.ok(ran().length > 0, hostile.name);
      return Promise.resolve();
    });
  }
});

interface Arranged {
  readonly workspace: Workspace;
  /** Names of what was run */
  readonly ran: () => readonly string[];
  /** Fails the test when something was run */
  readonly call: (input: unknown) => Promise<{ readonly isError: boolean; readonly output: string }>;
}

/** A repository with history, changes, a stash, a second branch and a remote that is ahead; then the hostile parts. */
async function withHostile(
  hostiles: readonly Hostile[],
  use: (at: Arranged) => Promise<void>,
  sandbox: "off" | "auto" = "off",
): Promise<void> {
  const { local, remote } = await history();
  await withWorkspace({}, (workspace) =>
    withGitServer(async (server) => {
      const { root, write } = workspace;
      writeTree(root, local);
      git(root, "remote", "add", "origin", server.url);
      const attributes = hostiles.flatMap((hostile) => hostile.attributes ?? []);
      const runs = hostiles.map(({ name }, index) => {
        const script = workspace.path("..", `run-${index}.sh`);
        // Inside a sandbox the marker can be left in the workspace alone
        const marker = `ran ${name.replaceAll("/", " ")}`;
        writeFileSync(
          script,
          `#!/bin/sh\ntouch '${join(workspace.outside, marker)}' '${workspace.path(marker)}'\nexit 0\n`,
        );
        chmodSync(script, 0o755);
        return script;
      });
      for (const [index, hostile] of hostiles.entries()) hostile.arrange?.(workspace, runs[index] ?? "");
      write(".gitattributes", `${attributes.join("\n")}\n`);
      for (const [index, { config }] of hostiles.entries()) {
        appendFileSync(workspace.path(".git/config"), `\n${config(runs[index] ?? "", workspace)}\n`);
      }
      write("a.txt", "two\n");
      write("c.txt", "c\n");
      const bench = createToolBench({
        root,
        config: {
          autonomy: { level: "full" },
          enable_git: true,
          shell: { sandbox },
          url_access: { allow_loopback: true },
        },
      });
      const ran = () =>
        [root, workspace.outside].flatMap((folder) => readdirSync(folder)).filter((name) => name.startsWith("ran "));
      await use({
        workspace,
        ran,
        call: async (input) => {
          const { result } = await bench.call("git_operations", input);
          assert.deepEqual(ran(), [], `${JSON.stringify(input)}: ${result.output}`);
          return result;
        },
      });
    }, { repository: remote }));
}

interface History {
  readonly local: FileTree;
  readonly remote: FileTree;
}

let made: Promise<History> | undefined;

/** Both repositories before anything hostile is in them: made once, and copied for each test. */
function history(): Promise<History> {
  made ??= new Promise((resolve, reject) => {
    withWorkspace({ "a.txt": "one\n", "b.txt": "b\n" }, ({ root, write }) =>
      withGitServer((server) => {
        initRepository(root);
        server.push(root);
        server.commit({ "remote.txt": "from afar\n" });
        git(root, "branch", "side");
        write("b.txt", "b2\n");
        git(root, "commit", "-qam", "second");
        write("b.txt", "b3\n");
        git(root, "stash");
        return Promise.resolve(resolve({ local: readTree(root), remote: readTree(server.folder) }));
      })).catch(reject);
  });
  return made;
}

function hooksIn(folder: string) {
  return (workspace: Workspace, run: string) => {
    const names = ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout", "post-merge"]
      .concat(["pre-push", "pre-merge-commit", "reference-transaction", "post-index-change", "fsmonitor-watchman"])
      .concat(["pre-auto-gc", "post-rewrite", "proc-receive", "push-to-checkout", "applypatch-msg"]);
    mkdirSync(workspace.path(folder), { recursive: true });
    for (const name of names) {
      const path = workspace.path(folder, name);
      writeFileSync(path, `#!/bin/sh\n${run}\n`);
      chmodSync(path, 0o755);
    }
  };
}

function evilConfig(workspace: Workspace, run: string): void {
  workspace.write("evil.config", `[core]\nfsmonitor = ${run}\n`);
}

/** A repository below the workspace that its parent has as a submodule, checked out. */
function submodule(workspace: Workspace, name: string, more = ""): void {
  const parent = workspace.path(dirname(name));
  const base = basename(name);
  workspace.write(`${name}/file.txt`, "sub\n");
  initRepository(workspace.path(name));
  const modules = `[submodule "${base}"]\npath = ${base}\nurl = ./${base}\nignore = none\n${more}\n`;
  writeFileSync(join(parent, ".gitmodules"), modules);
  git(parent, "add", ".gitmodules", base);
  git(parent, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "with a submodule", "--", ".gitmodules", base);
  assert.ok(existsSync(workspace.path(name, ".git/config")));
}
