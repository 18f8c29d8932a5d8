import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync, realpathSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { contain, tryBubblewrap } from "../../../lib/system/process/sandbox.ts";
import { runCommand } from "../../../lib/system/process/run_command.ts";
import { Processes } from "../../../lib/system/process/processes.ts";
import { MARKER_VARIABLE } from "../../../lib/system/process/leftover_processes.ts";
import { CALL_PROBE, refusedCalls } from "../../support/call_probe.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const options = {
  commands: createCommandLookup(),
  clock: systemClock,
  home: "/home/nobody",
  ownPaths: [],
  quarantine: { folder: "/nonexistent/quarantine" },
  notes: "/nonexistent/commands",
  marker: "test",
};
const { kind, text } = await new Processes(options).containment({ sandbox: "auto" });
const skip = kind === "contained" ? false : text;
const python = await options.commands.find("python3");
/** The reason to skip a test of a program in Python, which must stand where the sandbox shows it */
const noPython = skip !== false
  ? skip
  : python !== undefined && realpathSync(python).startsWith("/usr/")
  ? false
  : "python3 is not in /usr";

const processesIn = (workspace: Workspace, more: Partial<ConstructorParameters<typeof Processes>[0]> = {}) =>
  new Processes({ ...options, notes: workspace.path("..", "commands"), ...more });

type ProcessRequest = Parameters<Processes["run"]>[0];

const request = (root: string, script: string, more: Partial<ProcessRequest> = {}): ProcessRequest => ({
  words: ["sh", "-c", script],
  scope: { workspaceRoot: root, workspaceOnly: false, forbiddenPaths: ["private"], allowSensitive: true },
  sandbox: "require",
  timeoutMs: 10_000,
  maxOutputBytes: 10_000,
  signal: new AbortController().signal,
  ...more,
});

test(
  "a contained command reads and writes the workspace",
  { skip },
  () =>
    withWorkspace({ "a.txt": "hello" }, async (workspace) => {
      const processes = processesIn(workspace);
      const result = await processes.run(request(workspace.root, "cat a.txt && echo new > b.txt && pwd"));
      assert.deepEqual(result.ending, { kind: "exit", code: 0 }, result.stderr.text);
      assert.equal(result.contained, true);
      assert.equal(result.stdout.text, `hello${workspace.root}\n`);
      assert.equal(readFileSync(workspace.path("b.txt"), "utf8"), "new\n");
    }),
);

test("a contained command sees nothing else: no outside, no other process, no network, no writable system", {
  skip,
}, () =>
  withWorkspace({}, async (workspace) => {
    symlinkSync("../outside", workspace.path("link"));
    const processes = processesIn(workspace);
    const shows = async (script: string) => (await processes.run(request(workspace.root, script))).stdout.text.trim();
    assert.equal(await shows("cat link/secret.txt; cat ../outside/secret.txt; cat /etc/passwd; ls /root /home"), "");
    assert.equal(await shows("ls -d /proc/[0-9]* | wc -l | tr -d ' '").then((count) => Number(count) < 10), true);
    assert.match(await shows("cat /proc/net/dev"), /^[^\n]*\n[^\n]*\n\s*lo:[^\n]*$/);
    assert.equal(await shows("touch /usr/x /etc/x 2>/dev/null; umount /usr 2>/dev/null || echo kept"), "kept");
    // Links into /usr stand as links, folders as folders
    const folders = ["/bin", "/sbin", "/lib"];
    assert.equal(
      await shows(`/bin/sh -c 'readlink -f ${folders.join(" ")}'`),
      folders.map((folder) => realpathSync(folder)).join("\n"),
    );
    assert.equal(await shows("touch /bin/x /sbin/x /lib/x 2>/dev/null; ls /bin/x /sbin/x /lib/x 2>/dev/null"), "");
    assert.equal(await shows("grep CapEff /proc/self/status | tr -d '\\t'"), "CapEff:0000000000000000");
    assert.equal(await shows("ls -A ~; echo $HOME").then((text) => text.includes("/tmp")), true);
  }));

test(
  "forbidden and own paths inside the workspace appear empty",
  { skip },
  () =>
    withWorkspace({ "private/a.txt": "secret", "data/own.db": "secret", "own.toml": "secret" }, async (workspace) => {
      const own = [workspace.path("data"), workspace.path("own.toml"), workspace.path("none")];
      const processes = processesIn(workspace, { ownPaths: own });
      const result = await processes.run(request(workspace.root, "find . -type f; cat own.toml; ls data private"));
      assert.doesNotMatch(result.stdout.text, /secret|own\.db|a\.txt/);
    }),
);

