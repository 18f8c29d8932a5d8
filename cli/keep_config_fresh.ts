import { ConfigError } from "../lib/base/errors.ts";
import type { Config } from "../lib/config/config.ts";
import { type LoadedConfig, trustDirectory } from "../lib/config/load_config.ts";
import { trustStorePath } from "../lib/config/trust_store.ts";
import { watchFiles } from "../lib/config/watch_files.ts";
import type { GatewayServices } from "../lib/gateway.ts";
import type { CommandContext } from "./command.ts";

export interface KeepConfigFreshOptions {
  readonly services: Pick<GatewayServices, "reload" | "clock">;
  /** That of the start */
  readonly loaded: LoadedConfig;
  /** Loads it again, as for the start */
  readonly reload: () => Promise<LoadedConfig>;
}

/**
 * Has the gateway load its configuration again at SIGHUP, and when the file changes (DESIGN.md section 6). Without a file nothing
 * is watched.
 * @returns ends it
 */
export async function keepConfigFresh(
  { io, loadOptions }: Pick<CommandContext, "io" | "loadOptions">,
  { services, loaded, reload }: KeepConfigFreshOptions,
): Promise<() => void> {
  const load = async () => sameFile(loaded, await reload());
  const ignore = io.onReload(() => void services.reload(load, { always: true }));
  const { file } = loaded;
  if (file === undefined) return ignore;
  // That a changed file was accepted shows in the list alone
  const paths = file.trusted ? [file.path, trustStorePath(trustDirectory(loadOptions))] : [file.path];
  const unwatch = await watchFiles(paths, { clock: services.clock, onChange: () => services.reload(load) });
  return () => {
    ignore();
    unwatch();
  };
}

/** What was found in place of a file that has gone is another configuration, of which nobody spoke. */
function sameFile({ file: before }: LoadedConfig, { file: found, config }: LoadedConfig): Config {
  if (found?.path === before?.path) return config;
  const shown = before === undefined ? "it was started without one" : `"${before.path}" is not there any more`;
  const other = found === undefined ? "" : `; restart it to use "${found.path}"`;
  throw new ConfigError("config_moved", `Cannot load the file of the running gateway: ${shown}${other}`, {
    file: before?.path,
  });
}
