import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { memoryBoundHere } from "../../../lib/system/process/bounds.ts";
import { runCommand } from "../../../lib/system/process/run_command.ts";
import { contain, requireStarted, tryBubblewrap } from "../../../lib/system/process/sandbox.ts";
import { NEVER } from "../../support/mcp_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import { createWorkspaceProcesses } from "../../support/workspace_processes.ts";

const found = await tryBubblewrap({ commands: createCommandLookup(), clock: systemClock, signal: NEVER });
const skip = found.kind !== "bubblewrap" ? found.reason : found.bounds === undefined && "there is no prlimit";

const GIB = 2 ** 30;
const UNIT = "user.slice/postern.service";
/** Files of a delegated cgroup as Linux has them. In the second one, those that a new cgroup has by itself */
const DELEGATED = {
  [`../cgroup/${UNIT}/cgroup.controllers`]: "cpu memory pids\n",
  [`../cgroup/${UNIT}/memory.max`]: "max\n",
  [`../cgroup/${UNIT}/contained/memory.swap.max`]: "max\n",
};

/** Looks for the bound in a folder that stands for `/sys/fs/cgroup`. */
const boundIn = (workspace: Workspace, own = `1:name=systemd:/\n0::/${UNIT}/gateway\n`, memory = 8 * GIB + 5) =>
  memoryBoundHere({ root: workspace.path("../cgroup"), own, memory });

test("in a delegated cgroup, contained programs get one with half of the memory, and no swap", () =>
  withWorkspace(DELEGATED, (workspace) => {
    const folder = workspace.path(`../cgroup/${UNIT}/contained`);
    for (let start = 0; start < 2; start++) {
      assert.deepEqual(boundIn(workspace), { bytes: 4 * GIB, entry: join(folder, "cgroup.procs") });
    }
    const written = ["memory.max", "memory.swap.max", "../cgroup.subtree_control"]
      .map((name) => readFileSync(join(folder, name), "utf8"));
    assert.deepEqual(written, [String(4 * GIB), "0", "+memory"]);
  }));

test("a bound of the unit itself counts as the memory of the machine, and swap that is not there is no error", () =>
  withWorkspace({ ...DELEGATED, [`../cgroup/${UNIT}/memory.max`]: `${3 * GIB}\n` }, (workspace) => {
    const folder = workspace.path(`../cgroup/${UNIT}/contained`);
    rmSync(folder, { recursive: true });
    assert.equal(boundIn(workspace)?.bytes, 3 * GIB / 2);
    assert.deepEqual(readdirSync(folder), ["memory.max"]);
  }));

for (
  const [what, files, own] of [
    ["the gateway is in no unit of its own", DELEGATED, `0::/${UNIT}\n`],
    ["the gateway is at the root, as in a container", DELEGATED, "0::/\n"],
    ["cgroups are those of the first version", DELEGATED, `4:memory:/${UNIT}/gateway\n`],
    [
      "the memory controller is not delegated",
      { ...DELEGATED, [`../cgroup/${UNIT}/cgroup.controllers`]: "cpu\n" },
      undefined,
    ],
    ["there is nothing at its place", {}, undefined],
    // As without the right to make one
    ["no cgroup can be made", { ...DELEGATED, [`../cgroup/${UNIT}/cgroup.subtree_control/a`]: "" }, undefined],
  ] as const
) {
  test(`there is no bound where ${what}`, () =>
    withWorkspace(files, (workspace) => {
      assert.equal(boundIn(workspace, own), undefined);
      assert.ok(!existsSync(workspace.path(`../cgroup/${UNIT}/contained/memory.max`)));
    }));
}

const request = (workspace: Workspace, script: string) => ({
  words: ["sh", "-c", script],
  scope: { workspaceRoot: workspace.root, workspaceOnly: false, forbiddenPaths: [], allowSensitive: true },
  sandbox: "require" as const,
  timeoutMs: 20_000,
  maxOutputBytes: 20_000,
  signal: NEVER,
});

