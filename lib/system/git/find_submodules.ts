import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { isWithin } from "../files/forbidden_paths.ts";
import { checkGitFolder } from "./check_git_folder.ts";
import { gitFolderOf, type RepositoryPlace } from "./find_repository.ts";

/** The mode of an entry that is a commit of another repository */
const GITLINK = "160000";

/**
 * The submodules of a repository that are checked out.
 * @param index what `git ls-files --stage -z` prints: `<mode> <object> <stage>\t<path>`, each ended by NUL
 * @throws {ToolError} as `findRepository`
 */
export async function findSubmodules(top: string, index: string, workspace: string): Promise<RepositoryPlace[]> {
  const found: RepositoryPlace[] = [];
  for (const entry of index.split("\0")) {
    if (!entry.startsWith(GITLINK)) continue;
    const path = join(top, entry.slice(entry.indexOf("\t") + 1));
    const real = await realpath(path).catch(() => undefined);
    // Git does not go through a symbolic link
    if (real !== path || !isWithin(real, workspace)) continue;
    const gitDir = await gitFolderOf(real, workspace);
    if (gitDir === undefined) continue;
    await checkGitFolder(gitDir, workspace);
    found.push({ top: real, gitDir, prefix: "" });
  }
  return found;
}
