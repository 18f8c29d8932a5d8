import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import process from "node:process";
import { existsSync, mkdirSync, readdirSync, realpathSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import {
  type ConfigChanges,
  createToolBench,
  type ToolBench,
  type ToolBenchOptions,
} from "../../support/tool_bench.ts";
import { CALL_PROBE, refusedCalls } from "../../support/call_probe.ts";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const COMMANDS = ["sh", "curl", "git", "node", "npm", "python3", "sleep", "true", "env"];

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind === "contained" ? false : probe.text;
/** The reason to skip a test of programs. They must stand where the sandbox shows them */
const lacks = async (...names: readonly string[]) => {
  if (skip !== false) return skip;
  for (const name of names) {
    const file = await createCommandLookup().find(name);
    if (file === undefined || !realpathSync(file).startsWith("/usr/")) return `${name} is not in /usr`;
  }
  return false;
};
const noCurl = await lacks("curl");

const config = (allowlist: readonly string[], more: ConfigChanges = {}): ConfigChanges => ({
  autonomy: { level: "full", workspace_only: false },
  allowed_commands: COMMANDS,
  url_access: { allow_loopback: true, domain_allowlist: [...allowlist] },
  ...more,
  shell: {
    forbidden_chars: [],
    sandbox: "require",
    network: "allowlist",
    max_arg_length: 10_000,
    max_args: 40,
    ...more.shell,
  },
});

const closers: (() => void)[] = [];
after(() => closers.forEach((close) => close()));

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
  closers.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

async function site(answer: RequestListener = (request, response) => void response.end(`hello ${request.url}`)) {
  let requests = 0;
  const port = await listen(createServer((request, response) => {
    requests++;
    answer(request, response);
  }));
  return { port, requests: () => requests };
}

/** Runs `use` with a bench whose commands may reach some places. */
function withCommands(
  allowlist: readonly string[],
  use: (bench: ToolBench & { readonly workspace: Workspace; shell(command: string): Promise<string> }) => Promise<void>,
  { files = {}, ...more }: Partial<ToolBenchOptions> & { readonly files?: Readonly<Record<string, string>> } = {},
): Promise<void> {
  return withWorkspace(files, async (workspace) => {
    const bench = createToolBench({ root: workspace.root, config: config(allowlist), ...more });
    try {
      await use({
        ...bench,
        workspace,
        shell: async (command) => (await bench.call("shell", { command })).result.output,
      });
    } finally {
      await bench.processes.close();
    }
    const left = join(dirname(workspace.root), "relays");
    assert.deepEqual(existsSync(left) ? readdirSync(left) : [], [], "no socket is left");
  });
}

test(
  "a contained command reaches an allowed host, and is told which others the relay refused",
  { skip: noCurl },
  async () => {
    const { port } = await site();
    await withCommands([`127.0.0.1:${port}`], async ({ shell, call }) => {
      assert.match(await shell(`curl -sS http://127.0.0.1:${port}/a`), /^status=0\nstdout:\nhello \/a\nstderr:$/);
      assert.match(await shell(`curl -sS --proxytunnel http://127.0.0.1:${port}/b`), /^status=0\nstdout:\nhello \/b/);
      const refused = await call("shell", { command: "curl -sS https://packages.example.com/" });
      assert.match(refused.result.output, /^status=56\n/);
      assert.ok(
        refused.result.output.endsWith(
          '[Relay: Cannot reach "packages.example.com": add "packages.example.com" to [url_access] domain_allowlist to allow it]',
        ),
        refused.result.output,
      );
      const { data, isError } = refused.result;
      assert.equal(isError, false);
      assert.deepEqual((data as { relay_refused: { host: string }[] }).relay_refused.map(({ host }) => host), [
        "packages.example.com",
      ]);
      assert.match(
        await shell("curl -sS http://packages.example.com/"),
        /stdout:\nCannot reach "packages\.example\.com": add /,
      );
      assert.equal(refused.access, "network");
    });
  },
);

test(
  "the command gets its exit code, signals and output as without the relay, and nothing but the proxy's names more",
  { skip },
  () =>
    withCommands(["example.com"], async ({ shell, configure }) => {
      const commands = [
        "sh -c 'exit 7'",
        "sh -c 'kill -9 $$'",
        "sh -c 'kill -TERM $$'",
        "sh -c 'trap \"echo got it\" TERM; kill -TERM 0 2>/dev/null; echo on'",
        "sh -c 'echo out; echo err >&2'",
        "sh -c 'cat; ls -A /tmp; ls -A ~; pwd; ulimit -n'",
        "sh -c 'env | grep -viE \"proxy|^_=\" | sort'",
        "true",
        "sh -c 'sleep 60 & echo started'",
      ].filter((command) => !command.includes("kill -TERM 0"));
      const relayed = [];
      for (const command of commands) relayed.push(await shell(command));
      const names = await shell("sh -c 'env | grep -i proxy | sort'");
      configure(config([], { shell: { network: "none" } }));
      for (const [index, command] of commands.entries()) assert.equal(relayed[index], await shell(command), command);
      const url = "http://127.0.0.1:3128";
      assert.equal(
        names,
        [
          "status=0\nstdout:",
          ...["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"].map((name) => `${name}=${url}`),
          "NODE_USE_ENV_PROXY=1\nNO_PROXY=localhost,127.0.0.1,::1",
          ...["all_proxy", "http_proxy", "https_proxy"].map((name) => `${name}=${url}`),
          "no_proxy=localhost,127.0.0.1,::1\nstderr:",
        ].join("\n"),
      );
    }),
);

test(
  "beside the relay the command reaches nothing: no address of this machine, no name, no datagram, no socket of the system",
  {
    skip: await lacks("python3"),
  },
  async () => {
    const { port, requests } = await site();
    let datagrams = 0;
    const { createSocket } = await import("node:dgram");
    const udp = createSocket("udp4").on("message", () => datagrams++);
    await new Promise<void>((resolve) => udp.bind(0, "0.0.0.0", resolve));
    closers.push(() => udp.close());
    const abstract = `postern-test-${port}`;
    const outer = createTcpServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => outer.listen(`\0${abstract}`, resolve));
    const faces = Object.values(networkInterfaces()).flat().filter((face) => face?.family === "IPv4" && !face.internal);
    const addresses = [
      "127.0.0.1",
      "127.0.0.2",
      "169.254.169.254",
      "192.0.2.1",
      ...faces.map((face) => face?.address ?? ""),
    ];
    const script = `
import socket, os
def tell(name, work):
    try: work(); print(name, "REACHED")
    except Exception as error: print(name, "no")
def tcp(host, port):
    s = socket.socket(); s.settimeout(2); s.connect((host, port))
for host in ${JSON.stringify(addresses)}:
    tell(host, lambda: tcp(host, ${port}))
def udp(host):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b"x", (host, ${udp.address().port}))
for host in ${JSON.stringify(addresses.slice(3))}:
    tell("udp " + host, lambda: udp(host))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", ${udp.address().port}))
tell("name", lambda: socket.getaddrinfo("localhost.example.com", 80))
def abstract():
    s = socket.socket(socket.AF_UNIX); s.connect("\\0${abstract}")
tell("abstract", abstract)
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
tell("raw", raw)
def netlink():
    s = socket.socket(socket.AF_UNIX); s.connect("/run/dbus/system_bus_socket")
tell("bus", netlink)
print(sorted(os.listdir("/.postern-relay")), [f for f in os.listdir("/proc/net") if False])
def write(): open("/.postern-relay/socket.x", "w"); os.rename("/.postern-relay/socket", "/.postern-relay/y")
tell("rename", write)
def replace(): open("/.postern-relay/program", "ab")
tell("program", replace)
`;
    await withCommands([`127.0.0.1:${port}`], async ({ shell }) => {
      const output = await shell("python3 probe.py");
      assert.match(output, /^status=0/, output);
      assert.doesNotMatch(output, /REACHED/);
      assert.deepEqual([requests(), datagrams], [0, 0]);
      // Not left to the end: on Deno every program that is started inherits it
      outer.close();
    }, { files: { "probe.py": script } });
  },
);

