import { lstat, realpath } from "node:fs/promises";
import { join } from "node:path";
import type { Random } from "../base/random.ts";
import type { BackupPart } from "../storage/back_up.ts";
import type { Collection } from "../storage/read_records.ts";
import { ExtensionError } from "./extension_error.ts";
import { createPluginFiles } from "./plugins/plugin_files.ts";
import { readPackage, writePackage } from "./plugins/plugin_package.ts";
import { type PluginRecord, PLUGINS } from "./plugins/plugin_record.ts";
import { readSkillFiles, skillDigest } from "./skills/read_skill.ts";
import { faultOfName } from "./skills/skill_document.ts";
import { SkillFiles } from "./skills/skill_files.ts";
import { type SkillRecord, SKILLS } from "./skills/skill_record.ts";
import { packSkill, skillFromArchive } from "./skills/skill_sources.ts";

/** Kind of extensions whose files a backup holds, each content as the part `<folder>/<name>.tar`. */
interface BackedUpKind<T> {
  /** Folder of the files in the data directory, and in the backup */
  readonly folder: string;
  readonly collection: Collection<T>;
  /** Returns the name of a record's part. Undefined: the record has no files, or its name is forged */
  readonly nameOf: (record: T) => string | undefined;
  /** Packs the files of a record. @returns undefined, or throws, for files that are gone or other than the recorded ones */
  readonly pack: (record: T, place: FilesPlace) => Promise<Uint8Array | undefined>;
  /** Writes the files of a record. @returns false for other files than the recorded ones. @throws {ExtensionError} for unusable ones */
  readonly unpack: (record: T, content: Uint8Array, place: FilesPlace) => Promise<boolean>;
}

/** Place of the files of a kind. `root` is an absolute path. */
type FilesPlace = { readonly root: string; readonly random: Random };

/** Files of the extensions of one kind, as a backup holds them. */
export class ExtensionBackup<T> {
  readonly #kind: BackedUpKind<T>;
  readonly #place: FilesPlace;
  /** Records that have files. Those that no version wrote are passed over. */
  readonly records: readonly T[];

  /** @param options.bodiesOf returns the stored records of a collection */
  constructor(
    kind: BackedUpKind<T>,
    { dataDir, random, bodiesOf }: {
      readonly dataDir: string;
      readonly random: Random;
      readonly bodiesOf: (collection: string) => readonly unknown[];
    },
  ) {
    this.#kind = kind;
    this.#place = { root: join(dataDir, kind.folder), random };
    this.records = bodiesOf(kind.collection.name).flatMap((body) => {
      try {
        return [kind.collection.parse(body)];
      } catch {
        return [];
      }
    }).filter((record) => kind.nameOf(record) !== undefined);
  }

  /** Reads the files, one content after the other. @param onMissing takes each record whose files are gone, or changed */
  async *parts(onMissing: (record: T) => void): AsyncIterable<BackupPart> {
    // Two records may name one content
    for (const [name, records] of Map.groupBy(this.records, (record) => this.partOf(record))) {
      const [record] = records;
      const content = record && await this.#kind.pack(record, this.#place).catch(() => undefined);
      if (content === undefined) records.forEach(onMissing);
      else yield { name, content };
    }
  }

  /** Returns the name of the part that holds the files of a record. */
  partOf(record: T): string {
    return `${this.#kind.folder}/${this.#kind.nameOf(record)}.tar`;
  }

  /**
   * Writes a part into the data directory. A part without a record, that breaks a rule, or whose content is another than the recorded one,
   * is left out: a backup may be forged.
   * @returns false for one that was left out
   * @throws {ExtensionError} `skill_conflict`, `package_invalid` when the disk refuses
   */
  async put({ name, content }: BackupPart): Promise<boolean> {
    const record = this.records.find((one) => this.partOf(one) === name);
    return record !== undefined && await this.#kind.unpack(record, content, this.#place);
  }
}

/** Checks the content of a part. @returns undefined for one that breaks a rule */
async function usable<T>(read: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof ExtensionError) return undefined;
    throw error;
  }
}

/** Packages of installed plugins, by their digest. */
export const PLUGIN_FILES: BackedUpKind<PluginRecord> = {
  folder: "plugins",
  collection: PLUGINS,
  nameOf: ({ folder, digest }) => folder === null ? digest : undefined,
  pack: async ({ digest }, place) => writePackage(await createPluginFiles(place).read(digest)),
  async unpack({ digest }, content, place) {
    const plugin = await usable(() => readPackage(content));
    if (plugin?.digest !== digest) return false;
    await createPluginFiles(place).write(plugin);
    return true;
  },
};

/** Files of installed skills, by their name. */
export const SKILL_FILES: BackedUpKind<SkillRecord> = {
  folder: "skills",
  collection: SKILLS,
  // Attack: a name in a forged record could lead out of the folder
  nameOf: ({ name }) => faultOfName(name) === undefined ? name : undefined,
  async pack({ name, digest }, { root }) {
    const folder = join(root, name);
    // Links are never followed
    if (!(await lstat(folder)).isDirectory()) return undefined;
    const { contents, links, executables } = await readSkillFiles(await realpath(folder));
    if (links.size > 0 || skillDigest(contents) !== digest) return undefined;
    return packSkill(name, { contents, executables });
  },
  async unpack({ name, digest }, content, place) {
    const files = await usable(() => skillFromArchive(content, name));
    const contents = new Map(files?.map(({ path, bytes }) => [path, bytes]));
    if (files === undefined || skillDigest(contents) !== digest) return false;
    const skills = new SkillFiles(place);
    await skills.put(name, await skills.write(files));
    return true;
  },
};
