import { constants } from "node:fs";
import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { pluginFolders } from "../../config/folders.ts";
import { MANIFEST_NAME, MAX_MANIFEST_BYTES } from "./manifest.ts";

/** Folders that are looked into at one place: packages and plugins. */
const MAX_FOLDERS = 256;

/** Places of plugins. */
export interface PluginPlaces {
  /** Absolute path of the data directory */
  readonly dataDir: string;
  /** Absolute path of the folder that the agent works in */
  readonly workspace: string;
  /** The user's home folder, absolute */
  readonly home: string;
  /** Value of `[plugins] user_dir` */
  readonly userDir: string;
}

/**
 * Returns the names that the manifests of installed and found plugins give to tools, on or off, for messages about a configuration: nothing
 * is checked, and a manifest that cannot be read has none. Never throws.
 */
export async function pluginToolNames({ dataDir, workspace, home, userDir }: PluginPlaces): Promise<readonly string[]> {
  const places = [
    // Installed packages lie here, wherever `user_dir` is
    join(dataDir, "plugins"),
    ...Object.values(pluginFolders(userDir, { dataDir, workspaceRoot: workspace, home })),
  ];
  const names = new Set<string>();
  for (const place of new Set(places)) {
    const folders = await readdir(place).catch(() => []);
    for (const folder of folders.slice(0, MAX_FOLDERS)) {
      for (const name of await namesIn(join(place, folder, MANIFEST_NAME))) names.add(name);
    }
  }
  return [...names];
}

async function namesIn(path: string): Promise<readonly string[]> {
  try {
    const { tools }: { readonly tools: readonly { readonly name: unknown }[] } = JSON.parse(await readStart(path));
    return tools.map(({ name }) => name).filter((name) => typeof name === "string");
  } catch {
    return [];
  }
}

/** Reads no more than a manifest may have. A longer file is no JSON then. */
async function readStart(path: string): Promise<string> {
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const bytes = new Uint8Array(MAX_MANIFEST_BYTES);
    const { bytesRead } = await file.read(bytes, 0, bytes.length, 0);
    return new TextDecoder().decode(bytes.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}