test("a command behind the relay has every wall of one without, and cannot write into what leads to the relay", {
  skip: await lacks("python3", "curl"),
}, async () => {
  const { port } = await site();
  await withCommands([`127.0.0.1:${port}`], async ({ call, shell, configure, processes, workspace }) => {
    const server = createTcpServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(workspace.path("docker.sock"), resolve));
    try {
      const probe = async () => {
        // The shell asks the relay behind the probe: both walls and way are there
        const output = await shell(`sh -c 'python3 probe.py docker.sock; curl -sS http://127.0.0.1:${port}/way'`);
        return /stdout:\n([^]*)\nstderr:$/.exec(output)?.[1]?.split("\n") ?? [output];
      };
      assert.deepEqual(await probe(), [...refusedCalls("docker.sock"), "forwarder EACCES", "hello /way"]);
      configure(config([`127.0.0.1:${port}`], { shell: { local_sockets: ["docker.sock"] } }));
      const lines = await probe();
      for (const line of ["own DONE", "docker.sock DONE", "keyctl EPERM", "hello /way"]) {
        assert.ok(lines.includes(line));
      }
      const { data } = (await call("process_tool", { op: "start", command: "python3 probe.py docker.sock" })).result;
      const { id } = data as { id: string };
      const output = async () => (await call("process_tool", { op: "output", id })).result.output;
      await until(() => processes.get(id).state.kind !== "running");
      assert.match(await output(), /\ndocker\.sock DONE\n/);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  }, { files: { "probe.py": CALL_PROBE } });
});

