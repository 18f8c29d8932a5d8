import { readlink, realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join } from "node:path";
import { ConfigError } from "../../lib/base/errors.ts";
import type { Config } from "../../lib/config/config.ts";
import { type LoadedConfig, trustDirectory } from "../../lib/config/load_config.ts";
import { trustStorePath } from "../../lib/config/trust_store.ts";
import { watchFiles } from "../../lib/config/watch_files.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { isWithin } from "../../lib/system/files/forbidden_paths.ts";
import type { CommandContext } from "../command.ts";

/** Number of links that Linux follows in one path */
const MAX_LINKS = 40;

/**
 * Reloads the configuration of the gateway at SIGHUP, and when the file changes (docs/design/configuration.md "Reload").
 *
 * Watches no file that lies in the workspace, or is reached by a link in it, unless the user accepted its content: a program that
 * a tool runs could have written it.
 * @returns a function that ends the watching
 */
export async function watchConfig(
  { io, loadOptions }: Pick<CommandContext, "io" | "loadOptions">,
  { services, loaded, reload }: {
    readonly services: Pick<GatewayServices, "reload" | "clock" | "log">;
    /** Configuration that the gateway started with */
    readonly loaded: LoadedConfig;
    /** Loads the configuration again, in the same way as for the start */
    readonly reload: () => Promise<LoadedConfig>;
  },
): Promise<() => void> {
  const load = async () => sameFile(loaded, await reload());
  const ignore = io.onReload(() => void services.reload(load, { always: true }));
  const { file } = loaded;
  if (file === undefined) return ignore;
  if (!file.trusted && await isReachedThrough(file.path, await realpath(loaded.workspace)).catch(() => true)) {
    const reason = "it lies in the workspace, or a link to it does, where programs of tools may write";
    services.log.info(`Changes of "${file.path}" are used at SIGHUP and at a restart only: ${reason}`);
    return ignore;
  }
  // Accepting a changed file changes only the list of accepted files
  const paths = file.trusted ? [file.path, trustStorePath(trustDirectory(loadOptions))] : [file.path];
  const unwatch = await watchFiles(paths, { clock: services.clock, onChange: () => services.reload(load) });
  return () => {
    ignore();
    unwatch();
  };
}

/** Tells whether a file, or a link on the way to it, lies in a folder: whoever writes there decides what is read. @param folder real path */
export async function isReachedThrough(path: string, folder: string, links = MAX_LINKS): Promise<boolean> {
  if (links < 0) return true;
  for (let name = path; name !== dirname(name); name = dirname(name)) {
    const place = join(await realpath(dirname(name)), basename(name));
    if (isWithin(place, folder)) return true;
    const target = await readlink(place).catch(() => undefined);
    if (target === undefined) continue;
    // Not joined: `..` after a link is the parent of the link's target
    const next = isAbsolute(target) ? target : `${dirname(place)}/${target}`;
    if (await isReachedThrough(next, folder, links - 1)) return true;
  }
  return false;
}

/** Returns the new configuration if it comes from the same file. @throws {ConfigError} `config_moved`: the file is gone, or another one was found */
function sameFile({ file: before }: LoadedConfig, { file: found, config }: LoadedConfig): Config {
  if (found?.path === before?.path) return config;
  const shown = before === undefined ? "it was started without one" : `"${before.path}" is not there any more`;
  const other = found === undefined ? "" : `; restart it to use "${found.path}"`;
  throw new ConfigError("config_moved", `Cannot load the file of the running gateway: ${shown}${other}`, {
    file: before?.path,
  });
}
