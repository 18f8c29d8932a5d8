import { PLUGIN_LAYERS, type PluginLayer } from "../../base/records/extension_views.ts";
import type { FoundPlugin } from "./found_plugins.ts";
import type { PluginManifest } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import type { PluginRecord } from "./plugin_record.ts";

/** A plugin at one of its places, with its record. */
export interface KnownPlugin extends Omit<FoundPlugin, "folder"> {
  /** Folder that it was found in; null for a package */
  readonly folder: string | null;
  /** Undefined for a found plugin that nobody has enabled or disabled */
  readonly record: PluginRecord | undefined;
}

/** Tells whether somebody has enabled exactly this content, or `postern plugin dev` serves it. */
export function isEnabled({ layer, record, content }: Pick<KnownPlugin, "layer" | "record" | "content">): boolean {
  if (content === undefined) return false;
  return layer === "dev" || (record?.state === "enabled" && record.grant?.digest === content.digest);
}

/** The plugins of one gateway, each at each of its places. */
export class KnownPlugins {
  #all: readonly KnownPlugin[] = [];

  /** Returns the plugins that count: of one id, the one of the latest layer. Sorted by id. */
  effective(): readonly KnownPlugin[] {
    const byId = new Map<string, KnownPlugin>();
    for (const layer of PLUGIN_LAYERS) {
      for (const plugin of this.#all) if (plugin.layer === layer) byId.set(plugin.id, plugin);
    }
    return [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** Returns the plugin of this id that counts. */
  find(id: string): KnownPlugin | undefined {
    return this.effective().find((plugin) => plugin.id === id);
  }

  /** Returns the plugin of this id at one of the places that have no folder. */
  at(layer: "package" | "dev", id: string): KnownPlugin | undefined {
    return this.#all.find((plugin) => plugin.id === id && plugin.layer === layer);
  }

  /** Returns the plugins that this one overrides, or that override this one. */
  othersOf(plugin: KnownPlugin): readonly KnownPlugin[] {
    return this.#all.filter((other) => other.id === plugin.id && other !== plugin);
  }

  /** Puts a plugin in the place of the one with its id, layer and folder. */
  put(plugin: KnownPlugin): void {
    const isSame = (other: KnownPlugin) =>
      other.id === plugin.id && other.layer === plugin.layer && other.folder === plugin.folder;
    this.#all = [...this.#all.filter((other) => !isSame(other)), plugin];
  }

  /** Puts plugins in the place of all that a layer had. */
  putLayer(layer: PluginLayer, plugins: readonly KnownPlugin[]): void {
    this.#all = [...this.#all.filter((plugin) => plugin.layer !== layer), ...plugins];
  }

  /** Takes a plugin away. */
  delete(plugin: KnownPlugin): void {
    this.#all = this.#all.filter((other) => other !== plugin);
  }

  /** Refuses tools whose names another enabled plugin has. @throws {ExtensionError} `plugin_conflict` */
  checkNames({ id, tools }: PluginManifest): void {
    for (const other of this.effective()) {
      if (other.id === id || !isEnabled(other)) continue;
      const name = tools.find((tool) => other.content?.manifest.tools.some((taken) => taken.name === tool.name))?.name;
      if (name === undefined) continue;
      throw new ExtensionError(
        "plugin_conflict",
        `Cannot enable "${id}": the enabled plugin "${other.id}" has a tool "${name}" too; disable it first`,
      );
    }
  }

  /** Returns the digests whose files are needed: those of packages, of what is enabled, and of what `postern plugin dev` serves. */
  digests(): readonly string[] {
    return this.#all.flatMap(({ layer, record, content }) => {
      if (layer === "dev") return content === undefined ? [] : [content.digest];
      return record === undefined || (record.folder !== null && record.state !== "enabled") ? [] : [record.digest];
    });
  }
}