test(
  "the relay leads to no private name, metadata address or port of the gateway itself",
  { skip: noCurl },
  async () => {
    const gateway = await site();
    const allowlist = ["inside.test", "169.254.169.254", `127.0.0.1:${gateway.port}`, `gateway.test:${gateway.port}`];
    await withCommands(allowlist, async ({ shell }) => {
      for (
        const [url, why] of [
          ["http://inside.test/", /10\.0\.0\.1 is a private or reserved address/],
          ["http://169.254.169.254/latest/meta-data/", /private or reserved/],
          ["http://2852039166/", /private or reserved|add "169\.254\.169\.254"/],
          [`http://127.0.0.1:${gateway.port}/health`, /it is the gateway itself/],
          [`http://gateway.test:${gateway.port}/v1/status`, /it is the gateway itself/],
          [`http://0x7f000001:${gateway.port}/`, /it is the gateway itself/],
          [`http://[::1]:${gateway.port}/`, /domain_allowlist/],
        ] as const
      ) {
        assert.match(await shell(`curl -sS -g --noproxy "" ${url}`), why, url);
        assert.match(await shell(`curl -sS -g --noproxy "" --proxytunnel ${url}`), why, url);
      }
      assert.equal(gateway.requests(), 0);
    }, {
      ownPort: gateway.port,
      lookup: (host) =>
        Promise.resolve(host === "inside.test" ? ["10.0.0.1"] : host === "gateway.test" ? ["127.0.0.1"] : []),
    });
  },
);

test("fetch() of Node goes through the relay", { skip: await lacks("node") }, async () => {
  const { port } = await site();
  const script = `const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 21)) { console.log("too old"); process.exit(); }
fetch(process.argv[2]).then(async (r) => console.log(r.status, await r.text()));`;
  await withCommands([`127.0.0.1:${port}`], async ({ shell }) => {
    assert.match(await shell(`node fetch.cjs http://127.0.0.1:${port}/x`), /stdout:\n(?:200 hello \/x|too old)\n/);
    assert.match(
      await shell(`node fetch.cjs http://127.0.0.1:1/x`),
      /stdout:\n(?:403 Cannot reach[^]*127\.0\.0\.1:1|too old)/,
    );
  }, { files: { "fetch.cjs": script } });
});

