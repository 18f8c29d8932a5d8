import { readlink, realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join } from "node:path";
import { ConfigError } from "../../lib/base/errors.ts";
import type { Config } from "../../lib/config/config.ts";
import { type LoadedConfig, trustDirectory } from "../../lib/config/load_config.ts";
import { trustStorePath } from "../../lib/config/trust_store.ts";
import { watchFiles } from "../../lib/config/watch_files.ts";
import type { GatewayServices } from "../../lib/gateway.ts";
import { isWithin } from "../../lib/system/files/forbidden_paths.ts";
import type { CommandContext } from "../command.ts";

export interface KeepConfigFreshOptions {
  readonly services: Pick<GatewayServices, "reload" | "clock" | "log">;
  /** That of the start */
  readonly loaded: LoadedConfig;
  /** Loads it again, as for the start */
  readonly reload: () => Promise<LoadedConfig>;
}

/** Linux follows as many */
const MAX_LINKS = 40;

/**
 * Has the gateway load its configuration again at SIGHUP, and when the file changes. Without a file nothing is watched, and neither is
 * one in the workspace, or reached by a link in it, whose content nobody accepted: a program that a tool runs could write it.
 * Source: docs/design/configuration.md "Reload"
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
  if (!file.trusted && await isReachedThrough(file.path, await realpath(loaded.workspace)).catch(() => true)) {
    const reason = "it lies in the workspace, or a link to it does, where programs of tools may write";
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

/** Whether a file, or a link on the way to it, lies in a folder: who writes there decides what is read. @param folder its real path */
async function isReachedThrough(path: string, folder: string, links = MAX_LINKS): Promise<boolean> {
  if (links < 0) return true;
  for (let name = path; name !== dirname(name); name = dirname(name)) {
    const place = join(await realpath(dirname(name)), basename(name));
    if (isWithin(place, folder)) return true;
    const target = await readlink(place).catch(() => undefined);
    if (target === undefined) continue;
    // Not joined: behind a link `..` is the parent of its target
    const next = isAbsolute(target) ? target : `${dirname(place)}/${target}`;
    if (await isReachedThrough(next, folder, links - 1)) return true;
  }
  return false;
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
