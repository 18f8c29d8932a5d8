import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test, type TestContext } from "node:test";
import fc from "fast-check";
import { readServiceMark, type ServiceDescription, toServiceMark } from "../../../lib/host/service/service_manager.ts";
import { toLaunchdPlist } from "../../../lib/host/service/launchd_service.ts";
import { toOpenrcScript } from "../../../lib/host/service/openrc_service.ts";
import { toSystemdUnit } from "../../../lib/host/service/systemd_service.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { triesOf } from "../../support/seeded_random.ts";

const PLAIN: ServiceDescription = {
  command: [
    "/usr/bin/node",
    "/usr/lib/postern/main.js",
    "daemon",
    "start",
    "--foreground",
    "--data-dir=/var/lib/postern",
  ],
  directory: "/var/lib/postern",
  graceSeconds: 30,
};
const ODD = `it's "q" $HOME \${x} 100%h ; & \\b * \``;
const RENDERERS = { systemd: toSystemdUnit, openrc: toOpenrcScript, launchd: toLaunchdPlist } as const;

/** Words that fit on one line, with all that quoting has to care for. */
const word = fc.string({ unit: fc.constantFrom(..."a /\\'\"$%{}`&;<>|*?~#!=-é"), minLength: 1, maxLength: 20 });
const description = fc.record({
  command: fc.array(word, { minLength: 1, maxLength: 5 }),
  directory: word,
  graceSeconds: fc.integer({ min: 0, max: 3600 }),
}, { noNullPrototype: true });

const has = (program: string) => spawnSync(program, ["--version"]).error === undefined;

function run(context: TestContext, program: string, args: readonly string[], env = {}): string | undefined {
  if (!has(program)) return void context.skip(`${program} is not installed`);
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: "utf8", env: { ...process.env, ...env } });
  assert.equal(status, 0, `${stdout}${stderr}`);
  return stdout + stderr;
}

test("a unit waits for readiness, is watched, drains before it is killed, and stays down where a restart would not help", () => {
  const unit = toSystemdUnit(PLAIN).split("\n");
  for (
    const line of [
      "Type=notify",
      "NotifyAccess=all",
      'ExecStart=:"/usr/bin/node" "/usr/lib/postern/main.js" "daemon" "start" "--foreground" "--data-dir=/var/lib/postern"',
      "WorkingDirectory=/var/lib/postern",
      "Environment=POSTERN_SERVICE=systemd",
      "Restart=on-failure",
      "RestartPreventExitStatus=2 78",
      "TimeoutStopSec=45",
      "WatchdogSec=60",
      "KillMode=control-group",
      "Delegate=memory",
      "DelegateSubgroup=gateway",
      "NoNewPrivileges=yes",
      "WantedBy=default.target",
    ]
  ) assert.ok(unit.includes(line), line);
  // Compiled code and bubblewrap need these
  assert.doesNotMatch(unit.join("\n"), /MemoryDenyWriteExecute|RestrictNamespaces|PrivateUsers|ProtectHome/);
});

test("systemd finds nothing wrong in a unit, whatever its paths have in them", (context) =>
  withTemporaryFolder((folder) => {
    const place = join(folder, ODD);
    mkdirSync(place);
    symlinkSync(process.execPath, join(place, "node"));
    const units = [PLAIN, { ...PLAIN, command: [join(place, "node"), place], directory: place }].map((each, index) => {
      const path = join(folder, `postern${index}.service`);
      writeFileSync(
        path,
        toSystemdUnit({
          ...each,
          command: [index === 0 ? process.execPath : each.command[0] ?? "", ...each.command.slice(1)],
        }),
      );
      return path;
    });
    const said = run(context, "systemd-analyze", ["verify", "--user", "--man=no", ...units], {
      XDG_RUNTIME_DIR: folder,
    });
    const lines = (said ?? "").split("\n").filter((line) => line !== "");
    // Before 254 systemd does not know it, and goes on
    const isOlder = (line: string) => line.endsWith("Unknown key 'DelegateSubgroup' in section [Service], ignoring.");
    assert.deepEqual(lines.filter((line) => !isOlder(line)), []);
  }));