test(
  "git clones over http through the relay",
  { skip: await lacks("git") },
  () =>
    withWorkspace({}, async ({ root }) => {
      const bare = join(root, "bare.git");
      const git = (...args: readonly string[]) => execFileSync("git", args, { cwd: root, stdio: "pipe" });
      git("init", "-q", "source");
      writeFileSync(join(root, "source", "a.txt"), "cloned\n");
      git("-C", "source", "add", ".");
      git("-C", "source", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "a");
      git("clone", "-q", "--bare", "source", bare);
      git("-C", bare, "update-server-info");
      const { serveFolder } = await import("./serve_folder.ts");
      const { port } = await site(serveFolder(root));
      await withCommands([`127.0.0.1:${port}`], async ({ shell }) => {
        const output = await shell(`sh -c 'git clone -q http://127.0.0.1:${port}/bare.git copy; cat copy/a.txt'`);
        assert.match(output, /^status=0\nstdout:\ncloned\n/, output);
        assert.match(
          await shell("git ls-remote https://example.com/x.git"),
          /\[Relay: Cannot reach "example\.com": add "example\.com" to/,
        );
      });
    }),
);

test("npm installs from an allowed registry through the relay, and says why another fails", {
  skip: await lacks("npm", "node"),
}, async () => {
  const { packagedModule } = await import("./serve_folder.ts");
  const { tarball, integrity } = packagedModule("left-alone", "1.0.0");
  const registry = await site((request, response) => {
    if (request.url === "/left-alone/-/left-alone-1.0.0.tgz") return void response.end(tarball);
    if (request.url !== "/left-alone") return void response.writeHead(404).end("{}");
    const dist = { tarball: `http://127.0.0.1:${registry.port}/left-alone/-/left-alone-1.0.0.tgz`, integrity };
    const versions = { "1.0.0": { name: "left-alone", version: "1.0.0", dist } };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ name: "left-alone", "dist-tags": { latest: "1.0.0" }, versions }));
  });
  const install = (url: string) => `npm install left-alone --registry ${url} --no-audit --no-fund --fetch-retries 0`;
  await withCommands([`127.0.0.1:${registry.port}`], async ({ shell, workspace }) => {
    const output = await shell(install(`http://127.0.0.1:${registry.port}/`));
    assert.match(output, /^status=0\n/, output);
    assert.ok(existsSync(workspace.path("node_modules/left-alone/package.json")));
    const refused = await shell(install("https://registry.example.com/"));
    assert.match(
      refused,
      /\[Relay: Cannot reach "registry\.example\.com": add "registry\.example\.com" to \[url_access\] domain_allowlist/,
    );
  }, {
    files: { "package.json": "{}" },
    config: config([`127.0.0.1:${registry.port}`], { shell: { timeout_secs: 120 } }),
  });
});

