import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import {
  detectInit,
  type Ran,
  type RunProgram,
  type ServiceDescription,
  ServiceError,
} from "../../../lib/host/service/service_manager.ts";
import { createLaunchdService, toLaunchdPlist } from "../../../lib/host/service/launchd_service.ts";
import { createOpenrcService, toOpenrcScript } from "../../../lib/host/service/openrc_service.ts";
import { createSystemdService, toSystemdUnit } from "../../../lib/host/service/systemd_service.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const DESCRIPTION: ServiceDescription = {
  command: [
    ...["/usr/bin/node", "/opt/postern/main.js", "daemon", "start", "--foreground"],
    "--config=/etc/postern/postern.toml",
  ],
  directory: "/var/lib/postern",
  graceSeconds: 30,
};

/** Programs that answer as `answers` says, by the beginning of the call, and else succeed in silence. */
function programs(answers: Readonly<Record<string, Partial<Ran>>> = {}): { run: RunProgram; readonly calls: string[] } {
  const calls: string[] = [];
  return {
    calls,
    run(program, args) {
      const call = [program, ...args].join(" ");
      calls.push(call);
      const key = Object.keys(answers).find((begin) => call.startsWith(begin));
      return Promise.resolve({ code: 0, stdout: "", stderr: "", ...(key === undefined ? {} : answers[key]) });
    },
  };
}

const SHOW = (active: string, sub: string, file: string) => ({
  "systemctl --user show": {
    stdout: `LoadState=loaded\nActiveState=${active}\nSubState=${sub}\nUnitFileState=${file}\n`,
  },
});

test("systemd: install writes the unit and enables it; a second time nothing changes; uninstall leaves nothing", () =>
  withTemporaryFolder(async (home) => {
    const { run, calls } = programs({ ...SHOW("inactive", "dead", "enabled"), loginctl: { stdout: "Linger=yes\n" } });
    const manager = createSystemdService({ env: {}, home, run });
    assert.equal(manager.file, join(home, ".config/systemd/user/postern.service"));
    assert.deepEqual(await manager.install(DESCRIPTION), []);
    assert.equal(readFileSync(manager.file, "utf8"), toSystemdUnit(DESCRIPTION));
    assert.equal(statSync(manager.file).mode & 0o777, 0o644);
    const { mtimeMs } = statSync(manager.file);
    await manager.install(DESCRIPTION);
    assert.equal(statSync(manager.file).mtimeMs, mtimeMs);
    assert.ok(
      calls.includes("systemctl --user daemon-reload") && calls.includes("systemctl --user enable postern.service"),
    );
    calls.length = 0;
    await manager.uninstall();
    await manager.uninstall();
    assert.equal(existsSync(manager.file), false);
    assert.equal(calls.filter((call) => call === "systemctl --user disable --now postern.service").length, 1);
  }));

test("systemd: the unit is where the user's configuration is", () => {
  const file = (env: Record<string, string>) =>
    createSystemdService({ env, home: "/home/x", run: programs().run }).file;
  assert.equal(file({ XDG_CONFIG_HOME: "/conf" }), "/conf/systemd/user/postern.service");
  assert.equal(file({ XDG_CONFIG_HOME: "conf" }), "/home/x/.config/systemd/user/postern.service");
});

test("systemd: a changed unit of a running service asks for a restart, and one that does not linger for that", () =>
  withTemporaryFolder(async (home) => {
    const { run } = programs({ ...SHOW("active", "running", "enabled"), loginctl: { stdout: "Linger=no\n" } });
    const manager = createSystemdService({ env: { USER: "ann" }, home, run });
    const notes = await manager.install(DESCRIPTION);
    assert.match(notes.join("\n"), /postern service restart/);
    assert.match(notes.join("\n"), /loginctl enable-linger ann/);
    assert.doesNotMatch((await manager.install(DESCRIPTION)).join("\n"), /restart/);
  }));

test("systemd: its states, and a start that earlier failures do not forbid", () =>
  withTemporaryFolder(async (home) => {
    for (
      const [active, sub, expected] of [
        ["active", "running", "running"],
        ["activating", "auto-restart", "starting"],
        ["deactivating", "stop-sigterm", "stopping"],
        ["failed", "failed", "failed"],
        ["inactive", "dead", "stopped"],
      ] as const
    ) {
      const { run, calls } = programs(SHOW(active, sub, "disabled"));
      const manager = createSystemdService({ env: {}, home, run });
      const state = await manager.state();
      assert.deepEqual(state, { installed: false, enabled: false, active: expected, detail: `${active} (${sub})` });
      await manager.start();
      await manager.restart();
      await manager.stop();
      assert.deepEqual(calls.slice(1), [
        "systemctl --user reset-failed postern.service",
        "systemctl --user start postern.service",
        "systemctl --user reset-failed postern.service",
        "systemctl --user restart postern.service",
        "systemctl --user stop postern.service",
      ]);
    }
  }));

