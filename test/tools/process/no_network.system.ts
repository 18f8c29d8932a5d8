import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { test } from "node:test";
import { type CommandEnd, noNetworkLines } from "../../../lib/tools/process/command_rules.ts";
import { isThere } from "../../support/git_fixture.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace } from "../../support/workspace.ts";

const config = (sandbox: "require" | "off", more: ConfigChanges["shell"] = {}): ConfigChanges => ({
  autonomy: { level: "full" },
  allowed_commands: ["sh", "git", "sleep"],
  shell: { forbidden_chars: [], sandbox, ...more },
});

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
const skip = probe.kind === "contained" ? false : probe.text;

const NAMED =
  '[The command ran without network, and its output names a failed look-up or connection. [security.shell] network = "allowlist" lets commands reach the hosts of [url_access] domain_allowlist]';
const POSSIBLE =
  '[The command ran without network and may have waited for it. [security.shell] network = "allowlist" lets commands reach the hosts of [url_access] domain_allowlist]';

const linesOf = (end: Omit<CommandEnd, "network">) => noNetworkLines({ ...end, network: "none" });

test("output that names a failed look-up or connection is known, other output is not", () => {
  for (
    const text of [
      "npm error code EAI_AGAIN",
      "Error: getaddrinfo ENOTFOUND packages.example",
      "connect ENETUNREACH 192.0.2.1:443 - Local (0.0.0.0:0)",
      "connect ECONNREFUSED 127.0.0.1:5432",
      "curl: (6) Could not resolve host: example.com",
      "curl: (7) Failed to connect to 127.0.0.1 port 80: Connection refused",
      "ping: example.com: Temporary failure in name resolution",
      "ssh: Could not resolve hostname example.com: Name or service not known",
      "wget: unable to resolve host address 'example.com'",
      "dial tcp: lookup proxy.golang.org on [::1]:53: no such host",
      "error: failed to lookup address information: Try again",
      "socket.gaierror: [Errno -3] Temporary failure in name resolution",
      "urllib3: Failed to establish a new connection: [Errno 101] Network is unreachable",
      "E: Failed to fetch http://deb.example.com/x  Temporary failure resolving 'deb.example.com'",
    ]
  ) {
    assert.deepEqual(
      linesOf({ contained: true, isTimeout: false, isFailure: true, texts: ["", text] }),
      [NAMED],
      text,
    );
    assert.deepEqual(
      linesOf({ contained: false, isTimeout: false, isFailure: true, texts: [text] }),
      [],
      "it has one",
    );
    assert.deepEqual(
      linesOf({ contained: true, isTimeout: false, isFailure: false, texts: [text] }),
      [],
      "it went well",
    );
    assert.deepEqual(linesOf({ contained: true, isTimeout: true, isFailure: true, texts: [text] }), [NAMED]);
  }
  for (
    const text of ["", "not found", "ls: cannot access 'x': No such file", "AssertionError: network", "host is up"]
  ) {
    assert.deepEqual(linesOf({ contained: true, isTimeout: false, isFailure: true, texts: [text] }), [], text);
    assert.deepEqual(linesOf({ contained: true, isTimeout: true, isFailure: true, texts: [text] }), [POSSIBLE]);
  }
});

test("a command with the relay is told of it when it looks names up by itself", () => {
  const end = { contained: true, isTimeout: false, isFailure: true, network: "allowlist" } as const;
  assert.match(
    noNetworkLines({ ...end, texts: ["getaddrinfo ENOTFOUND x"] }).join(),
    /^\[The command reaches the network through the relay alone/,
  );
  assert.deepEqual(noNetworkLines({ ...end, texts: ["not found"] }), []);
  assert.deepEqual(noNetworkLines({ ...end, isFailure: false, texts: ["getaddrinfo ENOTFOUND x"] }), []);
});

test("a contained command that fails to resolve a name says that it has no network", {
  skip: skip || (isThere("git") ? false : "git is not installed"),
}, () =>
  withWorkspace({}, async ({ root }) => {
    const { call, configure } = createToolBench({ root, config: config("require") });
    const { result } = await call("shell", "git ls-remote http://name.invalid/x");
    assert.match(result.output, /Could not resolve host/);
    assert.ok(result.output.endsWith(`\n${NAMED}`), result.output);
    assert.doesNotMatch((await call("shell", "git ls-remote nowhere")).result.output, /without network/);
    configure(config("off"));
    const free = await call("shell", `sh -c 'echo "Could not resolve host"; exit 1'`);
    assert.doesNotMatch(free.result.output, /without network/);
  }));

test(
  "a contained command that times out says so as a possibility",
  { skip },
  () =>
    withWorkspace({}, async ({ root }) => {
      const { call, configure } = createToolBench({ root, config: config("require", { timeout_secs: 1 }) });
      assert.equal((await call("shell", "sleep 60")).result.output, `status=timeout\nstdout:\nstderr:\n${POSSIBLE}`);
      configure(config("off", { timeout_secs: 1 }));
      assert.equal((await call("shell", "sleep 60")).result.output, "status=timeout\nstdout:\nstderr:");
    }),
);

test(
  "the output of a contained process that names a failed connection says so, unless it ended well",
  { skip },
  () =>
    withWorkspace({}, async ({ root }) => {
      const { call, processes } = createToolBench({ root, config: config("require") });
      try {
        for (const [code, expected] of [[0, false], [1, true]] as const) {
          const command = `sh -c 'echo connect ECONNREFUSED 127.0.0.1:1; exit ${code}'`;
          const { id } = (await call("process_tool", { op: "start", command })).result.data as { id: string };
          await until(() => processes.get(id).state.kind === "exit");
          const { output } = (await call("process_tool", { op: "output", id })).result;
          assert.equal(output.includes(NAMED), expected, output);
        }
      } finally {
        await processes.close();
      }
    }),
);