test(
  "a process that runs on keeps its relay, names what was refused, and its end closes the relay",
  { skip: noCurl },
  async () => {
    const { port } = await site();
    await withCommands([`127.0.0.1:${port}`], async ({ call, processes, workspace }) => {
      const script =
        `until test -e go; do sleep 0.02; done; curl -sS http://127.0.0.1:${port}/late; curl -s http://example.com/; sleep 60`;
      writeFileSync(workspace.path("run.sh"), script);
      const started = await call("process_tool", { op: "start", command: "sh run.sh" });
      const { id } = started.result.data as { id: string };
      const sockets = () => readdirSync(join(dirname(workspace.root), "relays"));
      assert.equal(sockets().length, 1);
      writeFileSync(workspace.path("go"), "");
      await until(() => processes.get(id).refused.length > 0);
      const { output } = (await call("process_tool", { op: "output", id })).result;
      assert.match(output, /hello \/late/);
      assert.match(output, /\[Relay: Cannot reach "example\.com"/);
      await call("process_tool", { op: "kill", id });
      assert.deepEqual(sockets(), []);
    });
  },
);

test(
  "calls under the setting are network for lists, decisions, approvals, audit and the model",
  { skip },
  () =>
    withCommands(["example.com"], async ({ call, configure, executor, audit, workspace }) => {
      for (const name of ["shell", "process_tool"]) assert.equal(executor.get(name)?.access, "network");
      assert.equal(executor.accessOf("shell", "true"), "network");
      const judged = executor.judge("shell", "true");
      assert.equal(judged?.kind === "judged" && judged.access, "network");
      const supervised = { autonomy: { level: "supervised", workspace_only: false } } as const;
      configure(config(["example.com"], supervised));
      const asked: ApprovalRequest[] = [];
      const approve = (between: () => void = () => {}) => ({
        approver: (request: ApprovalRequest) => {
          asked.push(request);
          between();
          return Promise.resolve({ decision: "approve", reason: "" } as const);
        },
      });
      assert.match((await call("shell", "true", approve())).result.output, /^status=0/);
      assert.equal(asked[0]?.prepared.access, "network");
      assert.equal(asked[0]?.subject.reachesNetwork, true);
      assert.match(asked[0]?.reason ?? "", /it can change files or run programs and reaches the network/);
      assert.match(
        asked[0]?.binding.containment?.text ?? "",
        /reach the hosts of \[url_access\] domain_allowlist through the gateway's relay/,
      );
      assert.ok(audit.events.some((event) => event.type === "decision" && event.access === "network"));
      // An approval for one list, or without a network, does not count with another list
      for (
        const before of [
          config(["other.example"], supervised),
          config([], { ...supervised, shell: { network: "none" } }),
        ]
      ) {
        configure(before);
        const outcome = await call(
          "shell",
          "sh -c 'echo > ran'",
          approve(() => configure(config(["example.com"], supervised))),
        );
        assert.match(outcome.result.output, /is not what it was when the call was approved/);
      }
      assert.equal(existsSync(workspace.path("ran")), false);
      configure(config(["example.com"], { autonomy: { level: "read_only" } }));
      assert.match((await call("shell", "true")).result.output, /which level "read_only" never allows/);
      configure(config([], { shell: { network: "none" } }));
      for (const name of ["shell", "process_tool"]) assert.equal(executor.get(name)?.access, "write");
    }),
);

test("a command reaches the servers that it starts itself, unless the allowlist has the name", {
  skip: await lacks("curl", "python3"),
}, async () => {
  const { port, requests } = await site();
  const script =
    "python3 -m http.server 8080 >/dev/null 2>&1 & until curl -sf http://127.0.0.1:8080/own.txt; do :; done";
  await withCommands(["example.com"], async ({ shell }) => {
    const output = await shell("sh own.sh");
    assert.match(output, /^status=0\nstdout:\nown\n/, output);
    assert.doesNotMatch(output, /\[Relay/);
    assert.match(await shell(`curl -sS http://127.0.0.1:${port}/`), /^status=7\n/);
  }, { files: { "own.sh": script, "own.txt": "own\n" } });
  assert.equal(requests(), 0);
});

test(
  "no command inherits the socket of a relay, neither its own nor that of another command",
  { skip },
  () =>
    withCommands(["example.com"], async ({ call, shell, configure, workspace }) => {
      writeFileSync(
        workspace.path("list.sh"),
        'for f in /proc/self/fd/*; do [ "${f##*/}" -gt 2 ] && readlink "$f"; done | grep -c socket',
      );
      const { data } = (await call("process_tool", { op: "start", command: "sleep 600" })).result;
      assert.match(await shell("sh list.sh"), /stdout:\n0\n/);
      configure(config([], { shell: { network: "none" } }));
      assert.match(await shell("sh list.sh"), /stdout:\n0\n/);
      await call("process_tool", { op: "kill", id: (data as { id: string }).id });
    }),
);

test(
  "git_operations and commands without the setting have no relay",
  { skip },
  () =>
    withCommands([], async ({ shell, configure, workspace }) => {
      configure(config([], { shell: { network: "none" } }));
      assert.match(
        await shell("sh -c 'env | grep -ci proxy; ls -d /.postern-relay'"),
        /stdout:\n0\nstderr:\n.*postern-relay/,
      );
      assert.equal(existsSync(join(dirname(workspace.root), "relays")), false);
    }),
);

test("a command with network = allowlist never runs uncontained", {
  skip: process.platform === "linux" ? false : "Linux alone",
}, () =>
  withWorkspace({}, async ({ root, path }) => {
    const { call, processes } = createToolBench({
      root,
      config: config(["example.com"], { shell: { sandbox: "off" } }),
    });
    for (
      const [tool, input] of [["shell", { command: "sh -c 'echo > ran'" }], ["process_tool", {
        op: "start",
        command: "sh -c 'echo > ran'",
      }]] as const
    ) {
      const { result } = await call(tool, input);
      assert.match(
        result.output,
        /network = "allowlist" needs the sandbox, and sandbox is "off"; .*set network = "none"/,
      );
      assert.equal(result.isError, true);
    }
    assert.equal(existsSync(path("ran")), false);
    assert.equal((await processes.containment({ sandbox: "off", network: "allowlist" })).kind, "refused");
    await processes.close();
  }));

test(
  "a command is refused when its relay cannot listen, or the way to it does not start",
  { skip },
  () =>
    withCommands(["example.com"], async ({ workspace }) => {
      // Something else takes the place of the folder
      writeFileSync(workspace.path("file"), "");
      const blocked = createToolBench({
        root: workspace.root,
        config: config(["example.com"]),
        relays: workspace.path("file"),
      });
      const { result } = await blocked.call("shell", { command: "sh -c 'echo > ran'" });
      assert.match(
        result.output,
        /the relay that its network goes through cannot listen \(.*\); try again, or set \[security\.shell\] network = "none"/,
      );
      assert.equal(existsSync(workspace.path("ran")), false);
      await blocked.processes.close();
      // A long data directory is none of the reasons
      const long = join(dirname(workspace.root), "d".repeat(120));
      mkdirSync(long);
      const deep = createToolBench({
        root: workspace.root,
        config: config(["example.com"]),
        relays: join(long, "relays"),
      });
      assert.match((await deep.call("shell", { command: "true" })).result.output, /^status=0/);
      await deep.processes.close();
    }),
);
