import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import type { FoundPlugin } from "./found_plugins.ts";
import { isEnabled, type KnownPlugin } from "./known_plugins.ts";
import { isTakenToolName, mainFile } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import { type PluginFiles, readPluginFolder } from "./plugin_files.ts";
import type { PluginInfo } from "../../base/records/extension_views.ts";
import { wayOn } from "./plugin_info.ts";
import type { PluginAnswer, PluginCall } from "./plugin_host.ts";
import { openPlugin, type PluginOpeners } from "./plugin_openers.ts";
import type { PluginPackage } from "./plugin_package.ts";
import { createPluginTool, type OfferedPlugin } from "./plugin_tool.ts";
import { RunningPlugin } from "./running_plugin.ts";

/** Options of OfferedPlugins. */
export interface OfferedPluginsOptions {
  readonly files: PluginFiles;
  readonly openers: PluginOpeners;
  readonly clock: Clock;
  /** The newest configuration. */
  readonly config: () => Config;
  readonly log: Logger;
  /** Runs when a plugin that was taken away has done its last call. Must not throw */
  readonly onIdle: () => void;
}

/** UTF-16 units that are kept of the message of an error. */
const MAX_ERROR = 1_000;

/** Content of a plugin that can be used. */
type Content = NonNullable<FoundPlugin["content"]>;

/** The tools of the plugins that count, and the hosts of those that are enabled. */
export class OfferedPlugins {
  readonly #options: OfferedPluginsOptions;
  /** Enabled plugins that were called, by digest */
  readonly #running = new Map<string, RunningPlugin>();
  /** Digests of plugins that were taken away and do their last calls, with their number */
  readonly #retiring = new Map<string, number>();
  /** Last error of a call, by digest */
  readonly #errors = new Map<string, PluginInfo["last_error"]>();
  #effective: readonly KnownPlugin[] = [];
  #tools: readonly Tool[] = [];

  constructor(options: OfferedPluginsOptions) {
    this.#options = options;
  }

  /** All tools, on or off: the same array until `settle`. */
  get tools(): readonly Tool[] {
    return this.#tools;
  }

  /** Returns the last error of a call of this content since the start. */
  lastError(digest: string | undefined): PluginInfo["last_error"] | undefined {
    return digest === undefined ? undefined : this.#errors.get(digest);
  }

  /** Digests whose files are in use by calls that are not done, though their plugin was taken away. */
  inUse(): Iterable<string> {
    return this.#retiring.keys();
  }

  /** Offers these plugins in place of those before. Calls that run go on with the content that they began with. */
  settle(effective: readonly KnownPlugin[]): void {
    this.#effective = effective;
    const digests = new Set(effective.filter(isEnabled).map(({ content }) => content?.digest));
    for (const [digest, running] of this.#running) {
      if (digests.has(digest)) continue;
      this.#running.delete(digest);
      this.#retire(digest, running);
    }
    for (const digest of this.#errors.keys()) {
      if (!effective.some(({ content }) => content?.digest === digest)) this.#errors.delete(digest);
    }
    this.#tools = this.#makeTools();
  }

  /** Calls a tool of an enabled plugin. @throws {ExtensionError} `plugin_not_found`; what the host throws */
  async call(id: string, call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    const plugin = this.#effective.find((one) => one.id === id && isEnabled(one));
    if (plugin?.content === undefined) {
      throw new ExtensionError("plugin_not_found", `Cannot call "${id}": it is not enabled`);
    }
    return await this.#call(plugin, { content: plugin.content, call, signal });
  }

