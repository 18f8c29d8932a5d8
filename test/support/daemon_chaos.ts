import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { systemClock } from "../../lib/base/clock.ts";
import { readControlFile } from "../../lib/host/control_file.ts";
import { readPidFile } from "../../lib/host/daemon/daemon_state.ts";
import { type CliMachine, withCliMachine } from "./cli_process.ts";
import { mainOf } from "./gateway_process.ts";
import { killIfThere } from "./kill_if_there.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { until } from "./until.ts";

/** Files of a data directory while no daemon runs: records, the log, and locks that nobody has. */
const LEFT = /^(daemon\.lock|daemon\.log(\.[1-5])?|gateway\.lock|postern\.db|commands)$/;
const START = ["daemon", "start", "--port", "0", "--json"];
/** Longer than any test: it must be killed */
const SLEEP = "sleep 600";

/**
 * Starts and stops a daemon in every way, and kills it or the command that starts it at any moment; it must start again each time.
 * @throws {AssertionError} something is left in the end: a process, a PID or control file, a temporary file, a journal of SQLite
 */
export async function chaos({ cycles, seed }: { readonly cycles: number; readonly seed: number }): Promise<void> {
  const random = createSeededRandom(seed);
  const below = (limit: number) => Math.floor((random.bytes(1)[0] ?? 0) * limit / 256);
  await withCliMachine(async (machine) => {
    for (let cycle = 0; cycle < cycles; cycle++) {
      // Each once, then any
      const act = ACTS[cycle < ACTS.length ? cycle : below(ACTS.length)] ?? killRunning;
      await act(machine, below);
      const { code, stdout } = await machine.run(["daemon", "status", "--json"]);
      assert.equal(code, 0);
      assert.equal(typeof JSON.parse(stdout).running, "boolean");
    }
    // What a killed command has started comes up later than the command's end
    await until(() => isSettled(machine), "a daemon comes up without end");
    // The last word is a start and a stop in good order
    await machine.run(["daemon", "stop"]);
    const last = await machine.run(START);
    assert.equal(last.code, 0, last.stderr);
    assert.equal((await machine.run(["daemon", "stop"])).code, 0);
    await until(() => machine.processes().length === 0, () => `processes ${machine.processes()} are left`);
    assert.deepEqual(readdirSync(machine.dataDir).filter((name) => !LEFT.test(name)), []);
    // Node keeps compiled code there, for every program
    assert.deepEqual(readdirSync(machine.temporary).filter((name) => name !== "node-compile-cache"), []);
  });
}

type Act = (machine: CliMachine, below: (limit: number) => number) => Promise<void>;

const killDaemon = async ({ dataDir }: CliMachine) => {
  const file = await readPidFile(dataDir);
  if (file?.kind === "alive") killIfThere(file.process.pid);
};

/** Returns true when each running daemon has its PID file; those that found another one have ended. */
async function isSettled({ dataDir, processes }: CliMachine): Promise<boolean> {
  const file = await readPidFile(dataDir);
  const known = file?.kind === "alive" && file.process.phase === "running" ? file.process.pid : undefined;
  return processes().every((pid) => pid === known || !isDaemon(pid));
}

function isDaemon(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(mainOf());
  } catch {
    return false;
  }
}

/** Has a tool start a process that would run on. */
const startTool = async ({ dataDir }: CliMachine) => {
  const record = await readControlFile(dataDir);
  if (record === undefined) return;
  const reply = await fetch(`${record.address}v1/tools/process_tool/call`, {
    method: "POST",
    headers: { authorization: `Bearer ${record.token}`, "content-type": "application/json" },
    body: JSON.stringify({ input: { op: "start", command: SLEEP }, approved: true }),
  }).catch(() => undefined);
  await reply?.body?.cancel().catch(() => {});
};

const killRunning: Act = async (machine, below) => {
  await machine.run(START);
  await startTool(machine);
  await systemClock.sleep(below(50));
  await killDaemon(machine);
};

const stopRunning: Act = async (machine) => {
  await machine.run(START);
  await startTool(machine);
  await machine.run(["daemon", "stop"]);
};

const killStarting: Act = async (machine, below) => {
  const starting = machine.spawn(START);
  await systemClock.sleep(below(400));
  await killDaemon(machine);
  await starting.ended;
};

const killStarter: Act = async (machine, below) => {
  const starting = machine.spawn(START);
  await systemClock.sleep(below(400));
  starting.child.kill("SIGKILL");
  await starting.ended;
};

const stopStarting: Act = async (machine, below) => {
  const starting = machine.spawn(START);
  await systemClock.sleep(below(300));
  await machine.run(["daemon", "stop"]);
  await starting.ended;
};

const startTwice: Act = async (machine, below) => {
  const [first, second] = await Promise.all([machine.run(START), machine.run(START)]);
  assert.ok(first.code !== 0 || second.code !== 0, "two daemons run");
  if (below(2) === 0) await killDaemon(machine);
  else await machine.run(["daemon", "stop"]);
};

const ACTS: readonly Act[] = [killRunning, stopRunning, killStarting, killStarter, stopStarting, startTwice];
