import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { type CliMachine, withCliMachine } from "../support/cli_process.ts";
import { chaos } from "../support/daemon_chaos.ts";
import { isGone } from "../support/is_gone.ts";
import { claimVersion, copyBuild, VERSION_AFTER } from "../support/other_build.ts";
import { until } from "../support/world.ts";

async function json({ run }: CliMachine, argv: readonly string[], program?: string) {
  const { code, stdout, stderr } = await run([...argv, "--json"], program);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as { pid: number; address: string; state: string; version: string; running: boolean };
}

test("a daemon is started, asked, killed, started again and stopped, and keeps what it was told", () =>
  withCliMachine(async (machine) => {
    const first = await json(machine, ["daemon", "start", "--port", "0"]);
    const made = await machine.run(["token", "create", "--label", "kept"]);
    assert.equal(made.code, 0, made.stderr);
    process.kill(first.pid, "SIGKILL");
    assert.ok(await isGone(String(first.pid)));
    assert.equal((await json(machine, ["daemon", "status"])).state, "stale");
    const second = await json(machine, ["daemon", "start", "--port", "0"]);
    assert.notEqual(second.pid, first.pid);
    const reply = await fetch(`${second.address}v1/models`, {
      headers: { authorization: `Bearer ${made.stdout.trim()}` },
    });
    assert.equal(reply.status, 200);
    await reply.body?.cancel();
    assert.equal((await machine.run(["daemon", "stop"])).code, 0);
    assert.equal((await json(machine, ["daemon", "status"])).state, "stopped");
    await until(() => machine.processes().length === 0, () => `processes ${machine.processes()} are left`);
  }));

test("an upgrade in place takes effect with the next start, from the same path", () =>
  withCliMachine(async (machine) => {
    const program = copyBuild(machine.home, "installed here");
    const { version } = await json(machine, ["daemon", "start", "--port", "0"], program);
    claimVersion(program, VERSION_AFTER);
    assert.notEqual(version, VERSION_AFTER);
    assert.equal((await json(machine, ["daemon", "status"], program)).version, version);
    assert.equal((await machine.run(["daemon", "stop"], program)).code, 0);
    assert.equal((await json(machine, ["daemon", "start", "--port", "0"], program)).version, VERSION_AFTER);
    assert.equal((await machine.run(["daemon", "stop"], program)).code, 0);
  }));

// Each of the six ways once; test:long has a hundred
test("six starts and stops with kills at any moment leave no process and no file", () => chaos({ cycles: 6, seed: 5 }));
