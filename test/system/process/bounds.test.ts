import assert from "node:assert/strict";
import { chmodSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { pathToFileURL } from "node:url";
import { systemClock } from "../../../lib/base/clock.ts";
import { boundedBy, boundLines, type Bounds, boundsText, countsProcesses } from "../../../lib/system/process/bounds.ts";
import { callFilter } from "../../../lib/system/process/call_filter.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { runtimeProgram } from "../../../lib/system/process/prepare_program.ts";
import { type CommandLine, startGroup } from "../../../lib/system/process/process_group.ts";
import type { Processes } from "../../../lib/system/process/processes.ts";
import { runCommand } from "../../../lib/system/process/run_command.ts";
import { contain, type ContainOptions, requireStarted, tryBubblewrap } from "../../../lib/system/process/sandbox.ts";
import { NEVER } from "../../support/mcp_bench.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import { createWorkspaceProcesses } from "../../support/workspace_processes.ts";

const commands = createCommandLookup();
const found = await tryBubblewrap({ commands, clock: systemClock, signal: NEVER });
const bubblewrap = found.kind === "bubblewrap" ? found : undefined;
const prlimit = await commands.find("prlimit");
const skip = found.kind !== "bubblewrap" ? found.reason : prlimit === undefined && "there is no prlimit";
const python = await commands.find("python3");
const noPython = skip !== false
  ? skip
  : python !== undefined && realpathSync(python).startsWith("/usr/")
  ? false
  : "python3 is not in /usr";

const LIMITS = { timeoutMs: 20_000, maxOutputBytes: 20_000, signal: NEVER, clock: systemClock };

const request = (
  workspace: Workspace,
  words: readonly string[],
  more: Partial<Parameters<Processes["run"]>[0]> = {},
) => ({
  words,
  scope: { workspaceRoot: workspace.root, workspaceOnly: false, forbiddenPaths: [], allowSensitive: true },
  sandbox: "require" as const,
  ...LIMITS,
  ...more,
});

/** Returns the hard limit of this process, as the system writes it. */
const hardLimit = (name: string) =>
  readFileSync("/proc/self/limits", "utf8").split("\n").find((line) => line.startsWith(name))?.split(/ {2,}/)[2];

test("Linux counts the processes of a sandbox by themselves from 5.14 on, and not for root", () => {
  for (
    const [version, user, counts] of [
      ["6.18.44", 1000, true],
      ["5.14.0-427.el9.x86_64", 1000, true],
      ["5.13.19-2-pve", 1000, false],
      ["4.19.0", 1000, false],
      ["6.18.44", 0, false],
      ["unknown", 1000, false],
    ] as const
  ) assert.equal(countsProcesses(version, user), counts, `${version} ${user}`);
});

test("says which bounds hold", () => {
  const all: Bounds = { file: "prlimit", processes: 512, openFiles: 100, fileBytes: 2 ** 33, coreBytes: 1 };
  const each = "each opens at most 100 files, writes at most 8 GiB into one, and leaves no core; ";
  assert.ok(boundsText(all).startsWith(`A contained program has at most 512 processes and threads; ${each}`));
  assert.match(
    boundsText({ ...all, processes: undefined }),
    /^A contained program may start any number of processes: /,
  );
  assert.match(boundsText(all), /; memory has a bound only in a gateway that systemd 254 or later runs/);
  const memory = { bytes: 3 * 2 ** 29, entry: "/none" };
  assert.match(boundsText({ ...all, memory }), /no core; all of them together take at most 1536 MiB of memory$/);
  assert.deepEqual(boundLines("137", all), []);
  assert.match(boundLines("137", { ...all, memory }).join(), /^\[Code 137 .* more than 1536 MiB of memory\]$/);
  assert.ok(boundedBy(all).includes("--nproc=512"));
  assert.ok(!boundedBy({ ...all, processes: undefined }).some((word) => word.includes("nproc")));
});

test("no bound is wider than that of the gateway, which could not be set", { skip }, async () => {
  const { file, evaluate, env } = runtimeProgram();
  const module = pathToFileURL(`${process.cwd()}/lib/system/process/bounds.ts`).href;
  const program = `import { boundsHere } from ${JSON.stringify(module)}; console.log(JSON.stringify(boundsHere("p")));`;
  const words = ["--nofile=300:400", "--fsize=5000000", "--core=0", "--", file, ...evaluate, program];
  const { stdout, stderr } = await runCommand(
    { file: prlimit ?? "", args: words, cwd: process.cwd(), env },
    LIMITS,
  );
  assert.ok(stdout.text !== "", stderr.text);
  const { openFiles, fileBytes, coreBytes } = JSON.parse(stdout.text);
  assert.deepEqual({ openFiles, fileBytes, coreBytes }, { openFiles: 400, fileBytes: 5_000_000, coreBytes: 0 });
});

/** Starts up to 40 processes that wait for the end of its input, and says when it could start no more. */
const BOMB = `
import errno, os, sys
r, w = os.pipe()
for started in range(40):
    try: child = os.fork()
    except OSError as error: print("stopped at", started, errno.errorcode[error.errno], flush=True); break
    if child == 0: os.close(w); os.read(r, 1); os._exit(0)
else: print("started all", flush=True)
sys.stdin.read()
`;

/** Returns a line as a user that is not root runs it: Linux counts the processes of nobody else. */
const asUser = (line: CommandLine): CommandLine =>
  process.getuid?.() !== 0 ? line : {
    ...line,
    file: "/usr/bin/setpriv",
    args: [
      ...["--reuid=65534", "--regid=65534", "--clear-groups", "--", line.file],
      // Made for root, who needs it for an inner sandbox
      ...line.args.filter((word) => word !== "--cap-add" && word !== "CAP_SETFCAP"),
    ],
  };

/** Returns a line in a sandbox without a workspace, with a bound of 20 processes. */
async function inSandbox(line: Pick<CommandLine, "file" | "args">, more: Partial<ContainOptions> = {}) {
  assert.ok(bubblewrap?.bounds);
  const inside = await contain({ ...line, cwd: "/", env: {} }, {
    bubblewrap: { ...bubblewrap, bounds: { ...bubblewrap.bounds, processes: 20 } },
    ...more,
  });
  assert.ok(inside);
  return asUser(inside);
}

/** Starts the bomb, and returns what it said, with a function that ends it. */
async function explode(line: CommandLine) {
  const group = startGroup({ ...line, hasInput: true });
  let said = "";
  for await (const chunk of group.stdout) {
    said += chunk;
    if (said.includes("\n")) break;
  }
  return { said: said.trim(), end: () => (group.kill(), group.exited) };
}

async function bombIsStopped(context: TestContext, more: Partial<ContainOptions>, given: readonly Uint8Array[] = []) {
  const bomb = { file: python ?? "", args: ["-c", BOMB] };
  const plain = await inSandbox({ file: "/usr/bin/true", args: [] });
  const works = async () => (await runCommand(plain, LIMITS)).ending;
  const first = await works();
  if (first.kind !== "exit" || first.code !== 0) return context.skip("no sandbox for a user that is not root");
  // The user has more processes than the sandbox may have
  const outside = await explode(asUser({ ...bomb, cwd: "/", env: {} }));
  assert.equal(outside.said, "started all");
  const inside = await inSandbox(bomb, more);
  const contained = await explode({ ...inside, given: [...inside.given ?? [], ...given] });
  try {
    const [, count] = /^stopped at (\d+) EAGAIN$/.exec(contained.said) ?? [];
    // The processes of the sandbox itself count too
    assert.ok(Number(count) >= 14 && Number(count) < 20, contained.said);
    // While it stands at its bound, the user starts what there was before, and another sandbox
    assert.deepEqual(await works(), { kind: "exit", code: 0 });
    const free = asUser({ file: "/usr/bin/true", args: [], cwd: "/", env: {} });
    assert.deepEqual((await runCommand(free, LIMITS)).ending, { kind: "exit", code: 0 });
  } finally {
    await Promise.all([outside.end(), contained.end()]);
  }
}

test(
  "a fork bomb is stopped at its bound, and its user goes on",
  { skip: noPython },
  (context) => bombIsStopped(context, {}),
);

test(
  "a fork bomb with a way to a relay, in the inner sandbox, is stopped at its bound",
  { skip: noPython || bubblewrap?.nests !== true && "bubblewrap does not work inside itself" },
  (context) => {
    const filter = callFilter({ localSockets: false });
    return bombIsStopped(context, { relay: { mounts: [], launcher: () => [], env: {} } }, filter && [filter]);
  },
);

test(
  "a file that grows past its bound ends the command, and the tools say so",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const config = {
        autonomy: { level: "full" },
        allowed_commands: ["sh"],
        shell: { sandbox: "require", forbidden_chars: [] },
      } as const;
      const bench = createToolBench({ root: workspace.root, config, bounds: { fileBytes: 100_000 } });
      try {
        const write = (bytes: number) => `sh -c 'head -c ${bytes} /dev/zero > big'`;
        const output = async (command: string) => (await bench.call("shell", command)).result.output;
        assert.equal(await output(write(100_000)), "status=0\nstdout:\nstderr:");
        const past = await output(write(100_001));
        assert.match(past, /^status=153\n/);
        assert.match(past, /\n\[Code 153 is that of SIGXFSZ: a program wrote more than 100000 bytes into one file\. /);
        assert.match(await output(`sh -c 'ulimit -f unlimited; head -c 100001 /dev/zero > big'`), /^status=0\n/);
        const input = { op: "start", command: `sh -c 'head -c 100001 /dev/zero > big'` };
        const { result } = await bench.call("process_tool", input);
        assert.match(result.output, /^id=p1 /);
        await until(() => bench.processes.get("p1").state.kind !== "running", "it does not end");
        const told = await bench.call("process_tool", { op: "output", id: "p1" });
        assert.match(told.result.output, /^id=p1 status=153 [^]*\[Code 153 is that of SIGXFSZ: /);
      } finally {
        await bench.processes.close();
      }
    }),
);

test("a program that crashes leaves no core", { skip }, () =>
  withWorkspace({}, async (workspace) => {
    assert.ok(bubblewrap);
    const line = { file: "/bin/sh", args: ["-c", "ulimit -c; kill -SEGV $$"], cwd: workspace.root, env: {} };
    const inside = await contain(line, { bubblewrap, workspace: { root: workspace.root, hidden: [] } });
    assert.ok(inside);
    // Cores may be off where the tests are started
    const args = [`--core=${hardLimit("Max core file size")}`, "--", inside.file, ...inside.args];
    const { ending, stdout } = await runCommand({ ...inside, file: prlimit ?? "", args }, LIMITS);
    assert.deepEqual(ending, { kind: "exit", code: 139 });
    // 1 byte is 0 blocks
    assert.equal(stdout.text, "0\n");
    assert.deepEqual(readdirSync(workspace.root), []);
  }));

test(
  "no program of the sandbox takes back a bound on processes, descriptors or cores",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const limits = "grep -E 'processes|open files|file size' /proc/self/limits";
      const lift = (name: string) => `prlimit --pid $$ --${name}=100000:100000 2>/dev/null && echo lifted ${name}`;
      const script = `${limits}; ${["nproc", "nofile", "core"].map(lift).join("; ")}; ${limits}`;
      const changes = { processes: 99, openFiles: 77, fileBytes: 5_000_000 };
      const processes = createWorkspaceProcesses(workspace.root, { bounds: changes });
      const { stdout } = await processes.run(request(workspace, ["sh", "-c", script]));
      const lines = stdout.text.trim().split("\n").map((line) => line.split(/ {2,}/).slice(0, 3).join(" "));
      const each = [
        `Max file size 5000000 ${hardLimit("Max file size")}`,
        hardLimit("Max core file size") === "0" ? "Max core file size 0 0" : "Max core file size 1 1",
        "Max processes 99 99",
        "Max open files 77 77",
      ];
      assert.deepEqual(lines, [...each, ...each]);
    }),
);