test(
  "files and folders of credentials appear empty, at any depth and through links, unless they are allowed",
  { skip },
  () =>
    withWorkspace({
      ".env": "secret\n",
      ".env.example": "shown\n",
      "a/b/c/.env.local": "secret\n",
      "a/tls/server.PEM": "secret\n",
      ".ssh/config": "secret\n",
      "plain/real.txt": "secret\n",
      "a/notes.txt": "shown\n",
    }, async (workspace) => {
      symlinkSync("../.env", workspace.path("a/innocent"));
      symlinkSync("real.txt", workspace.path("plain/id_rsa"));
      symlinkSync("/etc/passwd", workspace.path("plain/credentials.json"));
      const processes = processesIn(workspace);
      const script = "find . -follow -type f | sort | xargs cat; cat .env a/innocent plain/*";
      const { scope } = request(workspace.root, script);
      const hidden = await processes.run(
        request(workspace.root, script, { scope: { ...scope, allowSensitive: false } }),
      );
      assert.equal(hidden.stdout.text, "shown\nshown\n", hidden.stderr.text);
      const shown = await processes.run(request(workspace.root, "cat .env a/b/c/.env.local"));
      assert.equal(shown.stdout.text, "secret\nsecret\n");
      assert.equal(readFileSync(workspace.path(".env"), "utf8"), "secret\n");
    }),
);

test(
  "each call hides what is there now, and has a /tmp of its own",
  { skip },
  () =>
    withWorkspace({ "a/plain.txt": "shown\n" }, async (workspace) => {
      const processes = processesIn(workspace);
      const script = "cat .env a/plain.txt /tmp/left; echo left > /tmp/left";
      const { scope } = request(workspace.root, script);
      const shows = async () => {
        const { stdout } = await processes.run(
          request(workspace.root, script, { scope: { ...scope, allowSensitive: false } }),
        );
        return stdout.text;
      };
      assert.equal(await shows(), "shown\n");
      workspace.write(".env", "secret\n");
      assert.equal(await shows(), "shown\n");
      workspace.write("a/plain.txt", `-----BEGIN PRIVATE KEY-----\n${"QUFB".repeat(16)}\n-----END PRIVATE KEY-----\n`);
      assert.equal(await shows(), "");
      workspace.write("a/plain.txt", "shown again\n");
      assert.equal(await shows(), "shown again\n");
    }),
);

test("a workspace with more credentials than the sandbox can hide is refused", { skip }, () =>
  withWorkspace(
    Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`${`${"x".repeat(250)}/`.repeat(12)}k${i}.pem`, ""])),
    async (workspace) => {
      const processes = processesIn(workspace);
      const { scope } = request(workspace.root, "true");
      // Of 30 paths of 3,000 bytes all are hidden
      const { ending } = await processes.run(
        request(workspace.root, "true", { scope: { ...scope, allowSensitive: false } }),
      );
      assert.deepEqual(ending, { kind: "exit", code: 0 });
      for (let i = 0; i < 400; i++) workspace.write(`${`${"x".repeat(250)}/`.repeat(12)}m${i}.pem`, "");
      await assert.rejects(
        processes.run(request(workspace.root, "true", { scope: { ...scope, allowSensitive: false } })),
        {
          code: "sandbox_unavailable",
        },
      );
    },
  ));

test("nothing a contained command starts outlives it", { skip }, () =>
  withWorkspace({}, async (workspace) => {
    const marker = `sandbox-${process.pid}`;
    const processes = processesIn(workspace, { marker });
    const script = "setsid sleep 300 & until [ -e go ]; do sleep 0.02; done; echo done";
    const work = processes.run(request(workspace.root, script, { timeoutMs: 120_000 }));
    // A refusal says why it does not start
    const ended = work.then(({ stderr }) => assert.fail(`it ended: ${stderr.text}`));
    await Promise.race([ended, until(() => marked(marker).includes("sleep 300"), "it does not start")]);
    ended.catch(() => {});
    workspace.write("go", "");
    assert.equal((await work).stdout.text, "done\n");
    await until(() => marked(marker).length === 0, () => `These live on: ${marked(marker).join("; ")}`);
  }));

