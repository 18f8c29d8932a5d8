import { systemClock } from "../../lib/base/clock.ts";
import { removeControlFile } from "../../lib/host/control_file.ts";
import { endProcess } from "../../lib/host/daemon/end_process.ts";
import { readPidFile, removePidFile } from "../../lib/host/daemon/daemon_state.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { CommandError } from "../command.ts";

/** Result of stopping a daemon. */
export interface StoppedDaemon {
  readonly pid: number;
  /** `itself`: the daemon finished its work. `kill`: it did not end in time */
  readonly endedBy: "itself" | "kill";
  /** Service manager that runs the daemon and may start it again */
  readonly service: string | undefined;
  /** Time that the daemon had to finish, in seconds */
  readonly waitedSeconds: number;
}

/** Time after the grace for the last frames and the database, in seconds */
const MARGIN_SECONDS = 10;

/**
 * Stops the daemon of a data directory: SIGTERM, the time to finish its work, then SIGKILL.
 * @returns undefined when no daemon runs. Files that a crash left behind are then removed
 * @throws {CommandError} the process outlives SIGKILL
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

/** Removes the files of a killed daemon, under its lock, so that those of a later start stay. Another holder of the lock cleans up itself. */
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
/** Number of tries while the PID file names no living process */
const NAMELESS_TRIES = 100;

/**
 * Takes the lock that makes this process the daemon of a data directory.
 *
 * Tries for one second, and for ten seconds while the PID file names no living process: then the system still closes the files of a
 * killed daemon, `daemon stop` removes them, or another daemon is about to write the PID file.
 * @returns undefined when a daemon holds the lock
 */
export async function takeDaemonLock(dataDir: string): Promise<GatewayLock | undefined> {
  for (let tries = 1;; tries++) {
    const lock = takeGatewayLock(dataDir, "daemon.lock");
    if (lock !== undefined || tries === NAMELESS_TRIES) return lock;
    if (tries >= TRIES && (await readPidFile(dataDir))?.kind === "alive") return undefined;
    await systemClock.sleep(TRY_MS);
  }
}
