import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import process from "node:process";
import { test } from "node:test";
import { VERSION } from "../../lib/base/version.ts";
import { ROOT, RUN, RUN_ENV } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Mounts and processes of its own, which end with it */
const APART = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"];

/**
 * A copy of this machine's file system that forgets all that is written to it, with this program in a folder whose name needs quotes,
 * and with OpenRC, which is installed in the copy where the machine lacks it. Exit code 77: it cannot be had
 */
const COPY = String.raw`
set -eu
umask 022
mount -t tmpfs -o mode=755 tmpfs "$HOME"
mkdir "$HOME/written" "$HOME/work" "$HOME/root"
mount -t overlay -o "lowerdir=/,upperdir=$HOME/written,workdir=$HOME/work" overlay "$HOME/root"
cd "$HOME/root"
mount --bind /dev dev
mount -t proc proc proc
if [ ! -e sbin/openrc-run ]; then
  { chroot . apt-get update -qq && chroot . apt-get install -y -qq --no-install-recommends openrc; } > /dev/null 2>&1 || exit 77
fi
chroot . userdel postern 2> /dev/null || true
rm -rf etc/init.d/postern etc/postern var/lib/postern etc/runlevels/*/*
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p "opt/it's \$here/node_modules"
chmod 755 opt "opt/it's \$here"
cp "$RUNTIME" "opt/it's \$here/runtime"
for part in cli handlers lib package.json deno.json; do cp -r "$PROGRAM$part" "opt/it's \$here"; done
mount --bind "$PROGRAM/node_modules" "opt/it's \$here/node_modules"
mkdir -p etc/postern
exec chroot . bash -c "$FACTS"
`;

/** Commands a person runs there; each line of their output is a fact. */
const FACTS = String.raw`
cd "/opt/it's \$here"
postern() { ./runtime $RUN_WORDS cli/main.ts "$@"; }
boot() { rm -rf /run/openrc; mkdir /run/openrc; openrc sysinit > /dev/null 2>&1; openrc default > /dev/null 2>&1; }
state() { postern service status | head -1; }
service_user() { ps -eo user=,args= | grep '[d]aemon start --foreground' | grep -v '^root.*supervise-daemon' | cut -d ' ' -f 1; }
printf '[provider]\nkind = "offline"\n[gateway]\nport = %s\nshutdown_grace_secs = 2\n' "$PORT" > /etc/postern/postern.toml

postern service install 2>&1 | grep -o 'neither systemd nor OpenRC runs here'
boot
echo "someone else: $(setpriv --reuid=65534 --regid=65534 --clear-groups ./runtime $RUN_WORDS cli/main.ts service install 2>&1)"
postern service install > /dev/null 2>&1 || echo "install failed"
cp -p /etc/init.d/postern /run/first
postern service install > /dev/null 2>&1 || echo "second install failed"
[ -z "$(find /etc/init.d/postern -newer /run/first)" ] && cmp /etc/init.d/postern /run/first && echo "installed twice: the same"
boot
for _ in $(seq 100); do state | grep -q 'is running' && break; sleep 0.1; done
echo "with the machine: $(state), as $(service_user)"
pid="$(head -1 /var/lib/postern/daemon.pid)"
echo "in $(readlink "/proc/$pid/cwd"), $(grep -s Umask "/proc/$pid/status" | tr -d '\t')"
kill -9 "$pid"
for _ in $(seq 150); do [ "$(head -1 /var/lib/postern/daemon.pid)" != "$pid" ] && state | grep -q 'is running' && break; sleep 0.1; done
[ "$(head -1 /var/lib/postern/daemon.pid)" != "$pid" ] && echo "after a crash: $(state)"
sed -i "s/$VERSION/99.0.0/" lib/base/version.ts
postern service restart
echo "upgraded: $(grep -o 'daemon starts.*version=.*' /var/lib/postern/daemon.log | tail -1 | grep -o 'version=.*')"
postern service stop
tail -1 /var/lib/postern/daemon.log | grep -o 'The daemon has ended'
echo "stopped: $(state), processes: $(service_user)"
ls /var/lib/postern | tr '\n' ' '
echo
echo 'nonsense = 1' >> /etc/postern/postern.toml
postern service start > /run/start 2>&1
echo "hopeless: $? $(grep -o 'gateway.nonsense' /run/start | head -1)"
postern service uninstall
[ ! -e /etc/init.d/postern ] && [ -z "$(ls -A /etc/runlevels/default)" ] && [ -z "$(service_user)" ] && echo "gone"
rc-status --all 2> /dev/null | grep postern
exit 0
`;

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

test("a real OpenRC starts the service with the machine, restarts it, stops it, and forgets it", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can have an OpenRC apart");
  if (!existsSync("/proc/self/ns/mnt") || spawnSync("unshare", [...APART, "true"]).status !== 0) {
    return context.skip("unshare is missing, or not allowed");
  }
  const port = await freePort();
  await withTemporaryFolder((home) => {
    const [runtime = "", ...words] = RUN;
    const { status, stdout, stderr } = spawnSync("unshare", [...APART, "bash", "-c", COPY], {
      encoding: "utf8",
      env: {
        ...RUN_ENV,
        ...{ HOME: home, PROGRAM: ROOT, RUNTIME: runtime, RUN_WORDS: words.join(" "), PORT: String(port) },
        ...{ FACTS, VERSION, LANG: "C.UTF-8", DEBIAN_FRONTEND: "noninteractive" },
        PATH: `${process.env["PATH"]}:/usr/sbin:/sbin`,
      },
      timeout: 180_000,
    });
    if (status === 77) return context.skip("OpenRC is neither installed nor among the machine's packages");
    assert.deepEqual(stdout.trim().split("\n"), [
      "neither systemd nor OpenRC runs here",
      "someone else: Cannot change the service: OpenRC's belong to the whole machine, which needs root; use sudo",
      "installed twice: the same",
      "with the machine: The service is running, as postern",
      "in /var/lib/postern, Umask:0077",
      "after a crash: The service is running",
      "Restarted the service",
      "upgraded: version=99.0.0",
      "Stopped the service",
      "The daemon has ended",
      "stopped: The service does not run, processes: ",
      "daemon.lock daemon.log gateway.lock postern.db workspace ",
      "hopeless: 1 gateway.nonsense",
      "Removed /etc/init.d/postern",
      "gone",
    ], stderr);
    assert.equal(status, 0, stderr);
  });
});
