import { systemClock } from "../../lib/base/clock.ts";
import { readPidFile } from "../../lib/host/daemon/pid_file.ts";
import { type GatewayLock, takeGatewayLock } from "../../lib/storage/gateway_lock.ts";

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
