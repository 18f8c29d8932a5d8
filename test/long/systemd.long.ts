import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { ROOT, RUN } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const SYSTEMD = "/lib/systemd/systemd";
/** Mounts, processes and control groups of its own: the machine's units are out of reach */
const APART = ["--mount", "--pid", "--fork", "--mount-proc", "--cgroup", "--propagation", "private"];

/** A user's systemd that runs in there; each line of its output is a fact. */
const SCRIPT = String.raw`
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/user/0 /run/systemd/system
export XDG_RUNTIME_DIR=/run/user/0 LANG=C.UTF-8
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
${SYSTEMD} --user > "$HOME/systemd.log" 2>&1 &
manager=$!
mkdir -p "$HOME/.config/postern"
printf '[provider]\nkind = "offline"\n[gateway]\nport = 0\nshutdown_grace_secs = 2\n' > "$HOME/.config/postern/postern.toml"
cd "$HOME"
pid() { systemctl --user show postern.service --property=MainPID --value; }
restarted() { for _ in $(seq 150); do [ "$(systemctl --user show postern.service --property=NRestarts --value)" = "$1" ] && "$RUN_POSTERN" service status | grep -q 'The service is running' && return; sleep 0.1; done; return 1; }
for _ in $(seq 50); do systemctl --user is-system-running > /dev/null 2>&1 && break; sleep 0.1; done

"$RUN_POSTERN" service install > /dev/null 2>&1
sed -i 's/^WatchdogSec=.*/WatchdogSec=2/' "$HOME/.config/systemd/user/postern.service"
systemctl --user daemon-reload
"$RUN_POSTERN" service start > /dev/null
echo "started: $(systemctl --user show postern.service --property=StatusText --value | sed 's/:[0-9]*.$//')"
sleep 3
echo "watched: $(systemctl --user is-active postern.service)"
kill -9 "$(pid)"
restarted 1
echo "restarted after a crash"
kill -STOP "$(pid)"
restarted 2
echo "restarted after a hang"
"$RUN_POSTERN" service stop > /dev/null
echo "stopped: $(systemctl --user show postern.service --property=Result --value)"
echo 'nonsense = 1' >> "$HOME/.config/postern/postern.toml"
"$RUN_POSTERN" service start 2>&1 | grep -o 'gateway.nonsense' || true
echo "left be: $(systemctl --user show postern.service --property=ExecMainStatus,NRestarts | sort | tr '\n' ' ')"
"$RUN_POSTERN" service uninstall > /dev/null
echo "units: $(systemctl --user list-units --all --plain --no-legend 'postern*' | wc -l)"
kill $manager
`;

test("a real systemd starts the service, watches it, restarts it, leaves a hopeless one be, and forgets it", (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can have a systemd apart");
  if (!existsSync(SYSTEMD) || spawnSync("unshare", [...APART, "true"]).status !== 0) {
    return context.skip("systemd or unshare is missing");
  }
  return withTemporaryFolder((home) => {
    const program = join(home, "run_postern");
    const words = [...RUN, join(ROOT, "cli/main.ts")].map((word) => `'${word}'`).join(" ");
    writeFileSync(program, `#!/bin/sh\nexec ${words} "$@"\n`, { mode: 0o755 });
    const { status, stdout, stderr } = spawnSync("unshare", [...APART, "bash", "-c", SCRIPT], {
      encoding: "utf8",
      env: { PATH: process.env["PATH"], HOME: home, RUN_POSTERN: program },
      timeout: 120_000,
    });
    assert.deepEqual(stdout.trim().split("\n"), [
      "started: Listening at http://127.0.0.1",
      "watched: active",
      "restarted after a crash",
      "restarted after a hang",
      "stopped: success",
      "gateway.nonsense",
      "left be: ExecMainStatus=78 NRestarts=0 ",
      "units: 0",
    ], stderr);
    assert.equal(status, 0, stderr);
  });
});
