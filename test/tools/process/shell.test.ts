import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { type ConfigChanges, createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const FULL = { autonomy: { level: "full" } } as const;
const benchOf = (workspace: Workspace, config: ConfigChanges = {}) =>
  createToolBench({ root: workspace.root, config: { ...FULL, ...config } });

test("runs an allowed command in the workspace and gives status, stdout and stderr", () =>
  withWorkspace({ "a b.txt": "hello\n" }, async (workspace) => {
    const { call } = benchOf(workspace);
    const cat = await call("shell", "cat 'a b.txt'");
    assert.equal(cat.result.output, "status=0\nstdout:\nhello\nstderr:");
    assert.equal(cat.access, "write");
    assert.equal(
      (await call("shell", { command: "pwd" })).result.output,
      `status=0\nstdout:\n${workspace.root}\nstderr:`,
    );
    assert.equal((await call("shell", `echo '$HOME;' "|"`)).result.output, "status=0\nstdout:\n$HOME; |\nstderr:");
  }));

test("a non-zero exit and a signal are results, not errors", () =>
  withWorkspace({}, async (workspace) => {
    const { call, configure } = benchOf(workspace);
    const { result } = await call("shell", "ls none");
    assert.equal(result.isError, false);
    assert.match(result.output, /^status=[12]\nstdout:\nstderr:\n.*none.*$/);
    configure({ ...FULL, allowed_commands: ["sh"], shell: { sandbox: "off", forbidden_chars: [] } });
    assert.match((await call("shell", "sh -c 'kill -SEGV $$'")).result.output, /^status=signal:SIGSEGV\n/);
  }));

test("the level decides: read_only denies, supervised asks, full runs", () =>
  withWorkspace({}, async (workspace) => {
    const { call, configure } = benchOf(workspace);
    configure({ autonomy: { level: "read_only" } });
    const denied = await call("shell", "echo a");
    assert.deepEqual([denied.ran, denied.result.isError], [false, true]);
    assert.match(denied.result.output, /read_only/);
    configure({ autonomy: { level: "supervised" } });
    const asked = await call("shell", "echo a");
    assert.deepEqual([asked.ran, asked.result.isError], [false, true]);
    assert.match(asked.result.output, /auto_approve/);
    const approved = await call("shell", "echo a", { approver: async () => ({ decision: "approve", reason: "" }) });
    assert.equal(approved.result.output, "status=0\nstdout:\na\nstderr:");
    configure(FULL);
    assert.equal((await call("shell", "echo a")).ran, true);
  }));

test("what the configuration refuses is refused before anybody is asked, at every level", () =>
  withWorkspace({}, async (workspace) => {
    for (const level of ["read_only", "supervised", "full"] as const) {
      const { call } = benchOf(workspace, { autonomy: { level } });
      const approver = () => assert.fail("nobody is asked");
      for (
        const [name, input] of [
          ["shell", "rm x"],
          ["shell", "echo a; ls"],
          ["shell", `echo ${"x".repeat(200)}`],
          ["process_tool", { op: "start", command: "rm x" }],
        ] as const
      ) {
        const { ran, result } = await call(name, input, { approver });
        assert.deepEqual([ran, result.isError], [false, true]);
        assert.match(result.output, /allowed_commands|";" is refused|max_arg_length/);
      }
      for (const argument of ["/etc/passwd", "--file=/etc/passwd", "-f../x", ".env"]) {
        for (const name of ["shell", "process_tool"]) {
          const command = `cat ${argument}`;
          const input = name === "shell" ? { command } : { op: "start", command };
          const { result } = await call(name, input, { approver });
          assert.match(
            result.output,
            level === "read_only" ? /never allows/ : /^Cannot run the command with the argument/,
          );
        }
      }
    }
  }));

test("an allowed command is matched whole, and nothing of the workspace is run", () =>
  withWorkspace({ ls: "#!/bin/sh\necho hijacked\n" }, async (workspace) => {
    const { call, configure } = benchOf(workspace);
    for (const command of ["/bin/ls", "./ls", "LS", "ls.", "'ls '", "lsof", "A=b ls", "sh -c ls", "rm x"]) {
      const { result } = await call("shell", command);
      assert.equal(result.isError, true, command);
      assert.match(result.output, /allowed_commands/, command);
    }
    assert.match((await call("shell", "ls")).result.output, /^status=0\nstdout:\nls\nstderr:$/);
    configure({ ...FULL, allowed_commands: ["./ls", "no-such-command", "../ls"] });
    for (const command of ["./ls", "no-such-command", "../ls"]) {
      assert.match((await call("shell", command)).result.output, /^Cannot run .*fixed search path/, command);
    }
  }));

test("the rules of the words are those of the configuration", () =>
  withWorkspace({}, async (workspace) => {
    const { call, configure } = benchOf(workspace);
    const refused = async (command: string, pattern: RegExp) => {
      const { result } = await call("shell", { command });
      assert.equal(result.isError, true, command);
      assert.match(result.output, pattern, command);
    };
    await refused("echo a; ls", /";" is refused/);
    await refused("echo \\; ls", /";" is refused/);
    await refused("echo `ls`", /a backtick is refused even inside quotes/);
    await refused("echo a\nls", /a line break is refused/);
    await refused("echo 'a", /not closed/);
    await refused("echo 1 2 3 4 5 6 7 8 9", /max_args allows 8/);
    await refused(`echo ${"x".repeat(129)}`, /max_arg_length allows 128/);
    configure({ ...FULL, shell: { forbidden_chars: ["%"], max_args: 1 } });
    await refused("echo a%b", /"%" is refused/);
    await refused("echo a b", /max_args allows 1/);
    await refused("echo `ls`", /a backtick/);
    assert.equal((await call("shell", "echo a;b")).result.output, "status=0\nstdout:\na;b\nstderr:");
  }));

test("arguments that name what no tool may touch are refused", () =>
  withWorkspace({ ".env": "SECRET=1" }, async (workspace) => {
    const { call, configure } = benchOf(workspace);
    const arguments_ = ["/etc/passwd", "--file=/etc/passwd", "-f../x", "../outside/secret.txt", ".env", "-f.env"];
    for (const argument of arguments_) {
      const { result } = await call("shell", `cat ${argument}`);
      assert.equal(result.isError, true, argument);
      assert.match(result.output, /^Cannot run the command with the argument/, argument);
    }
    configure({ autonomy: { level: "full", allow_sensitive_file_reads: true } });
    assert.equal((await call("shell", "cat .env")).result.isError, true);
    configure({
      autonomy: { level: "full", allow_sensitive_file_reads: true, allow_sensitive_file_writes: true },
    });
    assert.match((await call("shell", "cat .env")).result.output, /SECRET=1/);
  }));

test("a command that prints without end costs neither memory nor time", () =>
  withWorkspace({}, async (workspace) => {
    const { call } = benchOf(workspace, { allowed_commands: ["yes"] });
    const [rss, started] = [process.memoryUsage().rss, systemClock.monotonic()];
    const { output } = (await call("shell", "yes 0123456789")).result;
    assert.match(
      output,
      /^status=signal:SIGKILL\nstdout:\n(0123456789\n){744}.*\n\[stdout cut .*\[Stopped: it wrote more than 67108864 bytes\]$/s,
    );
    assert.ok(output.length < 9000);
    assert.ok(systemClock.monotonic() - started < 50_000);
    // On Deno other test files run in this process too
    if (!("Deno" in globalThis)) assert.ok(process.memoryUsage().rss - rss < 200_000_000);
  }));

test("each stream is cut at its cap with a notice", () =>
  withWorkspace({ "long.txt": "0123456789".repeat(100) }, async (workspace) => {
    const { call } = benchOf(workspace, { shell: { max_output_bytes: 20 } });
    const { output, data } = (await call("shell", "cat long.txt none.txt")).result;
    assert.match(output, /^status=1\nstdout:\n01234567890123456789\n\[stdout cut .* of 1000 bytes.*\]\nstderr:\n/);
    assert.match(output, /\n\[stderr cut at .*\]$/);
    assert.partialDeepStrictEqual(data, { status: "1", stdout_truncated: true, stderr_truncated: true });
  }));

test("no variable of the gateway reaches a command", () =>
  withWorkspace({}, async (workspace) => {
    for (const sandbox of ["auto", "off"] as const) {
      const { call } = benchOf(workspace, { allowed_commands: ["env"], shell: { sandbox } });
      const { output } = (await call("shell", "env")).result;
      const names = output.split("\n").slice(2, -1).map((line) => line.split("=")[0] ?? "").sort();
      assert.deepEqual(names.filter((name) => name !== "PWD"), ["HOME", "LANG", "PATH", "POSTERN_GATEWAY", "TERM"]);
    }
  }));

test("a command is stopped by its time limit, by its caller and by the end of the gateway", () =>
  withWorkspace({}, async (workspace) => {
    const bench = benchOf(workspace, { allowed_commands: ["sleep"], shell: { timeout_secs: 1 } });
    assert.match((await bench.call("shell", "sleep 60")).result.output, /^status=timeout\nstdout:\nstderr:/);
    bench.configure({ ...FULL, allowed_commands: ["sleep"] });
    const controller = new AbortController();
    const aborted = bench.call("shell", "sleep 60", { signal: controller.signal });
    systemClock.after(100, () => controller.abort(new CancelError("client_gone")));
    await assert.rejects(aborted, CancelError);
    const closed = bench.call("shell", "sleep 60").catch((error: unknown) => error);
    await systemClock.sleep(100);
    await bench.processes.close();
    await closed;
    await bench.processes.close();
  }));