test(
  "exit codes and signals of a command are its own, also those that prlimit has for itself",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const processes = createWorkspaceProcesses(workspace.root);
      for (
        const [script, code] of [["exit 126", 126], ["exit 127", 127], ["kill -TERM $$", 143], ["none", 127]] as const
      ) {
        const { ending } = await processes.run(request(workspace, ["sh", "-c", script]));
        assert.deepEqual(ending, { kind: "exit", code }, script);
      }
      const { ending, stderr } = await processes.run(request(workspace, ["prlimit", "--nofile=9", "/none"]));
      assert.deepEqual([ending, stderr.text], [
        { kind: "exit", code: 127 },
        "prlimit: failed to execute /none: No such file or directory\n",
      ]);
    }),
);

test(
  "a program that the sandbox does not show, or whose bounds cannot be set, is refused as not started",
  { skip },
  () =>
    withWorkspace({ "../tools/run": "#!/bin/sh\necho ran\n" }, async (workspace) => {
      chmodSync(workspace.path("../tools/run"), 0o755);
      const own = createCommandLookup([workspace.path("../tools"), "/usr/bin", "/bin"]);
      const unseen = createWorkspaceProcesses(workspace.root, { commands: own });
      await assert.rejects(unseen.run(request(workspace, ["run"])), {
        code: "sandbox_unavailable",
        message: /^Cannot run "run": the sandbox did not start it \(prlimit: failed to execute .*run: No such file/,
      });
      // As where the limits of the gateway were lowered after its start
      assert.ok(bubblewrap?.bounds);
      const changed = { ...bubblewrap, bounds: { ...bubblewrap.bounds, openFiles: 2 ** 40 } };
      const line = { file: "/usr/bin/true", args: [], cwd: workspace.root, env: {} };
      const inside = await contain(line, { bubblewrap: changed, workspace: { root: workspace.root, hidden: [] } });
      assert.ok(inside);
      const result = await runCommand(inside, LIMITS);
      assert.throws(() => requireStarted(["true"], result), { code: "sandbox_unavailable", message: /failed to set/ });
    }),
);

for (
  const [what, openFiles, find] of [
    ["is not there", 77, () => undefined],
    ["does not stand where the sandbox shows it", 77, (workspace: Workspace) => workspace.path("../tools/prlimit")],
    // As the hard limit of somebody without rights
    ["may not set a bound", 2 ** 40, () => prlimit],
  ] as const
) {
  test(
    `where prlimit ${what}, commands are contained without bounds, and that is said`,
    { skip },
    () =>
      withWorkspace({ "../tools/prlimit": "#!/bin/sh\n" }, async (workspace) => {
        chmodSync(workspace.path("../tools/prlimit"), 0o755);
        const processes = createWorkspaceProcesses(workspace.root, {
          commands: { find: async (name) => name === "prlimit" ? find(workspace) : await commands.find(name) },
          bounds: { openFiles },
        });
        const script = "grep 'open files' /proc/self/limits";
        const { ending, contained, stdout, bounds: held } = await processes.run(
          request(workspace, ["sh", "-c", script]),
        );
        assert.deepEqual([ending, contained, held], [{ kind: "exit", code: 0 }, true, undefined]);
        assert.doesNotMatch(stdout.text, / 77 /);
        assert.deepEqual(await processes.containment({ sandbox: "require" }), {
          kind: "contained",
          text:
            "Commands are contained by bubblewrap, without bounds on what they take, since prlimit does not work here",
        });
      }),
  );
}

test(
  "a program that runs on, as an MCP server or a plugin, has the bounds",
  { skip },
  () =>
    withWorkspace({ "../package/a.txt": "" }, async (workspace) => {
      const processes = createWorkspaceProcesses(workspace.root, { bounds: { openFiles: 77 } });
      const prepared = await processes.prepareProgram({
        title: 'program "limits"',
        program: { file: "grep", args: ["open files", "/proc/self/limits"], folder: workspace.path("../package") },
        rights: { hosts: { key: "", entries: [] } },
        taint: [],
        scope: request(workspace, []).scope,
        sandbox: "require",
        section: "[plugins]",
        signal: NEVER,
      });
      const program = await prepared.start();
      assert.match((await Array.fromAsync(program.stdout)).join(""), /^Max open files +77 +77 /);
      await program.end();
      await processes.close();
    }),
);
