import { lstat, open, readdir, realpath, stat } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { systemCodeOf, ToolError } from "../../base/errors.ts";
import { type ForbiddenBy, isWithin } from "../files/forbidden_paths.ts";
import { shown } from "../files/parse_path.ts";

/** Files and folders looked at; a repository has at most some ten thousand loose objects before git packs them */
const MAX_ENTRIES = 200_000;
const MAX_LIST_BYTES = 65_536;
const MAX_ALTERNATES = 16;

/** Folders whose files are never written again: a local clone shares them by hard links */
const OBJECTS = /\/objects\/(?:[0-9a-f]{2}|pack)$/;
/** A branch may have a name like such a folder's, and its log is written again and again */
const LOGS = /(?:^|\/)logs\//;

/** Places that git may reach. */
interface GitReach {
  readonly workspace: string;
  /** Name of that folder in errors */
  readonly called: string;
  readonly forbiddenBy: ForbiddenBy;
}

/**
 * Checks that nothing in a git folder leads out of the workspace, or into a forbidden path: symbolic links, through which git writes
 * (`logs/HEAD`, `config`); hard links of what git writes in place; the common folder of a linked working tree; object stores that are
 * borrowed from.
 * @param gitDir real, absolute, inside the workspace
 * @param options.forbiddenBy Default: no path is forbidden
 * @param options.called name in errors of the folder that stands as the workspace. Default "workspace"
 * @returns the folder with what all working trees share, which is the git folder itself but for a linked one
 * @throws {ToolError} `git_outside`, `git_too_large`
 */
export async function checkGitFolder(
  gitDir: string,
  workspace: string,
  { forbiddenBy = () => undefined, called = "workspace" }: {
    readonly forbiddenBy?: ForbiddenBy | undefined;
    readonly called?: string;
  } = {},
): Promise<string> {
  const reach: GitReach = { workspace, called, forbiddenBy };
  const commonDir = await commonFolderOf(gitDir, reach);
  const count = { entries: 0 };
  await checkEntries(commonDir, { ...reach, count });
  if (!isWithin(gitDir, commonDir)) await checkEntries(gitDir, { ...reach, count });
  await checkAlternates(join(commonDir, "objects"), { ...reach, count });
  return commonDir;
}

async function commonFolderOf(gitDir: string, reach: GitReach): Promise<string> {
  const pointer = join(gitDir, "commondir");
  if (!(await lstat(pointer).catch(() => undefined))?.isFile()) return gitDir;
  const named = (await readStart(pointer, MAX_LIST_BYTES)).replace(/\n$/, "");
  const real = await realpath(resolve(gitDir, named)).catch(() => undefined);
  if (!reaches(real, reach)) throw outside(pointer, reach, "it names a folder");
  return real;
}

/** Tells whether a link or pointer leads to where git may go. @param real undefined where it leads to nothing */
function reaches(real: string | undefined, { workspace, forbiddenBy }: GitReach): real is string {
  return real !== undefined && isWithin(real, workspace) && forbiddenBy(real) === undefined;
}

interface CheckOptions extends GitReach {
  readonly count: { entries: number };
}

async function checkEntries(folder: string, options: CheckOptions): Promise<void> {
  const { workspace, count } = options;
  const entries = await readdir(folder, { withFileTypes: true }).catch(unlessGone) ?? [];
  count.entries += entries.length;
  if (count.entries > MAX_ENTRIES) {
    throw new ToolError(
      "git_too_large",
      `Cannot run git: the git folder has more than ${MAX_ENTRIES} files; run "git gc"`,
    );
  }
  const shared = OBJECTS.test(folder) && !LOGS.test(relative(workspace, folder));
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await checkEntries(path, options);
    else if (entry.isSymbolicLink()) {
      // Through a link to nothing git would make what it leads to
      const real = await realpath(path).catch(() => undefined);
      if (!reaches(real, options)) throw outside(path, options, "it is a symbolic link");
    } else if (!shared && entry.isFile()) {
      const found = await lstat(path).catch(unlessGone);
      if (found === undefined || found.nlink <= 1) continue;
      throw outside(path, options, "it has more than one hard link, and may be a file");
    }
  }
}

/** Git itself removes files meanwhile: what it has packed, and its locks. */
function unlessGone(error: unknown): undefined {
  if (systemCodeOf(error) === "ENOENT") return undefined;
  throw error;
}

/** Object stores that are borrowed from, and those that these borrow from. */
async function checkAlternates(objects: string, options: CheckOptions): Promise<void> {
  const stores = [objects];
  for (const store of stores) {
    if (store !== objects) await checkEntries(store, options);
    const list = join(store, "info", "alternates");
    if (!(await stat(list).catch(() => undefined))?.isFile()) continue;
    const text = await readStart(list, MAX_LIST_BYTES);
    for (const line of text.split("\n")) {
      if (line === "" || line.startsWith("#")) continue;
      // In quotes git would read escapes
      const real = line.startsWith('"') ? undefined : await realpath(resolve(store, line)).catch(() => undefined);
      if (!reaches(real, options)) throw outside(list, options, "it names an object store");
      if (!stores.includes(real)) stores.push(real);
      if (stores.length > MAX_ALTERNATES) {
        throw outside(list, options, "too many object stores follow it, perhaps some");
      }
    }
    if (text.length >= MAX_LIST_BYTES) throw outside(list, options, "it is too long, and may name an object store");
  }
}

function outside(path: string, { workspace, called }: GitReach, why: string): ToolError {
  const shownPath = shown(relative(workspace, path));
  return new ToolError(
    "git_outside",
    `Cannot run git: ${shownPath} leads out of the ${called}, since ${why} outside it or in a forbidden path; remove it, or run git yourself`,
  );
}

/** Returns the start of a small regular file as text. */
export async function readStart(path: string, maxBytes: number): Promise<string> {
  const file = await open(path, "r");
  try {
    const { bytesRead, buffer } = await file.read(new Uint8Array(maxBytes), 0, maxBytes, 0);
    return new TextDecoder().decode(buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}