test("a refusal of the service manager is told in its own words, with what helps, and leaves no unit behind", () =>
  withTemporaryFolder(async (home) => {
    for (
      const [stderr, told] of [
        ["Access denied", /^Cannot install the service: systemctl says Access denied$/],
        ["Failed to connect to bus: No medium found", /No medium found; log in as this user .* postern daemon start$/],
        ["Failed to connect to user scope bus via local transport: $XDG_RUNTIME_DIR not defined", /; log in as /],
      ] as const
    ) {
      const { run } = programs({ "systemctl --user daemon-reload": { code: 1, stderr: `${stderr}\n` } });
      const manager = createSystemdService({ env: {}, home, run });
      await assert.rejects(manager.install(DESCRIPTION), (error) => {
        assert.ok(error instanceof ServiceError);
        assert.match(error.message, told);
        return true;
      });
      assert.equal(existsSync(manager.file), false);
    }
  }));

/** A file system of a machine with OpenRC. */
function withMachine(use: (root: string) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (root) => {
    for (const folder of ["usr/bin", "opt/postern", "etc/init.d", "etc/runlevels/default"]) {
      mkdirSync(join(root, folder), { recursive: true });
    }
    for (const folder of ["usr", "usr/bin", "opt", "opt/postern"]) chmodSync(join(root, folder), 0o755);
    await use(root);
  });
}

test("openrc: install makes user, folders, configuration and script; a second time nothing changes", () =>
  withMachine(async (root) => {
    const { run, calls } = programs({ "id -u postern": { code: 1 }, "rc-service postern status": { code: 3 } });
    const manager = createOpenrcService({ run, uid: 0, starterConfig: "# hello\n", root });
    assert.deepEqual(await manager.install(DESCRIPTION), []);
    assert.equal(readFileSync(manager.file, "utf8"), toOpenrcScript(DESCRIPTION));
    assert.equal(statSync(manager.file).mode & 0o777, 0o755);
    const config = join(root, "etc/postern/postern.toml");
    assert.equal(readFileSync(config, "utf8"), "# hello\n");
    assert.equal(statSync(config).mode & 0o777, 0o640);
    assert.equal(statSync(join(root, "var/lib/postern")).mode & 0o777, 0o700);
    const home = join(root, "var/lib/postern");
    assert.deepEqual(calls, [
      "id -u postern",
      `useradd --system --user-group --no-create-home --home-dir ${home} --shell /sbin/nologin postern`,
      `chown postern:postern ${home}`,
      `chown root:postern ${config}`,
      "rc-update add postern default",
      "rc-service postern status",
    ]);
    writeFileSync(config, "# mine\n");
    await manager.install(DESCRIPTION);
    assert.equal(readFileSync(config, "utf8"), "# mine\n");
  }));

test("openrc: a folder and a configuration that were named are used in place of the usual ones", () =>
  withMachine(async (root) => {
    const { run, calls } = programs({ "id -u postern": { code: 1 }, "rc-service postern status": { code: 3 } });
    const manager = createOpenrcService({ run, uid: 0, starterConfig: "# hello\n", root });
    const command = ["/usr/bin/node", "--config=/opt/my own.toml"];
    await manager.install({ ...DESCRIPTION, command, directory: "/srv/my records" });
    const home = join(root, "srv/my records");
    assert.ok(calls.includes(`chown postern:postern ${home}`));
    assert.equal(statSync(home).mode & 0o777, 0o700);
    assert.equal(existsSync(join(root, "etc/postern")), false);
    assert.equal(existsSync(join(root, "var/lib/postern")), false);
    assert.deepEqual(await manager.uninstall(), [
      "/opt/my own.toml, /srv/my records and the user postern are kept: they are yours to remove",
    ]);
    chmodSync(join(root, "opt"), 0o700);
    await assert.rejects(manager.install({ ...DESCRIPTION, command }), /cannot reach "\/opt\/my own\.toml"/);
  }));

test("openrc: where there is no useradd the user is made by BusyBox's programs", () =>
  withMachine(async (root) => {
    const { run, calls } = programs({ "id -u postern": { code: 1 } });
    const withoutUseradd: RunProgram = (program, args) =>
      program === "useradd" ? Promise.reject(new ServiceError("there is no such program")) : run(program, args);
    await createOpenrcService({ run: withoutUseradd, uid: 0, starterConfig: "", root }).install(DESCRIPTION);
    assert.ok(calls.includes("addgroup -S postern"));
    assert.match(calls.find((call) => call.startsWith("adduser")) ?? "", /-S -D -H .*-G postern postern$/);
  }));

test("openrc: uninstall stops the service, takes it from the runlevel and keeps what is the person's", () =>
  withMachine(async (root) => {
    const { run, calls } = programs();
    const manager = createOpenrcService({ run, uid: 0, starterConfig: "# hello\n", root });
    await manager.install(DESCRIPTION);
    symlinkSync(manager.file, join(root, "etc/runlevels/default/postern"));
    calls.length = 0;
    assert.match(
      (await manager.uninstall()).join(),
      /^\/etc\/postern\/postern\.toml, \/var\/lib\/postern and .*are kept/,
    );
    assert.deepEqual(await manager.uninstall(), []);
    assert.deepEqual(calls, ["rc-service --ifstarted postern stop", "rc-update del postern default"]);
    assert.equal(existsSync(manager.file), false);
    assert.equal(existsSync(join(root, "etc/postern/postern.toml")), true);
  }));

