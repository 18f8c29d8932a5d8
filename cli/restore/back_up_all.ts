import { createSystemRandom } from "../../lib/base/random.ts";
import { ExtensionBackup, PLUGIN_FILES, SKILL_FILES } from "../../lib/extensions/extension_backup.ts";
import { packagesForBackup } from "../../lib/extensions/mcp/install/package_backup.ts";
import { backUp, type BackupFacts, type BackupPart } from "../../lib/storage/back_up.ts";

/** Facts about a backup that was made. */
export interface MadeBackup extends Omit<BackupFacts, "parts"> {
  /** Number of packages of plugins in it */
  readonly plugins: number;
  /** Number of installed skills in it */
  readonly skills: number;
  /** Number of packages of MCP servers that it names */
  readonly mcpPackages: number;
  /** Ids of installed plugins whose files are missing or damaged */
  readonly missing: readonly string[];
  /** Names of installed skills whose files are missing or changed */
  readonly missingSkills: readonly string[];
}

/**
 * Writes a backup with everything that a restore needs: records, keys, the packages of installed plugins, the files of installed skills,
 * and the names of the packages of MCP servers.
 * @throws {ConfigError} as `backUp`
 */
export async function backUpAll(
  dataDir: string,
  to: string,
  { isInUse }: { readonly isInUse: boolean },
): Promise<MadeBackup> {
  const missing: string[] = [];
  const missingSkills: string[] = [];
  async function* partsOf(bodiesOf: (collection: string) => readonly unknown[]): AsyncIterable<BackupPart> {
    const options = { dataDir, random: createSystemRandom(), bodiesOf };
    yield* new ExtensionBackup(PLUGIN_FILES, options).parts(({ id }) => void missing.push(id));
    yield* new ExtensionBackup(SKILL_FILES, options).parts(({ name }) => void missingSkills.push(name));
    yield* packagesForBackup(dataDir);
  }
  const { parts, ...facts } = await backUp(dataDir, to, { isInUse, parts: partsOf });
  const count = (folder: string) => parts.filter((name) => name.startsWith(folder)).length;
  const counts = { plugins: count("plugins/"), skills: count("skills/"), mcpPackages: count("mcp/packages/") };
  return { ...facts, ...counts, missing, missingSkills };
}
