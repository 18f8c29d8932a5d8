import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  DEV_SERVER_CONFIG,
  type Exchange,
  type Exchanger,
  NO_EXCHANGER,
  type Report,
  startDevServer,
  withExchanger,
} from "../../support/exchanger.ts";
import { git, gitTest, initRepository } from "../../support/git_fixture.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import { type GitServer, withGitServer } from "./git_server.ts";

/** Word that a program of the repository writes, into the result or a file */
const RAN = "evil-ran";
const CONFIG: ConfigChanges = {
  ...DEV_SERVER_CONFIG,
  autonomy: { level: "full" },
  enable_git: true,
  url_access: { allow_loopback: true },
};

/** Lines of a configuration that run a program. @param run its absolute path */
const hostileLines = (run: string) =>
  [
    `[core]\nfsmonitor = ${run}\nhooksPath = hooks\npager = ${run}\nsshCommand = ${run}`,
    `[filter "x"]\nclean = ${run}; cat\nsmudge = ${run}; cat\nprocess =\n[filter "y"]\nprocess = ${run}`,
    `[diff "x"]\ntextconv = ${run}; cat\n[diff]\nexternal = ${run}\n[diff "y"]\ncommand = ${run}`,
    `[merge]\ndefault = x\n[merge "x"]\ndriver = ${run}`,
    `[credential]\nhelper = "!${run}"\n[alias]\ndiff = "!${run}"`,
  ].join("\n");

/** Script of the dev server */
const MAKE_REPOSITORIES = ["sub/.git", "dev/git"].flatMap((folder) => [
  `mv ${folder.split("/")[0]}/repository ${folder}`,
  ...["config", "HEAD"].map((part) => `mv ${folder}/its-${part} ${folder}/${part}`),
]).join(" && ");

interface Arranged {
  readonly workspace: Workspace;
  readonly bench: ToolBench;
  readonly server: GitServer;
}

/** Operations, and what must be there for them to be interesting. */
const CALLS: readonly Readonly<Record<string, unknown>>[] = [
  { op: "diff" },
  { op: "status" },
  { op: "add", paths: ["a.txt", "b.txt"] },
  { op: "commit", message: "m", paths: ["a.txt"] },
  { op: "stash" },
  { op: "checkout", paths: ["a.txt"] },
  { op: "pull" },
];

/** Things that are exchanged: the configuration, or all of the repository. */
const CONFIGURATION = { target: "sub/.git/config", other: "dev/hostile" } as const;
const REPOSITORY = { target: "sub/.git", other: "dev/git" } as const;

const FEW = CALLS.filter(({ op }) => op === "diff" || op === "add" || op === "pull");
/** `stray`: a process that nothing contains; without a sandbox nothing holds it off. `contained`: the dev server, which may only exchange what it has made itself */
const ATTACKS = [
  ...CALLS.map((input) => ({ input, attacker: "stray", sandbox: "auto", ...CONFIGURATION }) as const),
  ...FEW.map((input) => ({ input, attacker: "contained", sandbox: "off", ...CONFIGURATION }) as const),
  ...FEW.map((input) => ({ input, attacker: "contained", sandbox: "off", ...REPOSITORY }) as const),
  ...FEW.map((input) => ({ input, attacker: "contained", sandbox: "auto", ...CONFIGURATION }) as const),
];

for (const attack of ATTACKS) {
  const { input: { op }, attacker, sandbox, target } = attack;
  const name =
    `git ${op} (sandbox ${sandbox}) runs no program of a repository whose ${target} a ${attacker} attacker exchanges`;
  gitTest(name, (context) => {
    if (NO_EXCHANGER !== false) return Promise.resolve(context.skip(NO_EXCHANGER));
    return withArranged(async (at) => {
      const { seen, isRefused } = await callWhile(at, { ...attack, nth: 0 });
      // The repository came while the dev server ran
      if (isRefused && attacker === "contained") return;
      assert.ok(!isRefused && seen.length > 0, `${seen}`);
      let struck = 0;
      for (let nth = 1; nth <= seen.length; nth++) struck += (await callWhile(at, { ...attack, nth })).struck;
      assert.ok(struck > seen.length / 3, `${struck} of ${seen.length}`);
    });
  });
}

