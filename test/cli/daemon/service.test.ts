import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { readControlFile } from "../../../lib/host/control_file.ts";
import { readPidFile, writePidFile } from "../../../lib/host/daemon/daemon_state.ts";
import { processIdentity } from "../../../lib/host/process_identity.ts";
import { detectInit, readServiceMark } from "../../../lib/host/service/service_manager.ts";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { RUN, RUN_ENV } from "../../support/gateway_process.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import { startPostern } from "../../support/postern_process.ts";
import { startProcess } from "../../support/started_process.ts";
import { until } from "../../support/until.ts";
import { type Finished, type Machine, onMachine } from "../support/run_in.ts";

const MAIN = fileURLToPath(new URL("../../../cli/main.ts", import.meta.url));

interface ServiceMachine extends Machine {
  readonly unit: string;
  /** Commands that the service manager was given */
  calls(): readonly string[];
  service(argv: readonly string[], env?: Readonly<Record<string, string>>): Promise<Finished>;
  /** Sets the state that systemd reports for the unit */
  says(active: string): void;
}

/** A machine whose service manager is a script that writes down what it is told. */
function withServices(use: (machine: ServiceMachine) => Promise<void>): Promise<void> {
  return onMachine(async (machine) => {
    const bin = join(machine.home, "bin");
    const log = join(machine.home, "calls");
    const answer = join(machine.home, "answer");
    mkdirSync(bin);
    const script =
      `#!/bin/sh\necho "$0 $*" | sed 's:.*/::' >> '${log}'\ncase "$*" in *" show "*) cat '${answer}';; esac\n`;
    for (const name of ["systemctl", "loginctl"]) writeFileSync(join(bin, name), script, { mode: 0o755 });
    const says = (active: string) =>
      writeFileSync(answer, `LoadState=loaded\nActiveState=${active}\nSubState=x\nUnitFileState=enabled\n`);
    says("inactive");
    const env = { PATH: `${bin}:/usr/bin:/bin`, USER: "ann" };
    await use({
      ...machine,
      says,
      unit: join(machine.home, ".config/systemd/user/postern.service"),
      calls: () => (existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : []),
      service: (argv, more) => machine.run(["service", ...argv], { env: { ...env, ...more } }),
    });
  });
}

for (
  const [name, argv] of [
    ["before", ["--service-init", "systemd", "install"]],
    ["before, with an equals sign", ["--service-init=systemd", "install"]],
    ["after", ["install", "--service-init", "systemd"]],
  ] as const
) {
  test(`--service-init stands ${name} the verb`, () =>
    withServices(async ({ service, unit, calls }) => {
      const { code, stdout, stderr } = await service(argv);
      assert.equal(code, 0, stderr);
      assert.ok(stdout.includes(unit));
      assert.ok(calls().includes("systemctl --user enable postern.service"));
    }));
}

test("an unknown service manager is a wrong command line", () =>
  withServices(async ({ service }) => {
    const { code, stderr } = await service(["--service-init", "upstart", "install"]);
    assert.deepEqual([code, stderr.includes("systemd, openrc")], [2, true]);
  }));

test("where no service manager runs, that is said with what to do", {
  skip: detectInit({ platform: process.platform }) !== undefined && "a service manager runs on this machine",
}, () =>
  withServices(async ({ service }) => {
    for (const verb of ["install", "start", "status", "restart", "stop", "uninstall"]) {
      const { code, stderr } = await service([verb]);
      assert.equal(code, 1);
      assert.match(stderr, /^Cannot find a service manager: .*--service-init.*postern daemon start$/m);
    }
  }));

test("OpenRC's service is refused to anyone but root", {
  skip: process.getuid?.() === 0 && "this user is root, and the machine's own service is left alone",
}, () =>
  withServices(async ({ service }) => {
    const { code, stderr } = await service(["--service-init", "openrc", "install"]);
    assert.equal(code, 1);
    assert.match(stderr, /needs root; use sudo/);
  }));

