import { realpath } from "node:fs/promises";
import { isAbsolute, relative, sep } from "node:path";
import { ConfigError } from "../lib/base/errors.ts";
import type { Config } from "../lib/config/config.ts";
import { type LoadedConfig, trustDirectory } from "../lib/config/load_config.ts";
import { trustStorePath } from "../lib/config/trust_store.ts";
import { watchFiles } from "../lib/config/watch_files.ts";
import type { GatewayServices } from "../lib/gateway.ts";
import type { CommandContext } from "./command.ts";

export interface KeepConfigFreshOptions {
  readonly services: Pick<GatewayServices, "reload" | "clock" | "log">;
  /** That of the start */
  readonly loaded: LoadedConfig;
  /** Loads it again, as for the start */
  readonly reload: () => Promise<LoadedConfig>;
}

/**
 * Has the gateway load its configuration again at SIGHUP, and when the file changes (DESIGN.md section 6). Without a file nothing
 * is watched, and neither is one inside the workspace whose content nobody accepted: a program that a tool runs could write it.
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
  if (!file.trusted && await liesWithin(file.path, loaded.workspace)) {
    const reason = "it lies in the workspace, where programs of tools may write";
    services.log.info(`Changes of "${file.path}" are used at SIGHUP and at a restart only: ${reason}`);
    return ignore;
  }
  // That a changed file was accepted shows in the list alone
  const paths = file.trusted ? [file.path, trustStorePath(trustDirectory(loadOptions))] : [file.path];
  const unwatch = await watchFiles(paths, { clock: services.clock, onChange: () => services.reload(load) });
  return () => {
    ignore();
    unwatch();
  };
}

async function liesWithin(file: string, folder: string): Promise<boolean> {
  const [inside, outside] = await Promise.all([file, folder].map((path) => realpath(path).catch(() => path)));
  const way = relative(outside ?? folder, inside ?? file);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
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
