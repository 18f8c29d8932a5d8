import { lstat, realpath } from "node:fs/promises";
import { join } from "node:path";
import type { Random } from "../../base/random.ts";
import type { BackupPart } from "../../storage/back_up.ts";
import { writeTar } from "../plugins/tar.ts";
import { readSkillFiles, skillDigest } from "./read_skill.ts";
import { faultOfName } from "./skill_document.ts";
import { SkillError } from "./skill_error.ts";
import { SkillFiles } from "./skill_files.ts";
import { type SkillRecord, SKILLS } from "./skill_record.ts";
import { skillFromArchive } from "./skill_sources.ts";

const NAME = /^skills\/([^/]+)\.tar$/;

/**
 * Reads the files of installed skills, one skill after the other, each as `skills/<name>.tar`. A skill that is gone, or whose files are
 * other than those that were installed, is left out: `onMissing` is told its name.
 * @param options.bodies stored records of skills; those that no version wrote are passed over
 */
export async function* skillsForBackup(
  dataDir: string,
  { bodies, onMissing }: { readonly bodies: readonly unknown[]; readonly onMissing: (name: string) => void },
): AsyncIterable<BackupPart> {
  for (const record of installedSkills(bodies).values()) {
    const content = await pack(join(dataDir, "skills", record.name), record).catch(() => undefined);
    if (content === undefined) onMissing(record.name);
    else yield { name: `skills/${record.name}.tar`, content };
  }
}

/**
 * Writes a skill of a backup into a data directory. A skill without a record, or whose content has another digest than its record, is left
 * out: a backup may be forged. Returns its name; undefined for one that was left out.
 * @param options.bodies stored records of skills in the backup
 * @throws {SkillError} `skill_conflict` when the disk refuses
 */
export async function putSkill(
  dataDir: string,
  { name: part, content }: BackupPart,
  { bodies, random }: { readonly bodies: readonly unknown[]; readonly random: Random },
): Promise<string | undefined> {
  const record = installedSkills(bodies).get(NAME.exec(part)?.[1] ?? "");
  if (record === undefined) return undefined;
  const files = await skillFromArchive(content, record.name).catch((error: unknown) => {
    if (error instanceof SkillError) return [];
    throw error;
  });
  if (skillDigest(new Map(files.map(({ path, bytes }) => [path, bytes]))) !== record.digest) return undefined;
  const folder = new SkillFiles({ root: join(dataDir, "skills"), random });
  await folder.put(record.name, await folder.write(files));
  return record.name;
}

/** Returns the records of installed skills among stored bodies, by name. Records with names that no skill may have are passed over. */
export function installedSkills(bodies: readonly unknown[]): ReadonlyMap<string, SkillRecord> {
  const records = new Map<string, SkillRecord>();
  for (const body of bodies) {
    try {
      const record = SKILLS.parse(body);
      // Attack: a name in a forged record could lead out of the folder
      if (faultOfName(record.name) === undefined) records.set(record.name, record);
    } catch {
      // Damaged records have no files
    }
  }
  return records;
}

/** Packs the files of a skill below a folder of its name. Undefined for files other than the recorded ones. Links are never followed. */
async function pack(folder: string, { name, digest }: SkillRecord): Promise<Uint8Array | undefined> {
  if (!(await lstat(folder)).isDirectory()) return undefined;
  const { contents, links, executables } = await readSkillFiles(await realpath(folder));
  if (links.size > 0 || skillDigest(contents) !== digest) return undefined;
  const files = [...contents].map(([path, bytes]) => ({
    path: `${name}/${path}`,
    bytes,
    executable: executables.has(path),
  }));
  return writeTar(files, { writesExtended: true });
}