test("the service runs this program by the configuration in use here, named by its absolute path", () =>
  withServices(async ({ service, unit, cwd, dataDir }) => {
    const config = join(cwd, "my own.toml");
    writeFileSync(config, '[gateway]\nshutdown_grace_secs = 7\n[channels.ci]\nsecret_env = "CI_SIGNATURE"\n');
    const { code, stderr } = await service(["--service-init", "systemd", "install", "--config", "my own.toml"], {
      OPENAI_API_KEY: "sk-very-secret-key",
      CI_SIGNATURE: "a-signature",
    });
    assert.equal(code, 0, stderr);
    const text = readFileSync(unit, "utf8");
    const described = readServiceMark(text);
    assert.deepEqual(described?.command, [
      ...("Deno" in globalThis ? [process.execPath, "run", "--allow-all", "--no-check"] : [process.execPath]),
      MAIN,
      "daemon",
      "start",
      "--foreground",
      `--data-dir=${dataDir}`,
      `--config=${config}`,
    ]);
    assert.equal(described?.directory, dataDir);
    assert.match(text, /^TimeoutStopSec=22$/m);
    // Variables that only this terminal has are named, and are in no file
    assert.match(stderr, /does not see CI_SIGNATURE, OPENAI_API_KEY, POSTERN__PROVIDER__KIND of this terminal/);
    assert.doesNotMatch(text, /sk-very-secret-key|OPENAI_API_KEY/);
  }));

test("a configuration that cannot work is refused before anything is written", () =>
  withServices(async ({ service, unit, cwd, calls }) => {
    writeFileSync(join(cwd, "bad.toml"), '[gateway]\nhost = "0.0.0.0"\n');
    const { code } = await service(["install", "--service-init", "systemd", "--config", "bad.toml"]);
    assert.deepEqual([code, existsSync(unit), calls()], [78, false, []]);
  }));

test("start, restart and stop reach the service manager; before the installation they say so", () =>
  withServices(async ({ service, calls }) => {
    for (const verb of ["start", "restart", "stop"]) {
      const early = await service([verb, "--service-init", "systemd"]);
      assert.equal(early.code, 1);
      assert.match(early.stderr, /it is not installed; install it with postern service install/);
    }
    await service(["install", "--service-init", "systemd"]);
    for (const verb of ["start", "restart", "stop"]) {
      assert.equal((await service([verb, "--service-init", "systemd"])).code, 0);
      assert.ok(calls().includes(`systemctl --user ${verb} postern.service`));
    }
  }));

test("the service is running only when its unit runs and its port answers", () =>
  withServices(async (machine) => {
    const { service, says, withGateway } = machine;
    const status = async () => {
      const { code, stdout } = await service(["status", "--service-init", "systemd", "--json"]);
      assert.equal(code, 0);
      return JSON.parse(stdout) as Record<string, unknown>;
    };
    assert.deepEqual(await status().then(({ running, installed, address }) => [running, installed, address]), [
      false,
      false,
      null,
    ]);
    writeFileSync(join(machine.cwd, "own.toml"), "[gateway]\nport = 1\n");
    await service(["install", "--service-init", "systemd", "--config", "own.toml"]);
    says("active");
    const silent = await status();
    assert.deepEqual([silent["running"], silent["unit"], silent["health"]], [false, "running", "silent"]);
    await withGateway([], async ({ address }) => {
      const both = await status();
      assert.deepEqual([both["running"], both["health"], both["address"]], [true, "ok", address]);
      says("failed");
      const other = await status();
      assert.deepEqual([other["running"], other["unit"], other["health"]], [false, "failed", "ok"]);
      assert.match((await service(["status", "--service-init", "systemd"])).stdout, /another gateway answers/);
    });
  }));

test("the status of a service whose configuration was spoilt tells the unit's state, and what is wrong", () =>
  withServices(async ({ service, says, cwd }) => {
    const config = join(cwd, "own.toml");
    writeFileSync(config, "");
    await service(["install", "--service-init", "systemd", "--config", config]);
    writeFileSync(config, "nonsense = 1\n");
    says("failed");
    const { code, stdout, stderr } = await service(["status", "--service-init", "systemd", "--json"]);
    const { running, unit, address } = JSON.parse(stdout);
    assert.deepEqual([code, running, unit, address], [0, false, "failed", null]);
    assert.match(stderr, /nonsense/);
  }));

test("uninstall removes the unit, is no failure twice, and keeps the records", () =>
  withServices(async ({ service, unit, dataDir }) => {
    await service(["install", "--service-init", "systemd"]);
    for (let time = 0; time < 2; time++) {
      assert.equal((await service(["uninstall", "--service-init", "systemd"])).code, 0);
      assert.equal(existsSync(unit), false);
    }
    assert.equal(existsSync(dataDir), true);
  }));