test(
  "a contained program begins in the cgroup, with the variables that it has without",
  { skip },
  () =>
    withWorkspace({ "../entry": "" }, async (workspace) => {
      const entry = workspace.path("../entry");
      const memory = { bytes: GIB, entry };
      const bounded = createWorkspaceProcesses(workspace.root, { bounds: { memory } });
      const plain = createWorkspaceProcesses(workspace.root);
      const composed = { env: { "a-b": "given" }, network: false, writes: false };
      const listing = { ...request(workspace, ""), words: ["env"], composed };
      const said = async (processes: typeof plain) =>
        (await processes.run(listing)).stdout.text.split("\n").sort().join("\n");
      const variables = await said(bounded);
      assert.match(variables, /^a-b=given$/m);
      assert.equal(readFileSync(entry, "utf8"), "0\n");
      assert.equal(variables, await said(plain));
      const { text } = await bounded.containment({ sandbox: "require" });
      assert.match(text, /^Commands are contained by bubblewrap, with at most 1024 MiB of memory for all of them$/);
    }),
);

test("a cgroup that cannot be entered at the look is no bound, and one that is gone later refuses the program", {
  skip,
}, () =>
  withWorkspace({}, async (workspace) => {
    const memory = { bytes: GIB, entry: workspace.path("../none/cgroup.procs") };
    const processes = createWorkspaceProcesses(workspace.root, { bounds: { memory } });
    const { ending, bounds } = await processes.run(request(workspace, "exit 3"));
    assert.deepEqual([ending, bounds?.memory, bounds?.openFiles !== undefined], [
      { kind: "exit", code: 3 },
      undefined,
      true,
    ]);
    assert.ok(found.kind === "bubblewrap" && found.bounds);
    const changed = { ...found, bounds: { ...found.bounds, memory } };
    const line = { file: "/usr/bin/true", args: [], cwd: workspace.root, env: {} };
    const inside = await contain(line, { bubblewrap: changed, workspace: { root: workspace.root, hidden: [] } });
    assert.ok(inside);
    const result = await runCommand(inside, { ...request(workspace, ""), clock: systemClock });
    assert.throws(() => requireStarted(["true"], result), {
      code: "sandbox_unavailable",
      message: /cgroup of contained programs cannot be entered/,
    });
  }));

/** Makes a cgroup in which there is no controller. undefined: this machine, or this user, has none */
function makeCgroup(): string | undefined {
  const mounts = process.platform === "linux" ? readFileSync("/proc/self/mounts", "utf8") : "";
  const [, root] = / (\/\S+) cgroup2 /.exec(mounts) ?? [];
  if (root === undefined) return undefined;
  const folder = join(root, `postern-test-${process.pid}`);
  try {
    mkdirSync(folder);
    writeFileSync(join(folder, "cgroup.max.depth"), "1");
    return folder;
  } catch {
    return undefined;
  }
}

const cgroup = skip === false ? makeCgroup() : undefined;
test("in a cgroup of Linux, all that a contained program starts is in it", {
  skip: skip !== false ? skip : cgroup === undefined && "no cgroup of the second version can be made here",
}, () =>
  withWorkspace({}, async (workspace) => {
    const entry = join(cgroup ?? "", "cgroup.procs");
    const processes = createWorkspaceProcesses(workspace.root, { bounds: { memory: { bytes: GIB, entry } } });
    const inside = () => readFileSync(entry, "utf8").split("\n").filter((id) => id !== "");
    await processes.start({
      ...request(workspace, "tail -f /dev/null & wait"),
      maxProcesses: 1,
      owner: null,
      startedBy: { tool: "process_tool", runId: "run_1" },
    });
    // bubblewrap twice, the shell and tail
    await until(() => inside().length === 4, "the processes are not in the cgroup");
    await processes.close();
    await until(() => inside().length === 0, "the cgroup does not get empty");
    rmdirSync(dirname(entry));
  }));
