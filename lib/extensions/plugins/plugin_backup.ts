import { join } from "node:path";
import type { Random } from "../../base/random.ts";
import { PluginError } from "./plugin_error.ts";
import { createPluginFiles } from "./plugin_files.ts";
import { readPackage, writePackage } from "./plugin_package.ts";
import { type PluginRecord, PLUGINS } from "./plugin_record.ts";

/** Installed package in a backup. */
export interface KeptPackage {
  /** Name in the backup: `plugins/<digest>.tar` */
  readonly name: string;
  /** Bytes of the package, a tar */
  readonly content: Uint8Array;
}

const NAME = /^plugins\/([0-9a-f]{64})\.tar$/;

/**
 * Reads the packages that records name, one after the other, each once where several records name it. A package that is gone or damaged is left out: `onMissing` is told its id.
 * @param options.bodies stored records of plugins; those that no version wrote are passed over
 */
export async function* packagesOf(
  dataDir: string,
  { bodies, random, onMissing }: {
    readonly bodies: readonly unknown[];
    readonly random: Random;
    readonly onMissing: (id: string) => void;
  },
): AsyncIterable<KeptPackage> {
  const files = createPluginFiles({ root: join(dataDir, "plugins"), random });
  const records = Map.groupBy(installedAmong(bodies), ({ digest }) => digest);
  for (const [digest, sharing] of records) {
    const content = await files.read(digest).then(writePackage).catch(() => undefined);
    if (content === undefined) { for (const { id } of sharing) onMissing(id); }
    else yield { name: `plugins/${digest}.tar`, content };
  }
}

/**
 * Writes a package of a backup into a data directory. A package that breaks a rule, or whose content has another digest, is left out:
 * a backup may be forged. Returns whether it was written.
 */
export async function putPackage(
  dataDir: string,
  { name, content }: KeptPackage,
  random: Random,
): Promise<boolean> {
  const digest = NAME.exec(name)?.[1];
  if (digest === undefined) return false;
  try {
    const plugin = readPackage(content);
    if (plugin.digest !== digest) return false;
    await createPluginFiles({ root: join(dataDir, "plugins"), random }).write(plugin);
    return true;
  } catch (error) {
    if (error instanceof PluginError) return false;
    throw error;
  }
}

function installedAmong(bodies: readonly unknown[]): readonly PluginRecord[] {
  return bodies.flatMap((body) => {
    try {
      const record = PLUGINS.parse(body);
      return record.folder === null ? [record] : [];
    } catch {
      return [];
    }
  });
}
