import type { Config } from "../../config/config.ts";
import type { ManifestOf, PluginKind } from "./manifest.ts";
import type { PluginHost } from "./plugin_host.ts";

/** Enabled plugin that is to be opened: its files were just compared with its digest. */
export interface PluginToOpen<K extends PluginKind = PluginKind> {
  readonly manifest: ManifestOf<K>;
  /** Absolute path of the folder with the files of its package */
  readonly folder: string;
  /** Digest over the whole package, hexadecimal */
  readonly digest: string;
  /** Content of the file that it runs, which was compared with the manifest. Undefined for a program of the machine */
  readonly main: Uint8Array | undefined;
  /** Configuration that the host is opened by. After a change of it another host is opened */
  readonly config: Config;
}

/** Opens the host of a plugin. @throws {ToolError} or {ExtensionError} for one that cannot run */
export type OpenPlugin<K extends PluginKind = PluginKind> = (plugin: PluginToOpen<K>) => Promise<PluginHost>;

/** Openers by kind. A kind without one cannot run in this version. */
export type PluginOpeners = { readonly [K in PluginKind]?: OpenPlugin<K> };

/** Opens a plugin by the opener of its kind. @throws {TypeError} for a kind without one, which no caller may get as far as */
export function openPlugin(openers: PluginOpeners, plugin: PluginToOpen): Promise<PluginHost> {
  // The opener takes the manifest of its own kind, and is looked up by the kind of this one
  const open = openers[plugin.manifest.kind] as OpenPlugin | undefined;
  if (open === undefined) throw new TypeError(`No opener for plugins of the kind "${plugin.manifest.kind}"`);
  return open(plugin);
}
