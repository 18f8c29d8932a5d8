import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { readControlFile } from "../../../lib/host/control_file.ts";
import { readPidFile, writePidFile } from "../../../lib/host/daemon/daemon_state.ts";
import { processIdentity } from "../../../lib/host/process_identity.ts";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { isGone } from "../../support/is_gone.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import { startPostern } from "../../support/postern_process.ts";
import { until } from "../../support/until.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const SECRET = "sk-very-secret-key-of-the-daemon";
/** Facts that only a running daemon has */
const FACTS =
  "pid uptime_seconds address host port started_at version log_file workspace health cluster provider provider_reason " +
  "containment config_needs_restart config_problem";
const STOPPED = { running: false, ...Object.fromEntries(FACTS.split(" ").map((name) => [name, null])) };

type Status = Readonly<Record<string, unknown>> & { readonly pid: number; readonly address: string };

/** A machine on which no daemon is left running. */
function withDaemon(use: (machine: Machine & { start: () => Promise<Status> }) => Promise<void>): Promise<void> {
  return onMachine(async (machine) => {
    const start = async () => {
      const { code, stdout, stderr } = await machine.run(["daemon", "start", "--port", "0", "--json"], {
        env: { OPENAI_API_KEY: SECRET },
      });
      assert.equal(code, 0, stderr);
      return JSON.parse(stdout) as Status;
    };
    try {
      await use({ ...machine, start });
    } finally {
      const left = await readPidFile(machine.dataDir);
      if (left?.kind === "alive") {
        killIfThere(left.process.pid);
        await isGone(String(left.process.pid));
      }
    }
  });
}

const statusOf = async ({ run }: Machine) => {
  const { code, stdout } = await run(["daemon", "status", "--json"]);
  assert.equal(code, 0);
  return JSON.parse(stdout) as Status;
};

/** Waits until a start has got as far as its PID file, or has ended. */
async function untilStarted({ dataDir }: Machine, starting: Promise<unknown>): Promise<void> {
  let ended = false;
  void starting.finally(() => ended = true);
  await until(async () => ended || (await readPidFile(dataDir))?.kind === "alive", "the start does not begin");
}

