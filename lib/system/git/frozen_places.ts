import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { MAX_CONFIG_BYTES, readConfig } from "./config_copy.ts";
import type { RepositoryPlace } from "./find_repository.ts";

/** Repositories of a call as they were checked: each of its git processes finds them so, whatever happens to the files meanwhile. */
export interface FrozenPlaces {
  /** Absolute paths of names of repositories and of their git folders: none of them may be made by a program that still runs */
  readonly gitPlaces: readonly string[];
  /** Content of the configurations by absolute path, which stands read-only in their place inside the sandbox */
  readonly copies: Map<string, Uint8Array>;
}

/**
 * Reads the configurations of a repository, before git lists what they hold.
 * @param known repositories that the call works on as well. Default: none
 * @throws {ToolError} `git_config_refused` @throws the error of the system for what cannot be read
 */
export async function freezePlace(place: RepositoryPlace, known?: FrozenPlaces): Promise<FrozenPlaces> {
  const { top, gitDir, commonDir } = place;
  const name = join(top, ".git");
  const isNamed = await realpath(name) === gitDir;
  const copies = new Map(known?.copies);
  for (const path of [configOf(place), join(commonDir, "config.worktree"), join(gitDir, "config.worktree")]) {
    const content = await readConfig(path);
    if (content === undefined) continue;
    if (content.length > MAX_CONFIG_BYTES) {
      throw new ToolError("git_config_refused", "Cannot run git: the configuration is too large");
    }
    copies.set(path, content);
  }
  const folders = [...isNamed ? [] : [gitDir], ...commonDir === gitDir ? [] : [commonDir]];
  return { gitPlaces: [...known?.gitPlaces ?? [], name, ...folders], copies };
}

/** Returns the path of the configuration that all working trees of a repository share. */
export function configOf({ commonDir }: Pick<RepositoryPlace, "commonDir">): string {
  return join(commonDir, "config");
}