test("as a service the daemon tells systemd of itself, prints no pairing code, works in a folder of its own, and hides the socket from tools", () =>
  withServices(async ({ home, cwd, dataDir, run }) => {
    const told = join(home, "told");
    const notify = `#!/bin/sh\necho "$NOTIFY_SOCKET $*" >> '${told}'\n`;
    writeFileSync(join(home, "bin/systemd-notify"), notify, { mode: 0o755 });
    const tells = () => (existsSync(told) ? readFileSync(told, "utf8") : "");
    const daemon = await startPostern(["daemon", "start", "--foreground", "--port", "0"], {
      cwd,
      env: {
        PATH: `${join(home, "bin")}:/usr/bin:/bin`,
        HOME: home,
        POSTERN_SERVICE: "systemd",
        NOTIFY_SOCKET: "/run/user/1/notify",
        WATCHDOG_USEC: "200000",
        POSTERN__PROVIDER__KIND: "offline",
        POSTERN__SECURITY__ALLOWED_COMMANDS: '["env"]',
        POSTERN__SECURITY__SHELL__SANDBOX: "off",
      },
      ready: /The daemon listens/,
    });
    try {
      await until(() => tells().includes("WATCHDOG=1"), () => daemon.output());
      const record = await readControlFile(dataDir);
      assert.equal(record?.workspace, join(dataDir, "workspace"));
      const reply = await fetch(`${record?.address}v1/tools/shell/call`, {
        method: "POST",
        headers: { authorization: `Bearer ${record?.token}`, "content-type": "application/json" },
        body: JSON.stringify({ input: "env", approved: true }),
      });
      const text = await reply.text();
      assert.match(text, /status=0/);
      assert.doesNotMatch(text, /NOTIFY_SOCKET|WATCHDOG|POSTERN_SERVICE/);
      const stopped = await run(["daemon", "stop"]);
      assert.deepEqual([stopped.code, stopped.stdout], [0, `Stopped the daemon (process ${daemon.pid})\n`]);
      assert.match(stopped.stderr, /The daemon ran under systemd, which may start it again: postern service stop/);
      assert.equal(await daemon.ended, 0);
    } finally {
      await daemon.end("SIGKILL");
    }
    const output = daemon.output();
    assert.match(tells(), /^\/run\/user\/1\/notify READY=1 STATUS=Listening at http:\S+\n/);
    assert.match(tells(), /STOPPING=1\n/);
    assert.doesNotMatch(output, /Pairing code/);
    assert.match(output, /The daemon has ended/);
    assert.match(readFileSync(join(dataDir, "daemon.log"), "utf8"), /The daemon has ended/);
  }));

test("a daemon whose supervisor of OpenRC was killed ends in good order", () =>
  withServices(async ({ home, cwd, dataDir }) => {
    const supervisor = await startProcess([
      "sh",
      "-c",
      '"$@" & wait',
      "sh",
      ...RUN,
      MAIN,
      "daemon",
      "start",
      "--foreground",
    ], {
      cwd,
      env: {
        ...RUN_ENV,
        ...{ HOME: home, POSTERN_SERVICE: "openrc", POSTERN__PROVIDER__KIND: "offline", POSTERN__GATEWAY__PORT: "0" },
      },
      ready: /The daemon listens/,
    });
    try {
      process.kill(supervisor.pid ?? 0, "SIGKILL");
      await until(() => !existsSync(join(dataDir, "daemon.pid")), () => supervisor.output());
      await supervisor.ended;
      assert.match(supervisor.output(), /The daemon has ended/);
    } finally {
      const left = await readPidFile(dataDir);
      if (left?.kind === "alive") killIfThere(left.process.pid);
    }
  }));

test("what keeps a service from starting is in its log", () =>
  withServices(async ({ cwd, dataDir, run }) => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    writeFileSync(join(cwd, "bad.toml"), "[gateway]\nprot = 1\n");
    const { code } = await run(["daemon", "start", "--foreground", "--config", "bad.toml"]);
    assert.equal(code, 78);
    const log = () => readFileSync(join(dataDir, "daemon.log"), "utf8");
    assert.match(log(), /error The daemon does not start: .*gateway\.prot/);
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    const taken = await run(["daemon", "start", "--foreground", "--port", String(port)]);
    other.close();
    assert.equal(taken.code, 1);
    assert.match(log(), new RegExp(`error The daemon does not start: .*${port}.* in use`));
    const lock = takeGatewayLock(dataDir, "daemon.lock");
    const { pid } = process;
    const identity = await processIdentity(pid) ?? "";
    await writePidFile(dataDir, { pid, identity, phase: "running", leads_group: false, grace_seconds: 0 });
    assert.equal((await run(["daemon", "start", "--foreground"])).code, 1);
    lock?.release();
    assert.match(
      log(),
      new RegExp(`error The daemon does not start: .*a daemon \\(process ${pid}\\) runs on .* already`),
    );
  }));
