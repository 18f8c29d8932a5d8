import { lstat } from "node:fs/promises";
import { basename, join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import { listPlainFolder } from "../package_folder.ts";
import type { PluginLayer } from "../../base/records/extension_views.ts";
import { MANIFEST_NAME, type PluginManifest } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import { type FolderBounds, MAX_ENTRIES, readPluginFolder, realPlaceOf, stampOfFolder } from "./plugin_files.ts";
import { MAX_PACKAGE_BYTES, MAX_PACKAGE_FILES } from "./plugin_package.ts";

/** Plugin in a folder, or the reason why the folder holds none that can be used. */
export interface FoundPlugin {
  readonly id: string;
  readonly layer: PluginLayer;
  /** Absolute path of the plugin's own folder */
  readonly folder: string;
  /** Undefined for a folder that cannot be used */
  readonly content: { readonly manifest: PluginManifest; readonly digest: string } | undefined;
  /** Why the folder cannot be used; undefined when it can */
  readonly fault: string | undefined;
}

/** Folder in which plugins are looked for. */
export interface PluginFolder {
  readonly layer: PluginLayer;
  /** Absolute path */
  readonly path: string;
}

/** Plugins that one folder may hold. */
const MAX_PLUGINS = 64;
/** Bytes of all plugins of a folder: whoever writes a project could make each look cost as much as a disk holds. */
const MAX_BYTES = 268_435_456;
/** Files of all plugins of a folder. */
const MAX_FILES = 2_000;
/** Packages and unfinished packages in `{data_dir}/plugins`. */
const OURS = /^([0-9a-f]{64}|\..*)$/;
const ID = /^[a-z0-9][a-z0-9-]{0,63}$/;

/** How often a watched folder is looked at. A change counts when the next look finds it again: an editor writes in steps. */
const LOOK_MS = 350;

/**
 * Looks for plugins in a folder, one after the other: at most 64, with 2,000 files and 256 MiB together. A folder that is not there holds
 * none, and one that is a link holds none either. Never throws.
 */
export async function findPlugins({ layer, path }: PluginFolder): Promise<readonly FoundPlugin[]> {
  const plugins: FoundPlugin[] = [];
  const left = { bytes: MAX_BYTES, files: MAX_FILES };
  // Bytes of a plugin that is refused count too, since they were read
  const onRead = (bytes: number) => {
    left.bytes -= bytes;
    left.files--;
  };
  for (const name of await pluginNames(path)) {
    plugins.push(await findPlugin({ layer, folder: join(path, name) }, { left, onRead }));
  }
  return plugins;
}

/** Reads one plugin folder. Never throws. */
async function findPlugin(
  { layer, folder }: Pick<FoundPlugin, "layer" | "folder">,
  { left, onRead }: { readonly left: FolderBounds; readonly onRead: (bytes: number) => void },
): Promise<FoundPlugin> {
  const most = { bytes: Math.min(left.bytes, MAX_PACKAGE_BYTES), files: Math.min(left.files, MAX_PACKAGE_FILES) };
  try {
    const { manifest, digest } = await readPluginFolder(folder, { most, onRead, isFound: true });
    return { id: manifest.id, layer, folder, content: { manifest, digest }, fault: undefined };
  } catch (error) {
    const fault = error instanceof ExtensionError ? error.message : `Cannot read "${folder}": ${messageOf(error)}`;
    const isFull = most.bytes < MAX_PACKAGE_BYTES || most.files < MAX_PACKAGE_FILES;
    const more = isFull
      ? `; the plugins before it have most of ${MAX_FILES} files and ${MAX_BYTES} bytes, the bound`
      : "";
    return { id: basename(folder), layer, folder, content: undefined, fault: `${fault}${more}` };
  }
}

/** Calls back within a second after something below a folder changed, came or went. Returns the end of the watch. */
export async function watchPlugins(
  path: string,
  { clock, onChange }: { readonly clock: Clock; readonly onChange: () => Promise<void> },
): Promise<() => void> {
  let isEnded = false;
  // Stamps of what the last call told, and of the last look
  let told = await stampOfPlugins(path);
  let seen = told;
  const poller = new Poller(async () => {
    const stamp = await stampOfPlugins(path);
    const isQuiet = stamp === seen;
    seen = stamp;
    if (!isQuiet || stamp === told || isEnded) return;
    told = stamp;
    await onChange();
  });
  poller.start(clock, LOOK_MS);
  return () => {
    isEnded = true;
    void poller.stop();
  };
}

/** Returns the names of the folders that may be plugins, at most 64. */
async function pluginNames(path: string): Promise<readonly string[]> {
  const entries = await realPlaceOf(path).then((place) => listPlainFolder(place, MAX_ENTRIES)).catch(() => []);
  const names: string[] = [];
  for (const { name } of entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    if (OURS.test(name) || !ID.test(name) || names.length >= MAX_PLUGINS) continue;
    const manifest = await lstat(join(path, name, MANIFEST_NAME)).catch(() => undefined);
    if (manifest !== undefined) names.push(name);
  }
  return names;
}

/** Returns the files of the plugins of a folder with their sizes and times: another text means that one may have changed. Never throws. */
export async function stampOfPlugins(path: string): Promise<string> {
  const stamps: string[] = [];
  let left = MAX_FILES;
  for (const name of await pluginNames(path)) {
    const stamp = await stampOfFolder(join(path, name), Math.min(left, MAX_PACKAGE_FILES));
    left -= stamp.split("\n").length;
    stamps.push(`${name}\n${stamp}`);
  }
  return stamps.join("\n\n");
}
