import { systemClock } from "../lib/base/clock.ts";
import { prepareDataDir } from "../lib/config/folders.ts";
import { type LoadOptions, trustDirectory } from "../lib/config/load_config.ts";
import { takeGatewayLock } from "../lib/storage/gateway_lock.ts";
import { CommandError } from "./command.ts";

const TRY_MS = 20;
const TRIES = 500;

/**
 * Does work on configuration files while no other command or gateway of this data directory changes one, so that no change is lost. Waits
 * for its turn up to 10 s.
 * @throws {CommandError} another one does not end; {ConfigError} the data directory cannot be used
 */
export async function whileNobodyWrites<T>(loadOptions: LoadOptions, work: () => Promise<T>): Promise<T> {
  const dataDir = trustDirectory(loadOptions);
  await prepareDataDir(dataDir);
  for (let tries = 1;; tries++) {
    const lock = takeGatewayLock(dataDir, "configuration.lock");
    if (lock !== undefined) return await work().finally(lock.release);
    if (tries === TRIES) {
      throw new CommandError(
        "Nothing was written: another command is changing a configuration; try again once it is done",
      );
    }
    await systemClock.sleep(TRY_MS);
  }
}
