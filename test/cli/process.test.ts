import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { withCliMachine } from "../support/cli_process.ts";
import { startPostern } from "../support/postern_process.ts";
import type { StartedProcess } from "../support/started_process.ts";
import { type Machine, onMachine } from "./support/run_in.ts";

const configOf = (home: string) => join(home, ".config/postern/postern.toml");

/** A gateway in a process of its own, over an empty file of the user's; it is killed afterwards. */
function withGatewayOf(use: (gateway: StartedProcess, machine: Machine) => Promise<void>): Promise<void> {
  return onMachine(async (machine) => {
    mkdirSync(dirname(configOf(machine.home)), { recursive: true });
    writeFileSync(configOf(machine.home), "");
    const gateway = await startPostern(["gateway", "--port", "0"], {
      cwd: machine.cwd,
      env: { HOME: machine.home, POSTERN__PROVIDER__KIND: "offline" },
      ready: /^Stop it with/m,
    });
    try {
      await use(gateway, machine);
    } finally {
      await gateway.end("SIGKILL");
    }
  });
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`${signal} drains a gateway: exit 0, the control file gone, the lock free`, () =>
    withGatewayOf(async (gateway, machine) => {
      assert.match(gateway.output(), /^Pairing code: \S+$/m);
      assert.equal(await gateway.end(signal), 0);
      assert.match(gateway.errors(), /^Stopping/m);
      assert.equal(existsSync(join(machine.dataDir, "control.json")), false);
      assert.equal((await machine.run(["token", "list"])).code, 0);
    }));
}

test("SIGHUP has a gateway load its configuration again, and ends nothing", () =>
  withGatewayOf(async (gateway, { home }) => {
    const hangUp = () => process.kill(gateway.pid ?? 0, "SIGHUP");
    hangUp();
    await gateway.until(/Reloaded the configuration: nothing in it has changed/);
    writeFileSync(configOf(home), "[agent]\nmax_iterations = 7\n");
    hangUp();
    await gateway.until(/Reloaded the configuration: agent\.max_iterations/);
    assert.equal(await gateway.end("SIGTERM"), 0);
  }));

test("after kill -9 the next command finds the lock free and works by itself", () =>
  withGatewayOf(async (gateway, machine) => {
    const made = await machine.run(["token", "create", "--label", "kept"]);
    assert.equal(made.code, 0);
    await gateway.end("SIGKILL");
    const { code, stdout } = await machine.run(["token", "list"]);
    assert.equal(code, 0);
    assert.match(stdout, /kept/);
  }));

test("a message piped in is answered on stdout, and the process ends", () =>
  withCliMachine(async (machine) => {
    const chat = machine.spawn(["chat"]);
    chat.child.stdin?.end("hello\n");
    const { code, stdout } = await chat.ended;
    assert.equal(code, 0);
    assert.match(stdout, /offline assistant/i);
  }));

test("a reader that goes away early is no failure", () =>
  withCliMachine(async (machine) => {
    const schema = machine.spawn(["config", "schema"]);
    schema.child.stdout?.destroy();
    const { code, stderr } = await schema.ended;
    assert.deepEqual([code, stderr], [0, ""]);
  }));
