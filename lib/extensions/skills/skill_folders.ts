import { join } from "node:path";
import type { Config } from "../../config/config.ts";
import { resolvePath } from "../../config/folders.ts";

/** Place of skills: `own` holds what the operator put there, `user` is shared with other programs, `workspace` came with a project. */
export const SKILL_LAYERS = ["own", "user", "workspace"] as const;
/** Place of a skill. */
export type SkillLayer = (typeof SKILL_LAYERS)[number];

/** Folder that skills are looked for in. */
export interface SkillFolder {
  /** Absolute */
  readonly path: string;
  readonly layer: SkillLayer;
  /** Name of the folder for people */
  readonly shownAs: string;
}

/** Places that decide where skills are looked for. Absolute paths. */
export interface SkillPlaces {
  /** The newest configuration. */
  readonly config: () => Pick<Config, "skills">;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  /** The user's home folder. */
  readonly home: string;
}

/** Folders that other programs look for skills in too. */
const SHARED = [".agents/skills", ".claude/skills"];

/**
 * Returns the folders of skills, the first to count first: those of `[skills] dirs`, `{data_dir}/skills`, those of the user that other
 * programs share, and those of the workspace. So no skill of a workspace takes the place of the user's.
 */
export function skillFolders({ config, dataDir, workspaceRoot, home }: SkillPlaces): readonly SkillFolder[] {
  const dirs = config().skills.dirs.map((path) => resolvePath(path, dataDir, home));
  const own = [...dirs, join(dataDir, "skills")].map((path) => ({ path, layer: "own" as const, shownAs: path }));
  const shared = SHARED.map((path) => ({ path: join(home, path), layer: "user" as const, shownAs: `~/${path}` }));
  const inWorkspace = SHARED.map((path) => ({
    path: join(workspaceRoot, path),
    layer: "workspace" as const,
    shownAs: path,
  }));
  // Skills of a home folder that is the workspace count as the workspace's
  return workspaceRoot === home ? [...own, ...inWorkspace] : [...own, ...shared, ...inWorkspace];
}
