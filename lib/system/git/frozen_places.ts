import { Buffer } from "node:buffer";
import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { readConfig } from "./config_copy.ts";
import type { RepositoryPlace } from "./find_repository.ts";

/** Repositories of a call as they were checked: each of its git processes finds them so, whatever happens to the files meanwhile. */
export interface FrozenPlaces {
  /** Absolute paths of names of repositories and of their git folders: none of them may be made by a program that still runs */
  readonly gitPlaces: readonly string[];
  /** Content of the configurations by absolute path without links, which stands read-only in their place inside the sandbox */
  readonly copies: Map<string, Uint8Array>;
  /** Git folders outside the workspace that the call may read. Default: none */
  readonly reads?: readonly string[] | undefined;
}

/** Bytes of a configuration. It has lines for each branch, and a long-lived one has thousands */
const MAX_CONFIG_BYTES = 1_048_576;
/** A configuration of the working tree that is not there counts for no later process either. The last line before may end in a backslash */
const NO_WORKTREE_CONFIG = "\n\n[extensions]\n\tworktreeConfig = false\n";

/**
 * Reads the configurations of a repository, before git lists what they hold.
 * @param known repositories that the call works on as well. Default: none
 * @throws {ToolError} `git_config_refused` @throws the error of the system for what cannot be read
 */
export async function freezePlace(place: RepositoryPlace, known?: FrozenPlaces): Promise<FrozenPlaces> {
  const { top, gitDir, commonDir } = place;
  const copies = new Map(known?.copies);
  const freeze = async (path: string) => {
    const real = await realOf(path);
    const content = await readConfig(real, MAX_CONFIG_BYTES);
    if (content === undefined) return undefined;
    if (content.length > MAX_CONFIG_BYTES) {
      throw new ToolError("git_config_refused", "Cannot run git: the configuration is too large");
    }
    copies.set(real, content);
    return { real, content };
  };
  const shared = await freeze(configOf(place));
  await freeze(join(commonDir, "config.worktree"));
  const own = await freeze(join(gitDir, "config.worktree"));
  if (shared !== undefined && own === undefined && /worktreeconfig/i.test(shared.content.toString("latin1"))) {
    copies.set(shared.real, Buffer.concat([shared.content, Buffer.from(NO_WORKTREE_CONFIG)]));
  }
  const gitPlaces = new Set([...known?.gitPlaces ?? [], join(top, ".git"), gitDir, commonDir]);
  return { gitPlaces: [...gitPlaces], copies, reads: place.isOutside ? [commonDir] : known?.reads };
}

/** Returns the path of the configuration that all working trees of a repository share. */
export function configOf({ commonDir }: Pick<RepositoryPlace, "commonDir">): string {
  return join(commonDir, "config");
}

/** Returns where a path leads; the path itself where nothing lies. */
export async function realOf(path: string): Promise<string> {
  return await realpath(path).catch(() => path);
}
