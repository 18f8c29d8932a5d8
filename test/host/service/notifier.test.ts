import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createNotifier } from "../../../lib/host/service/create_notifier.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

/** A program called systemd-notify that writes down what it is told, and by whom. */
function fakeNotify(folder: string): { readonly path: string; calls(): readonly string[] } {
  const log = join(folder, "calls");
  writeFileSync(join(folder, "systemd-notify"), `#!/bin/sh\necho "$NOTIFY_SOCKET $*" >> '${log}'\n`, { mode: 0o755 });
  return {
    path: `${folder}:${process.env["PATH"]}`,
    calls: () => (existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : []),
  };
}

const base = { pid: 7, answers: () => Promise.resolve(true), onError: (message: string) => assert.fail(message) };

test("systemd is told when the service works, that it still does, and when it stops", () =>
  withTemporaryFolder(async (folder) => {
    const { path, calls } = fakeNotify(folder);
    const clock = createFakeClock();
    let works = true;
    const notifier = createNotifier({
      ...base,
      clock,
      env: { PATH: path, NOTIFY_SOCKET: "/run/x", WATCHDOG_USEC: "20000000", WATCHDOG_PID: "7" },
      answers: () => Promise.resolve(works),
    });
    await notifier.ready("Listening at\nsome address");
    assert.deepEqual(calls(), ["/run/x READY=1 STATUS=Listening at some address"]);
    await clock.advance(10_000);
    works = false;
    await clock.advance(10_000);
    await notifier.stopping();
    await notifier.close();
    assert.deepEqual(calls().slice(1).sort(), ["/run/x STOPPING=1", "/run/x WATCHDOG=1"]);
    assert.equal(clock.pending(), 0);
  }));

for (
  const [name, env] of Object.entries({
    nobody: {},
    "another process": { WATCHDOG_USEC: "1000000", WATCHDOG_PID: "8" },
  })
) {
  test(`where systemd watches ${name}, it is told nothing on the way`, () =>
    withTemporaryFolder(async (folder) => {
      const { path, calls } = fakeNotify(folder);
      const clock = createFakeClock();
      const notifier = createNotifier({ ...base, clock, env: { PATH: path, NOTIFY_SOCKET: "@x", ...env } });
      await notifier.ready("Works");
      assert.equal(clock.pending(), 0);
      await notifier.close();
      assert.equal(calls().length, 1);
    }));
}

test("without systemd nothing is run", async () => {
  const notifier = createNotifier({ ...base, clock: createFakeClock(), env: { PATH: "/nowhere" } });
  await notifier.ready("Works");
  await notifier.stopping();
  await notifier.close();
});

test("a missing systemd-notify is said, and is no failure", async () => {
  const said: string[] = [];
  const env = { PATH: "/nowhere", NOTIFY_SOCKET: "/run/x" };
  const notifier = createNotifier({ ...base, clock: createFakeClock(), env, onError: (message) => said.push(message) });
  await notifier.ready("Works");
  assert.match(said[0] ?? "", /^Cannot tell systemd READY=1: .*ENOENT/);
});

test("what is told really arrives at a socket", (context) =>
  withTemporaryFolder(async (folder) => {
    for (const program of ["systemd-notify", "python3"]) {
      if (spawnSync(program, ["--version"]).error !== undefined) return context.skip(`${program} is not installed`);
    }
    const socket = join(folder, "notify");
    const listener = spawn("python3", ["-uc", LISTEN, socket], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(listener, "close");
    let heard = "";
    listener.stdout.on("data", (part) => (heard += part));
    try {
      await until(() => heard.includes("listening"));
      const env = { PATH: process.env["PATH"], NOTIFY_SOCKET: socket, WATCHDOG_USEC: "100000" };
      const notifier = createNotifier({ ...base, clock: systemClock, env });
      await notifier.ready("Works");
      await until(() => heard.includes("WATCHDOG=1"));
      await notifier.stopping();
      await notifier.close();
      await until(() => heard.includes("STOPPING=1"));
    } finally {
      listener.kill("SIGKILL");
      await ended;
    }
    assert.match(heard, /READY=1 STATUS=Works/);
  }));

/** Prints each message; a barrier's descriptor is closed, which is what systemd-notify waits for. */
const LISTEN = `
import socket, sys, os
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(sys.argv[1]); print("listening")
while True:
    data, fds, _, _ = socket.recv_fds(s, 4096, 4)
    for fd in fds: os.close(fd)
    print(data.decode().strip().replace("\\n", " "))
`;
