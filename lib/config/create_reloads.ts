import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { ConfigStatus } from "../base/records/gateway_status.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Config } from "./config.ts";

/** Reloads the configuration of a running gateway. */
export interface Reloads {
  /**
   * Takes over what `load` gives, as far as that is possible while running. What goes wrong is logged and changes nothing: never
   * rejects. One after the other.
   * @param options.always also where nothing changed: what the configuration names, as files of keys, is read again. Default false
   */
  reload(load: () => Promise<Config>, options?: { readonly always?: boolean }): Promise<void>;
  status(): ConfigStatus;
}

/** The running configuration, and the functions that put another in its place. */
export interface ReloadsOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** The one in use */
  readonly running: () => Config;
  /**
   * Makes what it says ready, and changes nothing that is in use; what it gives puts it to use.
   * @throws {ConfigError} it cannot be used
   */
  readonly prepare: (config: Config, options: { readonly always: boolean }) => Promise<() => void>;
  /** Records what is about to be taken over: where it cannot, nothing is. Default: nothing is recorded */
  readonly record?: (
    change: { readonly keys: readonly string[]; readonly needsRestart: readonly string[] },
  ) => Promise<unknown>;
}

/** Creates the reloads of a running gateway. */
export function createReloads({ clock, log, running, prepare, record }: ReloadsOptions): Reloads {
  const time = () => new Date(clock.now()).toISOString();
  let status: ConfigStatus = { loaded_at: time(), needs_restart: [], last_reload: null };
  let tail = Promise.resolve();

  const take = async (load: () => Promise<Config>, always: boolean) => {
    const { changeConfig } = await import("./change_config.ts");
    const { config, applied, needsRestart } = changeConfig(running(), await load());
    if (needsRestart.length > 0) {
      log.warn(`A change of the configuration needs a restart: ${needsRestart.join(", ")}`, {
        needs_restart: needsRestart,
      });
    }
    const isUsed = applied.length > 0 || always;
    if (isUsed) {
      const use = await prepare(config, { always });
      await record?.({ keys: applied, needsRestart });
      use();
    }
    if (applied.length > 0) log.info(`Reloaded the configuration: ${applied.join(", ")}`, { applied });
    else if (needsRestart.length === 0) log.info("Reloaded the configuration: nothing in it has changed");
    const at = time();
    status = {
      loaded_at: isUsed ? at : status.loaded_at,
      needs_restart: [...needsRestart],
      last_reload: { at, outcome: applied.length > 0 ? "applied" : "unchanged", problem: null },
    };
  };

  const refuse = (error: unknown) => {
    const stays = "A change of the configuration is not used, and the running one stays";
    if (error instanceof ConfigError) {
      for (const { message, file, line, key } of error.problems) {
        log.error(`${stays}: ${message}`, { code: error.code, file, line, key });
      }
    } else log.error(stays, { error });
    const problem = error instanceof ConfigError ? error.message : "an internal error, which the log has";
    status = { ...status, last_reload: { at: time(), outcome: "refused", problem } };
  };

  return {
    reload: (load, { always = false } = {}) => tail = tail.then(() => take(load, always)).catch(refuse),
    status: () => status,
  };
}