/** Command lines of the processes that have the marker in their environment. */
function marked(marker: string): readonly string[] {
  return readdirSync("/proc").flatMap((id) => {
    try {
      const [environment = "", words = ""] = ["environ", "cmdline"].map((name) =>
        readFileSync(`/proc/${id}/${name}`, "utf8")
      );
      const isMarked = environment.split("\0").includes(`${MARKER_VARIABLE}=${marker}`);
      return isMarked ? [words.split("\0").join(" ").trim()] : [];
    } catch {
      // No process, one that has ended meanwhile, or somebody else's
      return [];
    }
  });
}

test("without bubblewrap `require` refuses with the way out, `auto` and `off` run", () =>
  withWorkspace({}, async (workspace) => {
    const commands = {
      find: async (command: string) => (command === "bwrap" ? undefined : await options.commands.find(command)),
    };
    const processes = processesIn(workspace, { commands });
    await assert.rejects(processes.run(request(workspace.root, "true")), {
      code: "sandbox_unavailable",
      message: /bubblewrap .*sandbox = "auto"$/,
    });
    for (const sandbox of ["auto", "off"] as const) {
      const result = await processes.run(request(workspace.root, "true", { sandbox }));
      assert.deepEqual([result.ending, result.contained], [{ kind: "exit", code: 0 }, false]);
    }
  }));

test(
  "a composed command is not screened, and sees of the workspace and the network what it is told",
  { skip },
  () =>
    withWorkspace({ "data/own.db": "kept" }, async (workspace) => {
      const processes = processesIn(workspace, { ownPaths: [workspace.path("data")] });
      const shows = async (script: string, more: { readonly network?: boolean; readonly writes?: boolean } = {}) => {
        const composed = { env: { EXTRA: "x" }, network: false, writes: false, ...more };
        return (await processes.run({ ...request(workspace.root, script), composed })).stdout.text;
      };
      const script = "echo b 2>/dev/null > b.txt; cat data/own.db; echo $EXTRA; : /etc/passwd";
      assert.equal(await shows(script), "keptx\n");
      assert.throws(() => readFileSync(workspace.path("b.txt")), { code: "ENOENT" });
      await shows(script, { writes: true });
      assert.equal(readFileSync(workspace.path("b.txt"), "utf8"), "b\n");
      const outer = `${readlinkSync("/proc/self/ns/net")}\n`;
      assert.equal(await shows("readlink /proc/self/ns/net", { network: true }), outer);
      assert.notEqual(await shows("readlink /proc/self/ns/net"), outer);
    }),
);

