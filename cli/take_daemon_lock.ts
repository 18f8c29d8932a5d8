import { systemClock } from "../lib/base/clock.ts";
import { type GatewayLock, takeGatewayLock } from "../lib/storage/gateway_lock.ts";

const TRIES = 10;
const TRY_MS = 100;

/**
 * Takes the name of daemon on a data directory. Tries for a second: the system is still closing a killed daemon's files, or
 * `daemon stop` removes what one left.
 * @returns undefined when a daemon holds it
 */
export async function takeDaemonLock(dataDir: string): Promise<GatewayLock | undefined> {
  for (let tries = 1;; tries++) {
    const lock = takeGatewayLock(dataDir, "daemon.lock");
    if (lock !== undefined || tries === TRIES) return lock;
    await systemClock.sleep(TRY_MS);
  }
}