/** A process that is no gateway, written into the PID file as if it were one. */
async function withStranger(
  { dataDir }: Machine,
  phase: "starting" | "running" | "stopping",
  use: (pid: number) => Promise<void>,
): Promise<void> {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const child = spawn("sleep", ["60"]);
  const ended = once(child, "exit");
  const pid = child.pid ?? 0;
  try {
    const identity = await processIdentity(pid) ?? "";
    await writePidFile(dataDir, { pid, identity, phase, leads_group: false, grace_seconds: 0 });
    await use(pid);
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
}

test("start answers once /health does, status tells all of it, stop ends it and leaves no PID file", () =>
  withDaemon(async (machine) => {
    const started = await machine.start();
    const health = await fetch(`${started.address}health`);
    assert.equal(health.status, 200);
    await health.body?.cancel();
    const status = await statusOf(machine);
    const { pairing_code: _, uptime_seconds: __, ...facts } = started;
    const { uptime_seconds: uptime, ...rest } = status;
    assert.deepEqual(rest, facts);
    assert.deepEqual(rest, {
      running: true,
      state: "running",
      pid: started.pid,
      address: `http://127.0.0.1:${started["port"]}/`,
      host: "127.0.0.1",
      port: Number(new URL(started.address).port),
      started_at: started["started_at"],
      version: started["version"],
      log_file: join(machine.dataDir, "daemon.log"),
      workspace: machine.cwd,
      health: "ok",
      cluster: null,
      provider: "offline/assistant",
      provider_reason: "the configuration names it",
      containment: started["containment"],
      config_needs_restart: [],
      config_problem: null,
    });
    assert.match(String(started["containment"]), /^Commands are (contained by bubblewrap$|not contained: )/);
    assert.ok(Number(uptime) >= 0 && Number(uptime) < 60);
    assert.match(String(started["started_at"]), /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    assert.equal(readFileSync(join(machine.dataDir, "daemon.pid"), "utf8").split("\n")[0], String(started.pid));
    assert.equal(statSync(join(machine.dataDir, "daemon.pid")).mode & 0o777, 0o600);
    const stopped = await machine.run(["daemon", "stop"]);
    assert.deepEqual([stopped.code, stopped.stdout], [0, `Stopped the daemon (process ${started.pid})\n`]);
    assert.ok(await isGone(String(started.pid)));
    assert.deepEqual(await statusOf(machine), { ...STOPPED, state: "stopped" });
    for (const name of ["daemon.pid", "control.json"]) {
      assert.equal(existsSync(join(machine.dataDir, name)), false, name);
    }
    assert.match(readFileSync(join(machine.dataDir, "daemon.log"), "utf8"), /The daemon has ended/);
  }));

test("the pairing code is told to the terminal of the start, works, and is in no log", () =>
  withDaemon(async ({ run, dataDir }) => {
    const { stdout } = await run(["daemon", "start", "--port", "0"]);
    const code = /^Pairing code: ((?:\w{4}-){3}\w{4})$/m.exec(stdout)?.[1] ?? "";
    const address = /http:\S+\/$/m.exec(stdout)?.[0] ?? "";
    const paired = await fetch(`${address}pair`, { method: "POST", headers: { "x-pairing-code": code } });
    assert.equal(paired.status, 200);
    await paired.body?.cancel();
    let log = "";
    // The daemon answers a moment before its log says so
    await until(() => /The daemon listens/.test(log = readFileSync(join(dataDir, "daemon.log"), "utf8")), () => log);
    for (const secret of [code, (await readControlFile(dataDir))?.token ?? ""]) {
      assert.ok(secret !== "" && !log.includes(secret));
    }
    assert.equal((await run(["daemon", "stop"])).code, 0);
    const again = await run(["daemon", "start", "--port", "0"]);
    assert.match(again.stdout, /Paired already/);
    assert.doesNotMatch(again.stdout, /Pairing code:/);
  }));

test(
  "a daemon has a session of its own, nothing of the terminal, and no secret in its environment, though it has the key",
  {
    skip: process.platform !== "linux" && "there is no /proc",
  },
  () =>
    withDaemon(async ({ start }) => {
      const { pid, address } = await start();
      const environ = readFileSync(`/proc/${pid}/environ`, "utf8");
      assert.doesNotMatch(environ, new RegExp(`${SECRET}|POSTERN__`));
      assert.ok(!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(SECRET));
      const [state, , group, session, terminal] =
        readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
      // D: it waits for the disk
      assert.match(state ?? "", /[SRD]/);
      assert.deepEqual([group, session, terminal], [String(pid), String(pid), "0"]);
      // POSTERN__PROVIDER__KIND came through the pipe
      const health = await fetch(`${address}health`);
      assert.match(await health.text(), /"status":"ok"/);
    }),
);

test("a second start is refused by name, and leaves the first alone", () =>
  withDaemon(async (machine) => {
    const { pid, address } = await machine.start();
    const second = await machine.run(["daemon", "start", "--port", "0"]);
    assert.equal(second.code, 1);
    assert.ok(second.stderr.includes(address) && second.stderr.includes(`process ${pid}`), second.stderr);
    const inForeground = await machine.run(["daemon", "start", "--foreground", "--port", "0"]);
    assert.equal(inForeground.code, 1);
    assert.ok(inForeground.stderr.includes(`process ${pid}`), inForeground.stderr);
    assert.equal((await statusOf(machine)).pid, pid);
  }));

test("of two starts at once one wins, and the other names it", () =>
  withDaemon(async (machine) => {
    const both = await Promise.all([1, 2].map(() => machine.run(["daemon", "start", "--port", "0", "--json"])));
    assert.deepEqual(both.map(({ code }) => code).sort(), [0, 1], JSON.stringify(both));
    const winner = JSON.parse(both.find(({ code }) => code === 0)?.stdout ?? "") as Status;
    const loser = both.find(({ code }) => code === 1);
    assert.match(loser?.stderr ?? "", new RegExp(`process ${winner.pid}\\b`));
    assert.equal((await statusOf(machine)).pid, winner.pid);
  }));

test("a start beside a gateway in a terminal is refused by name; status and stop tell of it", () =>
  withDaemon(async ({ withGateway, run }) => {
    await withGateway([], async ({ address }) => {
      const start = await run(["daemon", "start", "--port", "0"]);
      assert.equal(start.code, 1);
      const stop = await run(["daemon", "stop"]);
      assert.equal(stop.code, 1);
      const status = await run(["daemon", "status"]);
      assert.match(status.stdout, /^No daemon is running/);
      for (const text of [start.stderr, stop.stderr, status.stdout]) assert.ok(text.includes(address), text);
    });
  }));

test("stop without a daemon fails; status without one does not", () =>
  withDaemon(async (machine) => {
    assert.deepEqual(await statusOf(machine), { ...STOPPED, state: "stopped" });
    const { code, stderr } = await machine.run(["daemon", "stop"]);
    assert.deepEqual([code, stderr], [1, "Cannot stop: no daemon is running\n"]);
  }));

test("after kill -9 status says stale, stop cleans up, and the next start works, also over a file that others can read", () =>
  withDaemon(async (machine) => {
    for (const cleans of [true, false]) {
      const { pid } = await machine.start();
      process.kill(pid, "SIGKILL");
      assert.ok(await isGone(String(pid)));
      assert.deepEqual(await statusOf(machine), { ...STOPPED, state: "stale" });
      if (!cleans) continue;
      assert.equal((await machine.run(["daemon", "stop"])).code, 1);
      assert.equal(existsSync(join(machine.dataDir, "daemon.pid")), false);
    }
    chmodSync(join(machine.dataDir, "daemon.pid"), 0o644);
    assert.equal((await machine.start())["state"], "running");
  }));

test("a start waits for the lock of a killed daemon, whose files the system may still be closing", () =>
  withDaemon(async (machine) => {
    mkdirSync(machine.dataDir, { recursive: true, mode: 0o700 });
    const lock = takeGatewayLock(machine.dataDir, "daemon.lock") ?? assert.fail("somebody has the lock");
    const starting = machine.start();
    await systemClock.sleep(3_000);
    lock.release();
    assert.equal((await starting)["state"], "running");
  }));

test("a PID file whose number another process has got is stale: nobody is signalled, and a start goes ahead", () =>
  withDaemon(async (machine) => {
    await withStranger(machine, "running", async (pid) => {
      const path = join(machine.dataDir, "daemon.pid");
      const identity = await processIdentity(pid) ?? "";
      writeFileSync(
        path,
        readFileSync(path, "utf8").replace(identity, identity.replace(/\d$/, (digit) => digit === "1" ? "2" : "1")),
      );
      assert.deepEqual(await statusOf(machine), { ...STOPPED, state: "stale" });
      assert.equal((await machine.run(["daemon", "stop"])).code, 1);
      process.kill(pid, 0);
      assert.notEqual((await machine.start()).pid, pid);
    });
  }));

for (
  const [name, spoil] of [
    ["damaged", (path: string) => writeFileSync(path, "12")],
    ["empty", (path: string) => writeFileSync(path, "")],
    ["readable by others", (path: string) => chmodSync(path, 0o644)],
  ] as const
) {
  test(`a PID file that is ${name} is not believed: nobody is signalled`, () =>
    withDaemon(async (machine) => {
      await withStranger(machine, "running", async (pid) => {
        spoil(join(machine.dataDir, "daemon.pid"));
        assert.equal((await statusOf(machine))["state"], "stale");
        assert.equal((await machine.run(["daemon", "stop"])).code, 1);
        process.kill(pid, 0);
      });
    }));
}

for (const phase of ["starting", "stopping"] as const) {
  test(`a daemon that is ${phase} is not running yet or no more: status says so, and a start is refused`, () =>
    withDaemon(async (machine) => {
      await withStranger(machine, phase, async (pid) => {
        assert.deepEqual(await statusOf(machine), { ...STOPPED, state: phase });
        const start = await machine.run(["daemon", "start", "--port", "0"]);
        assert.equal(start.code, 1);
        assert.match(start.stderr, new RegExp(`a daemon is ${phase} already \\(process ${pid}\\)`));
        const stopping = machine.run(["daemon", "stop", "--json"]);
        if (phase === "stopping") {
          // A daemon that is stopping is waited for and not told again. Nothing shows that the file was read by now. In steps, so that
          // the command comes to its turn in between where this process stands still for a while
          for (let step = 0; step < 100; step++) await systemClock.sleep(20);
          process.kill(pid, "SIGTERM");
        }
        const stop = await stopping;
        assert.deepEqual(JSON.parse(stop.stdout), { pid, ended_by: "itself" });
        assert.equal((await statusOf(machine))["state"], "stopped");
      });
    }));
}

test("a stop during a start ends it: the start fails, nothing is left", () =>
  withDaemon(async (machine) => {
    const starting = machine.run(["daemon", "start", "--port", "0"]);
    await untilStarted(machine, starting);
    const stop = await machine.run(["daemon", "stop"]);
    assert.equal(stop.code, 0, stop.stderr);
    const { code, stderr } = await starting;
    if (code !== 0) assert.match(stderr, /^Cannot (start the daemon: it ended|reach the gateway)/);
    assert.deepEqual(await statusOf(machine), { ...STOPPED, state: "stopped" });
  }));

test("an interrupted start leaves no process", () =>
  withDaemon(async (machine) => {
    let interrupt = () => {};
    const starting = machine.run(["daemon", "start", "--port", "0"], { onInterruptible: (each) => (interrupt = each) });
    await untilStarted(machine, starting);
    interrupt();
    const { code } = await starting;
    if (code === 0) return;
    assert.equal((await statusOf(machine))["running"], false);
  }));

test("a start that fails ends with exit 1 and the last lines of the log, and leaves no process", () =>
  withDaemon(async ({ withGateway, run, dataDir }) => {
    await withGateway(["--data-dir", join(dataDir, "../other")], async ({ address }) => {
      const { code, stderr } = await run(["daemon", "start", "--port", new URL(address).port]);
      assert.equal(code, 1);
      assert.match(
        stderr,
        /^Cannot start the daemon: it ended with exit code 1; the last lines of .*daemon\.log are\n/,
      );
      assert.match(stderr, /the port is in use/);
      assert.equal(await readPidFile(dataDir), undefined);
    });
  }));

test("a configuration that cannot work is told before anything is started", () =>
  withDaemon(async ({ run, dataDir }) => {
    const host = await run(["daemon", "start", "--host", "0.0.0.0"]);
    assert.deepEqual([host.code, existsSync(dataDir)], [78, false]);
    assert.equal((await run(["daemon", "start", "--port", "none"])).code, 2);
  }));

test("a log that cannot be written makes the daemon degraded, not ended; what was lost is said", () =>
  withDaemon(async (machine) => {
    const { address } = await machine.start();
    const log = join(machine.dataDir, "daemon.log");
    const healthIs = (wanted: string) =>
      until(async () => {
        const said = JSON.parse(await (await fetch(`${address}health`)).text()) as { status: string };
        if (said.status === wanted) return true;
        // Each request is a line that may be lost
        await (await fetch(`${address}v1/models`)).body?.cancel();
        return false;
      }, `it never said ${wanted}`);
    rmSync(log);
    mkdirSync(log);
    await healthIs("degraded");
    assert.equal((await statusOf(machine))["health"], "degraded");
    rmdirSync(log);
    await healthIs("ok");
    assert.match(readFileSync(log, "utf8"), /error Log lines were lost dropped=\d+/);
  }));

test("a disk that is full when the daemon is told to end does not cut off the work that finishes", (context) =>
  withDaemon(async ({ home, dataDir }) => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=2m,mode=700", "postern-test", dataDir]).status !== 0) {
      return context.skip("this user cannot mount a small file system");
    }
    const asked = Promise.withResolvers<ServerResponse>();
    const upstream = createServer((request, reply) => {
      // A look at what the model takes comes by itself
      if (request.url?.endsWith("/completions") === true) asked.resolve(reply);
      else reply.end("{}");
    }).listen(0, "127.0.0.1");
    await once(upstream, "listening");
    try {
      const { port } = upstream.address() as AddressInfo;
      const daemon = await startPostern(["daemon", "start", "--foreground", "--port", "0"], {
        env: {
          HOME: home,
          POSTERN__PROVIDER__KIND: "openai_compatible",
          POSTERN__PROVIDER__BASE_URL: `http://127.0.0.1:${port}/v1`,
          POSTERN__PROVIDER__MODEL: "m",
        },
        ready: /The daemon listens/,
      });
      try {
        const record = await readControlFile(dataDir);
        const answer = fetch(`${record?.address}v1/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${record?.token}`, "content-type": "application/json" },
          body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }] }),
        });
        const reply = await asked.promise;
        assert.throws(() => writeFileSync(join(dataDir, "filler"), new Uint8Array(4_000_000)), /ENOSPC/);
        const end = daemon.end("SIGTERM");
        await daemon.until(/The PID file does not tell that the daemon stops/);
        reply.setHeader("content-type", "application/json");
        const message = { role: "assistant", content: "Whole" };
        reply.end(JSON.stringify({ id: "x", model: "m", choices: [{ index: 0, message, finish_reason: "stop" }] }));
        assert.match(await (await answer).text(), /Whole/);
        assert.equal(await end, 0, daemon.output());
      } finally {
        await daemon.end("SIGKILL");
      }
      assert.deepEqual(["daemon.pid", "control.json"].filter((name) => existsSync(join(dataDir, name))), []);
    } finally {
      upstream.closeAllConnections();
      upstream.close();
      spawnSync("umount", ["-l", dataDir]);
    }
  }));