async function withArranged(use: (at: Arranged) => Promise<void>): Promise<void> {
  await withWorkspace({}, (workspace) =>
    withGitServer(async (server) => {
      const bench = createToolBench({ root: workspace.root, config: CONFIG });
      const { path, write } = workspace;
      for (const name of ["a.txt", "b.txt"]) write(`template/${name}`, "one\n");
      write("template/.gitattributes", "a.txt filter=x diff=x merge=x\nb.txt filter=y diff=y\n");
      initRepository(path("template"));
      server.push(path("template"));
      git(path("template"), "remote", "add", "origin", server.url);
      for (const [key, value] of [["remote", "origin"], ["merge", "refs/heads/main"]] as const) {
        git(path("template"), "config", `branch.main.${key}`, value);
      }
      server.commit({ "a.txt": "theirs\n" });
      mkdirSync(join(workspace.outside, "template"));
      cpSync(path("template"), join(workspace.outside, "template"), { recursive: true });
      rmSync(path("template"), { recursive: true });
      try {
        await use({ workspace, bench, server });
      } finally {
        await bench.processes.close();
      }
    }));
}

/** Calls git while the dev server exchanges its configuration at the n-th opening. */
async function callWhile({ workspace, bench }: Arranged, { input, attacker, sandbox, nth, target, other }: {
  readonly input: Readonly<Record<string, unknown>>;
  readonly attacker: "stray" | "contained";
  readonly sandbox: "off" | "auto";
  readonly nth: number;
  readonly target: string;
  readonly other: string;
}): Promise<Report & { readonly isRefused: boolean }> {
  const { path, write, outside } = workspace;
  for (const name of ["sub", "dev"]) rmSync(path(name), { recursive: true, force: true });
  cpSync(join(outside, "template"), path("sub"), { recursive: true });
  renameSync(path("sub/.git"), path("sub/repository"));
  const run = path("run.sh");
  writeFileSync(run, `#!/bin/sh\necho ${RAN}\ntouch '${join(outside, "ran")}' '${path("ran")}'\nexit 0\n`);
  chmodSync(run, 0o755);
  // As the dev server of the project makes it: what is there when it starts, it cannot exchange
  cpSync(path("sub/repository"), path("dev/repository"), { recursive: true });
  writeFileSync(path("dev/repository/config"), `${hostileLines(run)}\n`, { flag: "a" });
  cpSync(path("dev/repository/config"), path("dev/hostile"));
  // No sandbox knows it for a repository yet
  for (const name of ["sub", "dev"]) {
    for (const part of ["config", "HEAD"]) {
      renameSync(path(`${name}/repository/${part}`), path(`${name}/repository/its-${part}`));
    }
  }
  for (const hook of ["pre-commit", "post-merge", "post-checkout", "post-index-change"]) {
    for (const name of ["sub", "dev"]) cpSync(run, path(`${name}/repository/hooks/${hook}`));
  }
  if (input["op"] !== "pull") { for (const name of ["a.txt", "b.txt"]) write(`sub/${name}`, "two\n"); }
  bench.configure({ ...CONFIG, shell: { sandbox: "auto" } });
  const exchange: Exchange = {
    at: { on: "open", nth },
    ...{ watched: path("sub/.git/config"), target: path(target), by: "exchange", other: path(other) },
  };
  const call = async (exchanger: Exchanger) => {
    bench.configure({ ...CONFIG, shell: { sandbox } });
    const { result } = await bench.call("git_operations", { ...input, path: "sub" });
    const what = `at opening ${nth}: ${result.output}`;
    const isRefused = result.output.startsWith("Cannot run git");
    if (nth === 0) assert.equal(result.isError, isRefused, what);
    // Git quotes four characters of the output of a filter
    assert.ok(!result.output.includes(RAN.slice(0, 4)), what);
    assert.deepEqual([existsSync(join(outside, "ran")), existsSync(path("ran"))], [false, false], what);
    return { ...await exchanger.report(), isRefused };
  };
  try {
    if (attacker === "stray") {
      execFileSync("sh", ["-c", MAKE_REPOSITORIES], { cwd: workspace.root });
      return await withExchanger(exchange, path("../bell"), call);
    }
    const server = await startDevServer({ bench, workspace }, exchange, MAKE_REPOSITORIES);
    return await call(server).finally(() => server.end());
  } finally {
    for (const ran of [join(outside, "ran"), path("ran")]) rmSync(ran, { force: true });
    rmSync(path("../quarantine"), { recursive: true, force: true });
  }
}
