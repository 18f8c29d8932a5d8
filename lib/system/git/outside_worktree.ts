import { lstat, realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { isWithin } from "../files/forbidden_paths.ts";
import { readStart } from "./check_git_folder.ts";

const MAX_POINTER_BYTES = 4096;

/**
 * Returns the git folder of a repository outside the workspace that has a folder of the workspace as its linked working tree, as
 * `git worktree add` makes it. The repository itself must say so, which no program in the workspace can make it do: a `.git` file of the workspace
 * may name any folder.
 * @param gitDir real path that the `.git` of the working tree names
 * @param options.top real path of the working tree
 * @param options.workspace real path
 * @returns undefined where the repository names no working tree there, belongs to somebody else, or holds the workspace
 */
export async function repositoryOfLinked(
  gitDir: string,
  { top, workspace }: { readonly top: string; readonly workspace: string },
): Promise<string | undefined> {
  const commonDir = dirname(dirname(gitDir));
  if (basename(dirname(gitDir)) !== "worktrees" || isWithin(workspace, commonDir)) return undefined;
  const [common, back, own, repository] = await Promise.all([
    pointerIn(gitDir, "commondir"),
    pointerIn(gitDir, "gitdir"),
    lstat(top),
    lstat(commonDir),
  ]);
  if (common === undefined || back === undefined || own.uid !== repository.uid) return undefined;
  const named = await Promise.all([common, dirname(back)].map((path) => realpath(path).catch(() => undefined)));
  return named[0] === commonDir && named[1] === top && basename(back) === ".git" ? commonDir : undefined;
}

/** Returns the absolute path that a file of a git folder names. */
async function pointerIn(gitDir: string, name: string): Promise<string | undefined> {
  const path = join(gitDir, name);
  if ((await lstat(path).catch(() => undefined))?.isFile() !== true) return undefined;
  const text = /^([^\n\0]+)\n?$/.exec(await readStart(path, MAX_POINTER_BYTES))?.[1];
  return text === undefined ? undefined : resolve(gitDir, text);
}
