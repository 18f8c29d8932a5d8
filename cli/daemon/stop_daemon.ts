import { systemClock } from "../../lib/base/clock.ts";
import { removeControlFile } from "../../lib/host/control_file.ts";
import { endProcess } from "../../lib/host/daemon/end_process.ts";
import { readPidFile, removePidFile } from "../../lib/host/daemon/pid_file.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { CommandError } from "../cli_error.ts";

/** How a daemon was stopped. */
export interface StoppedDaemon {
  readonly pid: number;
  /** `itself`: it finished its work; `kill`: it did not end in time */
  readonly endedBy: "itself" | "kill";
  /** The service manager that runs it, and may start it again */
  readonly service: string | undefined;
  /** What it had for that, in seconds */
  readonly waitedSeconds: number;
}

/** After the grace, for the last frames and the database */
const MARGIN_SECONDS = 10;

/**
 * Stops the daemon of a data directory: SIGTERM, the time to finish its work, then SIGKILL.
 * @returns undefined when none runs; what a crash left is removed then
 * @throws {CommandError} it cannot be ended
 */
export async function stopDaemon(dataDir: string): Promise<StoppedDaemon | undefined> {
  const file = await readPidFile(dataDir);
  if (file?.kind !== "alive") {
    if (file !== undefined) await cleanUp(dataDir);
    return undefined;
  }
  const { process } = file;
  const waitedSeconds = process.grace_seconds + MARGIN_SECONDS;
  const endedBy = await endProcess(process, {
    clock: systemClock,
    graceMs: waitedSeconds * 1000,
    isTold: process.phase === "stopping",
  });
  if (endedBy === "nothing") {
    throw new CommandError(
      `Cannot stop the daemon: process ${process.pid} outlives SIGKILL; look at the disk it waits for`,
    );
  }
  await cleanUp(dataDir, process.pid);
  return { pid: process.pid, endedBy, service: process.service, waitedSeconds };
}

/** Removes what a killed daemon left; under its lock, so that nothing of a later start goes. Who has the lock by then cleans up itself */
async function cleanUp(dataDir: string, pid?: number): Promise<void> {
  const lock = await takeDaemonLock(dataDir);
  if (lock === undefined) return;
  try {
    if ((await readPidFile(dataDir))?.kind === "stale") await removePidFile(dataDir);
    if (pid !== undefined) await removeControlFile(dataDir, pid);
  } finally {
    lock.release();
  }
}

const TRY_MS = 100;
const TRIES = 10;
/** While no daemon is there that the PID file names */
const NAMELESS_TRIES = 100;

/**
 * Takes the name of daemon on a data directory. Tries for a second, and for ten while the PID file names nobody who could hold it:
 * the system is still closing a killed daemon's files, `daemon stop` removes what one left, or another one is about to write the file.
 * @returns undefined when a daemon holds it
 */
export async function takeDaemonLock(dataDir: string): Promise<GatewayLock | undefined> {
  for (let tries = 1;; tries++) {
    const lock = takeGatewayLock(dataDir, "daemon.lock");
    if (lock !== undefined || tries === NAMELESS_TRIES) return lock;
    if (tries >= TRIES && (await readPidFile(dataDir))?.kind === "alive") return undefined;
    await systemClock.sleep(TRY_MS);
  }
}
