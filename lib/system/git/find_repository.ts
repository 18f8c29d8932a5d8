import { lstat, realpath } from "node:fs/promises";
import { dirname, join, relative, resolve, sep } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { parsePath, shown } from "../files/parse_path.ts";
import { checkGitFolder, readStart } from "./check_git_folder.ts";

/** Where a repository lies. All paths are real and absolute, and inside the workspace. */
export interface RepositoryPlace {
  /** The top folder of the working tree */
  readonly top: string;
  readonly gitDir: string;
  /** The folder the call named, relative to `top`; empty for the top itself */
  readonly prefix: string;
}

const MAX_POINTER_BYTES = 4096;

/**
 * Finds the repository a folder belongs to: its own, or that of the nearest folder above it inside the workspace.
 * @param folder relative to the workspace, as the call named it
 * @throws {ToolError} `path_invalid`, `path_outside_root`, `not_a_repository`, `git_outside` when its git folder, or what that
 * leads to, lies outside the workspace
 */
export async function findRepository(folder: string, workspaceRoot: string): Promise<RepositoryPlace> {
  const { names } = parsePath(folder, "run git in");
  const workspace = await realpath(workspaceRoot);
  const start = await realpath(join(workspace, ...names)).catch(() => undefined);
  if (start === undefined || !(await lstat(start)).isDirectory()) {
    throw new ToolError("not_a_repository", `Cannot run git in ${shown(folder)}: there is no such folder`);
  }
  if (!isWithin(start, workspace)) {
    throw new ToolError("path_outside_root", `Cannot run git in ${shown(folder)}: it leads outside the workspace`);
  }
  for (let top = start; isWithin(top, workspace); top = dirname(top)) {
    const gitDir = await gitFolderOf(top, workspace);
    if (gitDir !== undefined) {
      await checkGitFolder(gitDir, workspace);
      return { top, gitDir, prefix: relative(top, start).split(sep).join("/") };
    }
    if (dirname(top) === top) break;
  }
  throw new ToolError(
    "not_a_repository",
    `Cannot run git in ${shown(folder)}: neither it nor a folder above it in the workspace has a .git`,
  );
}

/**
 * Returns the git folder of a working tree's top folder; undefined when it has none.
 * @throws {ToolError} `git_outside`
 */
export async function gitFolderOf(top: string, workspace: string): Promise<string | undefined> {
  const path = join(top, ".git");
  const kind = await lstat(path).catch(() => undefined);
  if (kind === undefined) return undefined;
  const display = relative(workspace, path);
  const target = kind.isFile() ? resolve(top, await readPointer(path, display)) : path;
  const real = await realpath(target).catch(() => undefined);
  if (real === undefined || !(await lstat(real)).isDirectory()) {
    throw new ToolError("not_a_repository", `Cannot run git: ${shown(display)} leads to no git folder`);
  }
  if (!isWithin(real, workspace)) {
    throw new ToolError("git_outside", `Cannot run git: ${shown(display)} leads to a git folder outside the workspace`);
  }
  return real;
}

/** Reads the path in a file `.git`: `gitdir: <path>`. */
async function readPointer(path: string, display: string): Promise<string> {
  const text = await readStart(path, MAX_POINTER_BYTES);
  const pointer = /^gitdir: ([^\n\0]+)\n?$/.exec(text)?.[1];
  if (pointer === undefined) {
    throw new ToolError("not_a_repository", `Cannot run git: ${shown(display)} is a file that names no git folder`);
  }
  return pointer;
}

/** The mode of an entry that is a commit of another repository */
const GITLINK = "160000";

/**
 * Finds the submodules of a repository that are checked out.
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