test("openrc: without root every change is refused and nothing is written", () =>
  withMachine(async (root) => {
    const { run, calls } = programs();
    const manager = createOpenrcService({ run, uid: 1000, starterConfig: "", root });
    for (
      const change of [
        () => manager.install(DESCRIPTION),
        manager.uninstall,
        manager.start,
        manager.stop,
        manager.restart,
      ]
    ) {
      await assert.rejects(change(), /needs root; use sudo$/);
    }
    assert.deepEqual(calls, []);
    assert.equal(existsSync(manager.file), false);
  }));

test("openrc: a program in a closed home folder is refused, since the service's user could not run it", () =>
  withMachine(async (root) => {
    chmodSync(join(root, "opt"), 0o700);
    const manager = createOpenrcService({ run: programs().run, uid: 0, starterConfig: "", root });
    await assert.rejects(
      manager.install(DESCRIPTION),
      /cannot reach "\/opt\/postern\/main\.js", since "\/opt" is closed/,
    );
    assert.equal(existsSync(manager.file), false);
  }));

test("openrc: its states", () =>
  withMachine(async (root) => {
    const stateOf = (code: number) =>
      createOpenrcService({
        run: programs({
          "rc-service postern status": { code, stdout: " * status: some\n", stderr: "udev needs mountkernfs\n" },
        }).run,
        uid: 1000,
        starterConfig: "",
        root,
      }).state();
    assert.deepEqual(await stateOf(0), {
      installed: false,
      enabled: false,
      active: "stopped",
      detail: "not installed",
    });
    await createOpenrcService({ run: programs().run, uid: 0, starterConfig: "", root }).install(DESCRIPTION);
    symlinkSync("/etc/init.d/postern", join(root, "etc/runlevels/default/postern"));
    for (
      const [code, active] of [[0, "running"], [3, "stopped"], [4, "stopping"], [8, "starting"], [
        32,
        "failed",
      ]] as const
    ) {
      const { enabled: _, ...state } = await stateOf(code);
      assert.deepEqual(state, { installed: true, active, detail: "status: some" });
    }
  }));

test("launchd: install, start, restart and uninstall by its own program", () =>
  withTemporaryFolder(async (home) => {
    let loaded = false;
    const calls: string[] = [];
    const run: RunProgram = (program, args) => {
      const call = [program, ...args].join(" ");
      calls.push(call);
      if (args[0] === "bootstrap") loaded = true;
      if (args[0] === "bootout") loaded = false;
      const isPrint = args[0] === "print";
      return Promise.resolve({
        code: isPrint && !loaded ? 113 : 0,
        stdout: isPrint && loaded ? "\tstate = running\n" : "",
        stderr: "",
      });
    };
    const manager = createLaunchdService({ home, run, uid: 501 });
    assert.equal(manager.file, join(home, "Library/LaunchAgents/dev.postern.postern.plist"));
    assert.deepEqual(await manager.install(DESCRIPTION), []);
    assert.equal(readFileSync(manager.file, "utf8"), toLaunchdPlist(DESCRIPTION));
    assert.deepEqual(await manager.state(), {
      installed: true,
      enabled: true,
      active: "stopped",
      detail: "not loaded",
    });
    await manager.start();
    assert.equal((await manager.state()).active, "running");
    assert.match((await manager.install({ ...DESCRIPTION, graceSeconds: 1 })).join(), /postern service restart/);
    await manager.restart();
    await manager.uninstall();
    assert.equal(existsSync(manager.file), false);
    assert.deepEqual(calls.filter((call) => /bootstrap|bootout|enable/.test(call)), [
      "launchctl enable gui/501/dev.postern.postern",
      `launchctl bootstrap gui/501 ${manager.file}`,
      "launchctl enable gui/501/dev.postern.postern",
      "launchctl bootout gui/501/dev.postern.postern",
      `launchctl bootstrap gui/501 ${manager.file}`,
      "launchctl bootout gui/501/dev.postern.postern",
    ]);
  }));

test("the service manager that runs is found, and none where none runs", () =>
  withTemporaryFolder((root) => {
    assert.equal(detectInit({ platform: "linux", root }), undefined);
    mkdirSync(join(root, "run/openrc"), { recursive: true });
    assert.equal(detectInit({ platform: "linux", root }), undefined);
    writeFileSync(join(root, "run/openrc/softlevel"), "default\n");
    assert.equal(detectInit({ platform: "linux", root }), "openrc");
    mkdirSync(join(root, "run/systemd/system"), { recursive: true });
    assert.equal(detectInit({ platform: "linux", root }), "systemd");
    assert.equal(detectInit({ platform: "darwin", root: dirname(root) }), "launchd");
  }));