test("a specifier of systemd stands for itself, and a program whose path systemd refuses is started by env", () => {
  const unit = toSystemdUnit({ ...PLAIN, command: ["/a b/50%h/$x", 'q"\\'], directory: "/100%n" });
  assert.match(unit, /^ExecStart=:"\/a b\/50%%h\/\$x" "q\\"\\\\"$/m);
  assert.match(unit, /^WorkingDirectory=\/100%%n$/m);
  assert.match(
    toSystemdUnit({ ...PLAIN, command: ["/it's/node", "x"] }),
    /^ExecStart=:"\/usr\/bin\/env" "\/it's\/node" "x"$/m,
  );
});

test("an OpenRC script gives openrc the words as they are, after its own evaluation of them", () => {
  fc.assert(
    fc.property(description, (each) => {
      // openrc-run reads the script and then evaluates these, as its sh/supervise-daemon.sh does
      const script = `${toOpenrcScript(each)}\neval "set -- $directory $command $command_args"; printf '%s\\n' "$@"`;
      const { stdout, stderr } = spawnSync("sh", ["-c", script], { encoding: "utf8" });
      assert.deepEqual(stdout.split("\n").slice(0, -1), [each.directory, ...each.command], stderr);
    }),
    { numRuns: triesOf(15) },
  );
});

test("an OpenRC script is supervised, runs as its own user, drains before it is killed, and is valid sh", () => {
  const script = toOpenrcScript(PLAIN);
  assert.match(script, /^#!\/sbin\/openrc-run\n/);
  for (
    const line of [
      'supervisor="supervise-daemon"',
      'command_user="postern:postern"',
      'retry="SIGTERM/45/SIGKILL/5"',
      'umask="0077"',
    ]
  ) {
    assert.ok(script.split("\n").includes(line), line);
  }
  for (const each of [PLAIN, { command: [ODD, ODD], directory: ODD, graceSeconds: 1 }]) {
    const { status, stderr } = spawnSync("sh", ["-n"], { input: toOpenrcScript(each), encoding: "utf8" });
    assert.equal(status, 0, stderr);
  }
});

test("shellcheck finds nothing wrong in an OpenRC script", (context) =>
  withTemporaryFolder((folder) => {
    for (const each of [PLAIN, { command: [ODD, ODD], directory: ODD, graceSeconds: 1 }]) {
      const path = join(folder, "postern");
      writeFileSync(path, toOpenrcScript(each));
      run(context, "shellcheck", [path]);
    }
  }));

test("a launchd agent starts at login and after a crash, with the words as they are", () => {
  const plist = toLaunchdPlist({ ...PLAIN, command: ["/usr/bin/node", "a & <b>"] });
  assert.match(plist, /<string>\/usr\/bin\/node<\/string>\n {4}<string>a &amp; &lt;b&gt;<\/string>/);
  assert.match(plist, /<key>RunAtLoad<\/key>\n {2}<true\/>/);
  assert.match(plist, /<key>SuccessfulExit<\/key>\n {4}<false\/>/);
  assert.match(plist, /<key>ExitTimeOut<\/key>\n {2}<integer>45<\/integer>/);
});

test("a launchd agent is a property list", (context) => {
  const read =
    "import plistlib, sys, json; print(json.dumps(plistlib.loads(sys.stdin.buffer.read())['ProgramArguments']))";
  if (!has("python3")) return context.skip("python3 is not installed");
  const command = [ODD, "--", "a--b", "é"];
  const { stdout, stderr } = spawnSync("python3", ["-c", read], {
    input: toLaunchdPlist({ ...PLAIN, command }),
    encoding: "utf8",
  });
  assert.deepEqual(JSON.parse(stdout || "null"), command, stderr);
});

for (const [name, render] of Object.entries(RENDERERS)) {
  test(`what was installed is read again from the file for ${name}`, () => {
    fc.assert(fc.property(description, (each) => assert.deepEqual(readServiceMark(render(each)), each)), {
      numRuns: 200,
    });
  });
}

test("a file that someone else wrote has no description", () => {
  for (
    const text of ["", "[Unit]\n", "# postern-service: {", '# postern-service: {"command": 1}', "postern-service: null"]
  ) {
    assert.equal(readServiceMark(text), undefined, text);
  }
  assert.doesNotMatch(toServiceMark({ ...PLAIN, command: ["--a--"] }), /--/);
});
