import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import { type ExtensionPlaces, pluginFolders } from "../../config/folders.ts";
import type { PluginLayer } from "../../base/records/extension_views.ts";
import { findPlugins, stampOfPlugins, watchPlugins } from "./found_plugins.ts";
import type { KnownPlugin } from "./known_plugins.ts";
import type { PluginRecord } from "./plugin_record.ts";
import type { PluginRecords } from "./plugin_records.ts";

/** Places in which plugins lie as folders, from the one that is overridden by the others on. */
export const FOLDER_LAYERS = ["user_dir", "project", "workspace"] as const satisfies readonly PluginLayer[];
/** Place in which plugins lie as folders. */
export type FolderLayer = (typeof FOLDER_LAYERS)[number];

/** Options of PluginFolders. */
export interface PluginFoldersOptions extends ExtensionPlaces {
  readonly records: PluginRecords;
  readonly clock: Clock;
  readonly log: Logger;
  /** The newest configuration. */
  readonly config: () => Config;
}

/** The folders that plugins are found in. */
export class PluginFolders {
  readonly #options: PluginFoldersOptions;
  /** Stamps of the last looks */
  readonly #stamps = new Map<FolderLayer, string>();

  constructor(options: PluginFoldersOptions) {
    this.#options = options;
  }

  /** Looks in the folder of a layer again. What was enabled with another content is turned off. */
  async look(layer: FolderLayer): Promise<readonly KnownPlugin[]> {
    this.#stamps.set(layer, await stampOfPlugins(this.#pathOf(layer)));
    const records = await this.#options.records.read();
    const known: KnownPlugin[] = [];
    for (const plugin of await findPlugins({ layer, path: this.#pathOf(layer) })) {
      const record = records.find(({ id, folder }) =>
        folder === plugin.folder && (id === plugin.id || plugin.content === undefined)
      );
      const id = plugin.content === undefined ? record?.id ?? plugin.id : plugin.id;
      known.push(await this.#withChange({ ...plugin, id, record }));
    }
    return known;
  }

  /** Tells whether the folder of a layer is another than at the last look. */
  async hasChanged(layer: FolderLayer): Promise<boolean> {
    return await stampOfPlugins(this.#pathOf(layer)) !== this.#stamps.get(layer);
  }

  /** Calls back within a second after a change in `plugins` of the workspace. Returns the end of the watch. */
  watch(onChange: () => Promise<void>): Promise<() => void> {
    return watchPlugins(this.#pathOf("workspace"), { clock: this.#options.clock, onChange });
  }

  #pathOf(layer: FolderLayer): string {
    return pluginFolders(this.#options.config().plugins.user_dir, this.#options)[layer];
  }

  async #withChange(known: KnownPlugin): Promise<KnownPlugin> {
    const { record, content } = known;
    if (record === undefined || record.state !== "enabled" || record.grant?.digest === content?.digest) return known;
    const off: PluginRecord = { ...record, state: "disabled", off_because: "changed" };
    await this.#options.records.keep(off, [{ action: "turned_off", by: null }]);
    this.#options.log.warn("A plugin has changed and is off until it is enabled again", {
      plugin: known.id,
      folder: known.folder,
      digest: content?.digest,
    });
    return { ...known, record: off };
  }
}
