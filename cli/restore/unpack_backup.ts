import { chmodSync, copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createSystemRandom } from "../../lib/base/random.ts";
import { ExtensionBackup, PLUGIN_FILES, SKILL_FILES } from "../../lib/extensions/extension_backup.ts";
import { type NamedPackage, readNamedPackage } from "../../lib/extensions/mcp/install/package_backup.ts";
import type { PluginRecord } from "../../lib/extensions/plugins/plugin_record.ts";
import type { SkillRecord } from "../../lib/extensions/skills/skill_record.ts";
import { type BackupPart, bodiesIn, DATABASE_NAME, KEPT_FILES } from "../../lib/storage/back_up.ts";

/** Skill that has a record in the backup, and no files. */
export interface LostSkill {
  readonly name: string;
  /** Path or URL that it was installed from */
  readonly from: string;
}

/** Parts of a backup beside the records and the keys. */
export interface UnpackedParts {
  /** Number of packages of plugins that were written */
  readonly plugins: number;
  /** Number of skills whose files were written */
  readonly skills: number;
  /** Installed skills without files: they were missing when the backup was made, or are forged in it */
  readonly lostSkills: readonly LostSkill[];
  /** Packages of MCP servers that the backup names, and does not hold */
  readonly mcpPackages: readonly NamedPackage[];
}

/** Unpacks a backup into an empty folder. Parts that a data directory does not have are left out, since a backup may be forged. */
export async function unpackBackup(file: string, folder: string): Promise<UnpackedParts> {
  const path = join(folder, DATABASE_NAME);
  copyFileSync(file, path);
  chmodSync(path, 0o600);
  const database = new DatabaseSync(path);
  try {
    const unpacking = new Unpacking(folder, (collection) => bodiesIn(database, collection));
    const select = database.prepare("SELECT content FROM backup_files WHERE name = ?");
    // Reads one file at a time, since packages may be large
    for (const { name } of database.prepare("SELECT name FROM backup_files").all()) {
      const content = select.get(name ?? null)?.["content"];
      if (content instanceof Uint8Array) await unpacking.put({ name: String(name), content });
    }
    database.exec("DROP TABLE backup_files");
    return unpacking.parts();
  } finally {
    database.close();
  }
}

class Unpacking {
  readonly #folder: string;
  readonly #plugins: ExtensionBackup<PluginRecord>;
  readonly #skills: ExtensionBackup<SkillRecord>;
  /** Names of the parts that were written */
  readonly #written = { plugins: new Set<string>(), skills: new Set<string>() };
  readonly #mcpPackages: NamedPackage[] = [];

  constructor(folder: string, bodiesOf: (collection: string) => readonly unknown[]) {
    const options = { dataDir: folder, random: createSystemRandom(), bodiesOf };
    this.#folder = folder;
    this.#plugins = new ExtensionBackup(PLUGIN_FILES, options);
    this.#skills = new ExtensionBackup(SKILL_FILES, options);
  }

  /** Writes a part, if it is one that a data directory has. */
  async put(part: BackupPart): Promise<void> {
    // Attack: a name in a forged backup could lead out of the folder
    if (KEPT_FILES.some((known) => known === part.name)) {
      writeFileSync(join(this.#folder, part.name), part.content, { mode: 0o600, flush: true });
      return;
    }
    if (await this.#plugins.put(part)) this.#written.plugins.add(part.name);
    if (await this.#skills.put(part)) this.#written.skills.add(part.name);
    const named = readNamedPackage(part);
    if (named !== undefined) this.#mcpPackages.push(named);
  }

  parts(): UnpackedParts {
    const { plugins, skills } = this.#written;
    const lostSkills = this.#skills.records
      .filter((record) => !skills.has(this.#skills.partOf(record)))
      .map(({ name, source: { from } }) => ({ name, from }));
    return { plugins: plugins.size, skills: skills.size, lostSkills, mcpPackages: this.#mcpPackages };
  }
}