/** Runs `use` with a socket that listens at a path, and counts its connections. */
async function withSocket(path: string, use: (connections: () => number) => Promise<void>): Promise<void> {
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  try {
    await use(() => connections);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

/** Lines that the probe prints in the sandbox. */
async function probed(workspace: Workspace, more: Partial<ProcessRequest> = {}): Promise<readonly string[]> {
  const script = "python3 probe.py docker.sock deep/other.sock";
  const { stdout, stderr } = await processesIn(workspace).run(request(workspace.root, script, more));
  assert.equal(stderr.text, "");
  return stdout.text.trim().split("\n");
}

test(
  "a contained command reaches neither sockets of the workspace, nor keys, nor what few programs need of the kernel",
  {
    skip: noPython,
  },
  () =>
    withWorkspace(
      { "probe.py": CALL_PROBE, "deep/a.txt": "" },
      (workspace) =>
        withSocket(workspace.path("docker.sock"), (reached) =>
          withSocket(workspace.path("deep/other.sock"), async (others) => {
            const expected = [...refusedCalls("docker.sock", "deep/other.sock"), "forwarder DONE"];
            assert.deepEqual(await probed(workspace), expected);
            const composed = { env: {}, network: true, writes: true };
            assert.deepEqual(await probed(workspace, { composed }), expected);
            assert.deepEqual([reached(), others()], [0, 0]);
          })),
    ),
);

test(
  "a command reaches the sockets that are named, and none beside them",
  { skip: noPython },
  () =>
    withWorkspace(
      { "probe.py": CALL_PROBE, "deep/a.txt": "" },
      (workspace) =>
        withSocket(workspace.path("docker.sock"), (reached) =>
          withSocket(workspace.path("deep/other.sock"), async (others) => {
            for (
              const localSockets of [["docker.sock"], ["./deep/../docker.sock", "none"], [
                workspace.path("docker.sock"),
              ]]
            ) {
              const lines = await probed(workspace, { localSockets });
              const sockets = lines.filter((line) =>
                line.includes(".sock ") || line.startsWith("own ")
              );
              const before = ["own DONE", "docker.sock DONE", "pair to docker.sock EISCONN"];
              const expected = [...before, "deep/other.sock ECONNREFUSED", "pair to deep/other.sock ECONNREFUSED"];
              assert.deepEqual(sockets, expected);
              // All other walls stand
              assert.ok(lines.includes("keyctl EPERM") && lines.includes("vsock EAFNOSUPPORT"));
            }
            assert.deepEqual([reached(), others()], [3, 0]);
          })),
    ),
);

test(
  "where nothing keeps a command from Unix sockets, those of the workspace are hidden",
  { skip: noPython },
  () =>
    withWorkspace(
      { "probe.py": CALL_PROBE },
      (workspace) =>
        withSocket(workspace.path("docker.sock"), async (reached) => {
          const { signal } = new AbortController();
          const bubblewrap = await tryBubblewrap({ ...options, signal });
          assert.ok(bubblewrap.kind === "bubblewrap");
          const line = { file: python ?? "", args: ["probe.py", "docker.sock"], cwd: workspace.root, env: {} };
          const seen = { root: workspace.root, hidden: [], sockets: [workspace.path("docker.sock")] };
          const relay = { mounts: [], launcher: () => [], env: {} };
          for (
            const walls of [
              { bubblewrap: { ...bubblewrap, nests: false }, relay },
              { bubblewrap: { ...bubblewrap, filters: false } },
            ]
          ) {
            const inside = await contain(line, { workspace: seen, ...walls });
            assert.ok(inside);
            const limits = { timeoutMs: 10_000, maxOutputBytes: 10_000, signal, clock: systemClock };
            const { stdout } = await runCommand(inside, limits);
            assert.match(stdout.text, /\nown DONE\ndocker\.sock ECONNREFUSED\n/);
            assert.equal(stdout.text.includes("keyctl EPERM"), walls.bubblewrap.filters);
          }
          assert.equal(reached(), 0);
        }),
    ),
);

test(
  "no program makes a user namespace, though no filter of system calls keeps it from that",
  { skip: noPython },
  () =>
    withWorkspace({}, async ({ root }) => {
      const { signal } = new AbortController();
      const bubblewrap = await tryBubblewrap({ ...options, signal });
      assert.ok(bubblewrap.kind === "bubblewrap");
      const line = { file: "/usr/bin/unshare", args: ["--user", "/usr/bin/true"], cwd: root, env: {} };
      const limits = { timeoutMs: 10_000, maxOutputBytes: 10_000, signal, clock: systemClock };
      for (const endsNamespaces of bubblewrap.endsNamespaces ? [true, false] : [false]) {
        const walls = { ...bubblewrap, filters: false, endsNamespaces };
        const inside = await contain(line, { bubblewrap: walls, workspace: { root, hidden: [] } });
        assert.ok(inside);
        const { ending } = await runCommand(inside, limits);
        assert.deepEqual(ending, { kind: "exit", code: endsNamespaces ? 1 : 0 });
      }
    }),
);

test(
  "a program that a person installed connects to the socket that a person shows it, and to no other",
  {
    skip: noPython,
  },
  () =>
    withWorkspace(
      { "../package/probe.py": CALL_PROBE, "../shown/a.txt": "" },
      (workspace) =>
        withSocket(workspace.path("docker.sock"), (reached) =>
          withSocket(workspace.path("..", "shown", "db.sock"), async (shown) => {
            const processes = processesIn(workspace);
            const { root } = workspace;
            const docker = workspace.path("docker.sock");
            const db = workspace.path("..", "shown", "db.sock");
            for (const writable of [[workspace.path("..", "shown")], [db]]) {
              const prepared = await processes.prepareProgram({
                title: 'program "probe"',
                program: { file: "python3", args: ["probe.py", docker, db], folder: workspace.path("..", "package") },
                rights: { writable, workspace: "write", hosts: { key: "", entries: [] } },
                taint: [],
                scope: request(root, "").scope,
                sandbox: "require",
                section: "[plugins]",
                signal: new AbortController().signal,
              });
              const program = await prepared.start();
              const lines = (await Array.fromAsync(program.stdout)).join("").trim().split("\n");
              const isShown = writable[0] === db;
              assert.ok(lines.includes(`${docker} ${isShown ? "ECONNREFUSED" : "EAFNOSUPPORT"}`), lines.join("\n"));
              assert.ok(lines.includes(`${db} ${isShown ? "DONE" : "EAFNOSUPPORT"}`));
              await program.end();
              await prepared.after();
            }
            assert.deepEqual([reached(), shown()], [0, 1]);
            await processes.close();
          })),
    ),
);
