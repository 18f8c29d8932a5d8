import { lstat, realpath } from "node:fs/promises";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { type ForbiddenBy, isWithin } from "../files/forbidden_paths.ts";
import { parsePath, shown } from "../files/parse_path.ts";
import { checkGitFolder, readStart } from "./check_git_folder.ts";
import { repositoryOfLinked } from "./outside_worktree.ts";

/** Where a repository lies. All paths are real and absolute, and inside the workspace but for `isOutside`. */
export interface RepositoryPlace {
  /** The top folder of the working tree */
  readonly top: string;
  readonly gitDir: string;
  /** The folder with the configuration and what else all working trees share: `gitDir`, but for a linked working tree */
  readonly commonDir: string;
  /** The folder the call named, relative to `top`; empty for the top itself */
  readonly prefix: string;
  /** Name of the file in that folder that the call named. undefined when the call named a folder */
  readonly file?: string | undefined;
  /** True: `gitDir` and `commonDir` lie outside the workspace, and are only read. Default false */
  readonly isOutside?: boolean | undefined;
}

const MAX_POINTER_BYTES = 4096;

/**
 * Finds the repository a folder belongs to: its own, or that of the nearest folder above it inside the workspace.
 * @param folder relative to the workspace, as the call named it
 * @param options.files true when it may also name a file, which stands for the folder that holds the file. Default false
 * @param options.reads true when the call only reads: the repository of a linked working tree may then lie outside. Default false
 * @param options.forbiddenBy Default: no path is forbidden
 * @throws {ToolError} `path_invalid`, `path_outside_root`, `not_a_repository`, `git_outside` when its git folder, or what that
 * leads to, lies outside the workspace or in a forbidden path
 */
export async function findRepository(
  folder: string,
  workspaceRoot: string,
  { files = false, reads = false, forbiddenBy }: {
    readonly files?: boolean;
    readonly reads?: boolean | undefined;
    readonly forbiddenBy?: ForbiddenBy;
  } = {},
): Promise<RepositoryPlace> {
  const { names } = parsePath(folder, "run git in");
  const workspace = await realpath(workspaceRoot);
  const path = join(workspace, ...names);
  const { start, file } = await folderAt(path) ?? (files ? await fileAt(path, workspace) : undefined) ?? {};
  if (start === undefined) {
    const what = files ? "folder or file" : "folder";
    throw new ToolError("not_a_repository", `Cannot run git in ${shown(folder)}: there is no such ${what}`);
  }
  if (!isWithin(start, workspace)) {
    throw new ToolError("path_outside_root", `Cannot run git in ${shown(folder)}: it leads outside the workspace`);
  }
  for (let top = start; isWithin(top, workspace); top = dirname(top)) {
    const gitDir = await gitFolderOf(top, workspace, { reads, forbiddenBy });
    if (gitDir !== undefined) {
      const isOutside = !isWithin(gitDir, workspace);
      const ground = isOutside ? dirname(dirname(gitDir)) : workspace;
      const commonDir = await checkGitFolder(gitDir, ground, {
        forbiddenBy,
        called: isOutside ? "repository" : "workspace",
      });
      return { top, gitDir, commonDir, prefix: relative(top, start).split(sep).join("/"), file, isOutside };
    }
    if (dirname(top) === top) break;
  }
  throw new ToolError(
    "not_a_repository",
    `Cannot run git in ${shown(folder)}: neither it nor a folder above it in the workspace has a .git`,
  );
}

interface Start {
  /** Real path of a folder */
  readonly start: string;
  readonly file?: string;
}

async function folderAt(path: string): Promise<Start | undefined> {
  const start = await realpath(path).catch(() => undefined);
  return start !== undefined && (await lstat(start)).isDirectory() ? { start } : undefined;
}

/** Finds the folder of a file. A symbolic link at the end is a file that git knows. Nothing outside the workspace is looked at. */
async function fileAt(path: string, workspace: string): Promise<Start | undefined> {
  const start = await realpath(dirname(path)).catch(() => undefined);
  if (start === undefined || !isWithin(start, workspace)) return start === undefined ? undefined : { start };
  const file = basename(path);
  const found = await lstat(join(start, file)).catch(() => undefined);
  return found?.isFile() === true || found?.isSymbolicLink() === true ? { start, file } : undefined;
}

/**
 * Returns the git folder of a working tree's top folder; undefined when it has none.
 * @param options.reads true: it may be that of a linked working tree whose repository lies outside. Default false
 * @throws {ToolError} `git_outside`
 */
export async function gitFolderOf(
  top: string,
  workspace: string,
  { reads = false, forbiddenBy = () => undefined }: {
    readonly reads?: boolean | undefined;
    readonly forbiddenBy?: ForbiddenBy | undefined;
  } = {},
): Promise<string | undefined> {
  const path = join(top, ".git");
  const kind = await lstat(path).catch(() => undefined);
  if (kind === undefined) return undefined;
  const display = relative(workspace, path);
  const target = kind.isFile() ? resolve(top, await readPointer(path, display)) : path;
  const real = await realpath(target).catch(() => undefined);
  if (real === undefined || !(await lstat(real)).isDirectory()) {
    throw new ToolError("not_a_repository", `Cannot run git: ${shown(display)} leads to no git folder`);
  }
  const repository = isWithin(real, workspace) ? real : await repositoryOfLinked(real, { top, workspace });
  const isOutside = repository !== real;
  if (repository === undefined || (isOutside && !reads)) {
    const way = repository === undefined
      ? "open the folder that holds the repository as the workspace; or, where this is a linked working tree of it, run git " +
        "worktree repair there, so that status, diff, log, show and branch work here"
      : "status, diff, log, show and branch work here; run the others yourself, or with the repository's folder as the workspace";
    const reason = `${shown(display)} leads to a git folder outside the workspace; ${way}`;
    throw new ToolError("git_outside", `Cannot run git: ${reason}`);
  }
  if (forbiddenBy(real) !== undefined || forbiddenBy(repository) !== undefined) {
    throw new ToolError("git_outside", `Cannot run git: ${shown(display)} leads to a git folder in a forbidden path`);
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

/** Submodules of a repository. */
export interface Submodules {
  /** Submodules that are checked out */
  readonly found: readonly RepositoryPlace[];
  /** Absolute paths where the others would have their `.git` */
  readonly missing: readonly string[];
}

/**
 * Finds the submodules of a repository.
 * @param index what `git ls-files --stage -z` prints: `<mode> <object> <stage>\t<path>`, each ended by NUL
 * @throws {ToolError} as `findRepository`
 */
export async function findSubmodules(top: string, index: string, workspace: string): Promise<Submodules> {
  const found: RepositoryPlace[] = [];
  const missing: string[] = [];
  for (const entry of index.split("\0")) {
    if (!entry.startsWith(GITLINK)) continue;
    const path = join(top, entry.slice(entry.indexOf("\t") + 1));
    const real = await realpath(path).catch(() => undefined);
    // Git does not go through a symbolic link
    const isThere = real === path && isWithin(real, workspace);
    const gitDir = isThere ? await gitFolderOf(path, workspace) : undefined;
    if (gitDir === undefined) missing.push(join(path, ".git"));
    else found.push({ top: path, gitDir, commonDir: await checkGitFolder(gitDir, workspace), prefix: "" });
  }
  return { found, missing };
}