for (const family of ["IPv4", "IPv6"]) {
  const host = addressOf(family);
  test(`a daemon that listens on one ${family} address of the machine alone is found there, and its token stays here`, {
    skip: host === undefined && `this machine has no ${family} address but loopback`,
  }, () =>
    withDaemon(async (machine) => {
      const env = { POSTERN__GATEWAY__ALLOW_PUBLIC_BIND: "true" };
      const started = await machine.run(["daemon", "start", "--host", host ?? "", "--port", "0", "--json"], { env });
      assert.equal(started.code, 0, started.stderr);
      assert.match(started.stderr, /there is no pairing code: .*over the loopback interface alone/);
      const { address, port, health, pairing_code } = JSON.parse(started.stdout);
      assert.equal(address, `http://${family === "IPv6" ? `[${host}]` : host}:${port}/`);
      assert.deepEqual([health, pairing_code], ["ok", null]);
      assert.equal((await readControlFile(machine.dataDir))?.token, "");
      assert.equal((await statusOf(machine))["health"], "ok");
      const listed = await machine.run(["runs", "list"]);
      assert.equal(listed.code, 1);
      assert.match(listed.stderr, /Cannot work with the gateway at .*; set gateway\.host to "0\.0\.0\.0", or stop it/);
      assert.equal((await machine.run(["daemon", "stop"])).code, 0);
      assert.equal(existsSync(join(machine.dataDir, "control.json")), false);
    }));
}

