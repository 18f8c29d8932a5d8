import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { onMachine } from "./support/run_in.ts";

const MAIN = fileURLToPath(new URL("../../cli/main.ts", import.meta.url));
const RUNTIME = "Deno" in globalThis ? ["run", "-A", "--no-check"] : [];

interface Started {
  readonly child: ChildProcess;
  /** Waits until stdout holds a match. @throws when the process ends before */
  saw(pattern: RegExp): Promise<RegExpMatchArray>;
  /** The same of stderr */
  told(pattern: RegExp): Promise<RegExpMatchArray>;
  readonly ended: Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>;
}

function start(argv: readonly string[], { home, cwd }: { readonly home: string; readonly cwd: string }): Started {
  const env = { PATH: process.env["PATH"], HOME: home, POSTERN__PROVIDER__KIND: "offline", NO_COLOR: "1" };
  const child = spawn(process.execPath, [...RUNTIME, MAIN, ...argv], { cwd, env, stdio: "pipe" });
  let stdout = "";
  let stderr = "";
  child.stdout?.on("data", (part) => (stdout += part));
  child.stderr?.on("data", (part) => (stderr += part));
  const ended = once(child, "close").then(([code]) => ({ code: code as number | null, stdout, stderr }));
  const sees = (stream: NodeJS.ReadableStream | null, text: () => string) => async (pattern: RegExp) => {
    for (;;) {
      const match = pattern.exec(text());
      if (match !== null) return match;
      const news = await Promise.race([
        once(stream as NonNullable<typeof stream>, "data").then(() => true), // both are pipes
        ended.then(() => false),
      ]);
      if (!news) throw new Error(`The process ended: ${stdout}${stderr}`);
    }
  };
  return { child, ended, saw: sees(child.stdout, () => stdout), told: sees(child.stderr, () => stderr) };
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`${signal} drains a gateway: exit 0, the control file gone, the lock free`, () =>
    onMachine(async (machine) => {
      const gateway = start(["gateway", "--port", "0"], machine);
      await gateway.saw(/^Pairing code: \S+$/m);
      gateway.child.kill(signal);
      const { code, stderr } = await gateway.ended;
      // A parent on Deno reports the signal it sent in place of the exit code
      assert.equal(code, "Deno" in globalThis ? null : 0);
      assert.match(stderr, /^Stopping/m);
      assert.equal(existsSync(join(machine.dataDir, "control.json")), false);
      assert.equal((await machine.run(["token", "list"])).code, 0);
    }));
}

test("SIGHUP has a gateway load its configuration again, and ends nothing", () =>
  onMachine(async (machine) => {
    const file = join(machine.home, ".config/postern/postern.toml");
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, "");
    const gateway = start(["gateway", "--port", "0"], machine);
    await gateway.saw(/Stop it with/);
    // On Deno, child.kill() takes a child for ended after the first signal
    const signal = (name: string) => process.kill(gateway.child.pid ?? 0, name);
    signal("SIGHUP");
    await gateway.told(/The configuration was loaded anew: nothing in it has changed/);
    writeFileSync(file, "[agent]\nmax_iterations = 7\n");
    signal("SIGHUP");
    await gateway.told(/The configuration was loaded anew: agent\.max_iterations/);
    assert.equal(gateway.child.exitCode, null);
    signal("SIGTERM");
    const { code } = await gateway.ended;
    assert.equal(code, 0);
  }));

test("after kill -9 the next command finds the lock free and works by itself", () =>
  onMachine(async (machine) => {
    const gateway = start(["gateway", "--port", "0"], machine);
    await gateway.saw(/Stop it with/);
    const made = await machine.run(["token", "create", "--label", "kept"]);
    assert.equal(made.code, 0);
    gateway.child.kill("SIGKILL");
    await gateway.ended;
    const { code, stdout } = await machine.run(["token", "list"]);
    assert.equal(code, 0);
    assert.match(stdout, /kept/);
  }));

test("a message piped in is answered on stdout, and the process ends", () =>
  onMachine(async (machine) => {
    const chat = start(["chat"], machine);
    chat.child.stdin?.end("hello\n");
    const { code, stdout } = await chat.ended;
    assert.equal(code, 0);
    assert.match(stdout, /offline assistant/i);
  }));

test("a reader that goes away early is no failure", () =>
  onMachine(async (machine) => {
    const schema = start(["config", "schema"], machine);
    schema.child.stdout?.destroy();
    const { code, stderr } = await schema.ended;
    assert.deepEqual([code, stderr], [0, ""]);
  }));