  /** Closes every host now. */
  async close(): Promise<void> {
    await Promise.all([...this.#running.values()].map((running) => running.close()));
  }

  #retire(digest: string, running: RunningPlugin): void {
    this.#retiring.set(digest, (this.#retiring.get(digest) ?? 0) + 1);
    void running.retire().then(() => {
      const left = (this.#retiring.get(digest) ?? 1) - 1;
      if (left > 0) return void this.#retiring.set(digest, left);
      this.#retiring.delete(digest);
      this.#options.onIdle();
    });
  }

  /** Enabled plugins come first: where two tools have one name, the one that is on has it. */
  #makeTools(): readonly Tool[] {
    const tools = new Map<string, Tool>();
    const off = this.#effective.filter((plugin) => !isEnabled(plugin));
    for (const plugin of [...this.#effective.filter(isEnabled), ...off]) {
      const { content } = plugin;
      for (const tool of content?.manifest.tools ?? []) {
        // A later version of Postern may have a tool of this name
        if (tools.has(tool.name) || isTakenToolName(tool.name) || content === undefined) continue;
        tools.set(tool.name, createPluginTool(this.#offer(plugin, content), tool));
      }
    }
    return [...tools.values()];
  }

  #offer(plugin: KnownPlugin, content: Content): OfferedPlugin {
    const { config, openers } = this.#options;
    const { manifest, digest } = content;
    return {
      manifest,
      digest,
      config,
      wayOn: (now) => wayOn(plugin, { config: now, kinds: Object.keys(openers) }),
      call: async (call, signal) => {
        const isCurrent = this.#effective.some((one) => isEnabled(one) && one.content?.digest === digest);
        if (!isCurrent) {
          const reason = "its plugin has changed since; look at it again";
          throw new ExtensionError("plugin_changed", `Cannot call "${call.tool}": ${reason}`);
        }
        return await this.#call(plugin, { content, call, signal });
      },
    };
  }

  async #call(
    plugin: KnownPlugin,
    { content, call, signal }: { readonly content: Content; readonly call: PluginCall; readonly signal: AbortSignal },
  ): Promise<PluginAnswer> {
    try {
      return await this.#runningOf(plugin, content).call(call, signal);
    } catch (error) {
      const message = messageOf(error).slice(0, MAX_ERROR);
      const at = new Date(this.#options.clock.now()).toISOString();
      if (!signal.aborted) this.#errors.set(content.digest, { at, message });
      throw error;
    }
  }

  #runningOf(plugin: KnownPlugin, { manifest, digest }: Content): RunningPlugin {
    const known = this.#running.get(digest);
    if (known !== undefined) return known;
    const { config, log, files, openers } = this.#options;
    const running = new RunningPlugin({
      key: () => stampOf(config()),
      open: async () => {
        const { files: all } = await this.#read(plugin, digest);
        const main = all.find(({ path }) => path === mainFile(manifest)?.path)?.bytes;
        return await openPlugin(openers, { manifest, digest, folder: files.folderOf(digest), main, config: config() });
      },
      onCloseError: (error) => log.error("A plugin could not be closed", { plugin: manifest.id, error }),
    });
    this.#running.set(digest, running);
    return running;
  }

  /** Reads the files of an enabled plugin. Those of a folder that went and came back are written again. */
  async #read({ id, folder }: KnownPlugin, digest: string): Promise<PluginPackage> {
    const { files } = this.#options;
    try {
      return await files.read(digest, { onChangedModule: onChangedModule(id, this.#options) });
    } catch (error) {
      if (folder === null) throw error;
      const found = await readPluginFolder(folder, { isFound: true });
      if (found.digest !== digest) throw error;
      await files.write(found);
      return found;
    }
  }
}

/** Returns the way to say that a module has changed, where `[runtime.wasm.security] module_hash_policy` lets it run. */
export function onChangedModule(
  id: string,
  { config, log }: Pick<OfferedPluginsOptions, "config" | "log">,
): ((reason: string) => void) | undefined {
  if (config().runtime.wasm.security.module_hash_policy !== "warn") return undefined;
  return (reason) =>
    log.warn("The module of a plugin has changed, and module_hash_policy lets it run", { plugin: id, reason });
}

/** Returns the part of a configuration that a host may be opened by, as a text to compare. */
function stampOf({ runtime, plugins, url_access, proxy, autonomy, security }: Config): string {
  return JSON.stringify([runtime, plugins, url_access, proxy, autonomy, security]);
}