for (const [how, signal] of [["thrown", "SIGUSR2"], ["rejected", "SIGWINCH"]] as const) {
  test(`an error that nothing caught ends the daemon, and no secret of it reaches the log: ${how}`, {
    skip: "Deno" in globalThis && "Deno has no --import in NODE_OPTIONS",
  }, () =>
    withDaemon(async (machine) => {
      const fault = join(machine.home, "fault.mjs");
      writeFileSync(
        fault,
        `process.on("SIGUSR2", () => { throw new Error("Cannot send ${SECRET}"); });
process.on("SIGWINCH", () => void Promise.reject(new Error("Cannot send ${SECRET}")));`,
      );
      const { code, stderr, stdout } = await machine.run(["daemon", "start", "--port", "0", "--json"], {
        env: { OPENAI_API_KEY: SECRET, NODE_OPTIONS: `--import=${fault}` },
      });
      assert.equal(code, 0, stderr);
      const { pid } = JSON.parse(stdout) as Status;
      process.kill(pid, signal);
      await isGone(String(pid));
      const log = readFileSync(join(machine.dataDir, "daemon.log"), "utf8");
      assert.match(log, /error The process ends after an error that nothing caught .*Cannot send \[redacted\]/);
      assert.ok(!log.includes(SECRET), log);
    }));
}

