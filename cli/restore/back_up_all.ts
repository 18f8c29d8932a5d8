import { createSystemRandom } from "../../lib/base/random.ts";
import { packagesOf } from "../../lib/extensions/plugins/plugin_backup.ts";
import { PLUGINS } from "../../lib/extensions/plugins/plugin_record.ts";
import { backUp, type BackupFacts } from "../../lib/storage/back_up.ts";

/** Facts about a backup that was made. */
export interface MadeBackup extends Omit<BackupFacts, "parts"> {
  /** Number of packages of plugins in it */
  readonly plugins: number;
  /** Ids of installed plugins whose files are missing or damaged */
  readonly missing: readonly string[];
}

/**
 * Writes a backup with everything that a restore needs: records, keys, and the packages of installed plugins.
 * @throws {ConfigError} as `backUp`
 */
export async function backUpAll(
  dataDir: string,
  to: string,
  { isInUse }: { readonly isInUse: boolean },
): Promise<MadeBackup> {
  const missing: string[] = [];
  const { parts, ...facts } = await backUp(dataDir, to, {
    isInUse,
    parts: (bodiesOf) =>
      packagesOf(dataDir, {
        bodies: bodiesOf(PLUGINS),
        random: createSystemRandom(),
        onMissing: (id) => void missing.push(id),
      }),
  });
  return { ...facts, plugins: parts.length, missing };
}
