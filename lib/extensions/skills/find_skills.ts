import { realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { systemCodeOf } from "../../base/errors.ts";
import type { SkillFolder } from "../../config/folders.ts";
import { listPlainFolder } from "../package_folder.ts";
import {
  type FoundSkill,
  isInside,
  readSkill,
  SKILL_NAMES,
  SkillFolderError,
  type SkillPlace,
  stampOfSkill,
} from "./read_skill.ts";

/** Skills of one folder, and why the folder as a whole or a part of it was not read. */
export interface SkillsOfFolder {
  readonly skills: readonly FoundSkill[];
  readonly problems: readonly string[];
}

/** Names that are read of one folder */
const MAX_ENTRIES = 2_000;
/** Skills of one folder */
const MAX_SKILLS = 200;
/** Files of all skills of one folder: whoever writes a project could make each look cost as much as a disk holds */
const MAX_FILES = 2_000;

/** Places that decide whose a skill is. Real paths. */
export type SkillGrounds = Pick<SkillPlace, "workspace" | "dataDir">;

/** Memory of skills that were read before. */
export interface SkillIndex {
  /** Returns the skill that was read with this stamp. Undefined where there is none */
  get(path: string, stamp: string): Promise<FoundSkill | undefined>;
  set(path: string, stamp: string, skill: FoundSkill): Promise<void>;
}

/**
 * Reads the skills of a folder: its folders with a SKILL.md, in any of its spellings. A folder that is not there has none.
 *
 * Links to folders are followed, as tools that install skills make them; those of a workspace only inside it.
 */
export async function findSkills(
  folder: SkillFolder,
  { index, ...grounds }: SkillGrounds & { readonly index: SkillIndex },
): Promise<SkillsOfFolder> {
  const listed = await namesIn(folder, grounds);
  if ("problem" in listed) return { skills: [], problems: [`Cannot read ${folder.shownAs}: ${listed.problem}`] };
  const skills: FoundSkill[] = [];
  const problems: string[] = [];
  let left = MAX_FILES;
  for (const name of listed.names) {
    const place = { ...grounds, layer: folder.layer, shownAs: `${folder.shownAs}/${name}` };
    const path = join(folder.path, name);
    try {
      const found = await stampOfSkill(path);
      left -= found.entries;
      if (left < 0) throw new SkillFolderError(`the skills before it have most of the ${MAX_FILES} files of a folder`);
      const stamp = [place.layer, place.shownAs, found.stamp].join("\n");
      const known = await index.get(path, stamp);
      const skill = known ?? (await readSkill(path, place))?.skill;
      if (skill === undefined) continue;
      skills.push(skill);
      if (known === undefined) await index.set(path, stamp, skill);
    } catch (error) {
      if (!(error instanceof SkillFolderError)) throw error;
      problems.push(`Cannot use the skill ${place.shownAs}: ${error.message}`);
    }
  }
  return { skills, problems };
}

/** Returns the stamps of all skills of a folder: another text means that one may have changed, come or gone. Never throws. */
export async function stampOfSkills(folder: SkillFolder, grounds: SkillGrounds): Promise<string> {
  const listed = await namesIn(folder, grounds);
  if ("problem" in listed) return listed.problem;
  const stamps: string[] = [];
  let left = MAX_FILES;
  for (const name of listed.names) {
    // Skills beyond the bound of files are never read, so only their names count
    if (left < 0) stamps.push(name);
    else {
      const { stamp, entries } = await stampOfSkill(join(folder.path, name));
      left -= entries;
      stamps.push(stamp);
    }
  }
  return stamps.join("\n\n");
}

async function hasMain(folder: string): Promise<boolean> {
  for (const name of SKILL_NAMES) {
    if (await stat(join(folder, name)).then((info) => info.isFile(), () => false)) return true;
  }
  return false;
}

async function namesIn(
  { path, layer }: SkillFolder,
  { workspace }: SkillGrounds,
): Promise<{ readonly names: readonly string[] } | { readonly problem: string }> {
  const names: string[] = [];
  try {
    const real = await realpath(path);
    if (layer === "workspace" && !isInside(real, workspace)) {
      return { problem: "the folder leads out of the workspace" };
    }
    const entries = await listPlainFolder(real, MAX_ENTRIES);
    if (entries.length > MAX_ENTRIES) return { problem: `it has over ${MAX_ENTRIES} entries` };
    for (const { name } of entries) {
      const isSkill = !name.startsWith(".") && await hasMain(join(real, name));
      if (isSkill) names.push(name);
      if (names.length > MAX_SKILLS) return { problem: `it has over ${MAX_SKILLS} skills` };
    }
  } catch (error) {
    const code = systemCodeOf(error);
    return code === "ENOENT" || code === "ENOTDIR" ? { names } : { problem: code ?? String(error) };
  }
  return { names: names.sort() };
}