/** Returns an address that other machines could reach; undefined where there is none. Link-local ones need an interface's name beside them. */
function addressOf(family: string): string | undefined {
  return Object.values(networkInterfaces()).flat().find((each) =>
    each?.family === family && !each.internal && !each.address.startsWith("fe80:")
  )?.address;
}

test("a configuration that was spoilt since the start does not keep the daemon from being found and stopped", () =>
  withDaemon(async (machine) => {
    const config = join(machine.cwd, "own.toml");
    const elsewhere = join(machine.cwd, "records");
    writeFileSync(config, 'data_dir = "records"\n[gateway]\nport = 0\n');
    const named = ["--config", config];
    const start = await machine.run(["daemon", "start", "--json", ...named]);
    assert.equal(start.code, 0, start.stderr);
    const { pid } = JSON.parse(start.stdout) as Status;
    try {
      writeFileSync(config, 'data_dir = "records"\n[gateway]\nprot = 0\n');
      const status = await machine.run(["daemon", "status", "--json", ...named]);
      assert.equal((JSON.parse(status.stdout) as Status).pid, pid);
      assert.match(status.stderr, /gateway\.prot/);
      const stop = await machine.run(["daemon", "stop", ...named]);
      assert.equal(stop.stdout, `Stopped the daemon (process ${pid})\n`);
      assert.equal(await readPidFile(elsewhere), undefined);
    } finally {
      killIfThere(pid);
    }
  }));
