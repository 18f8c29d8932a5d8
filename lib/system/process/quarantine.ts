import { constants } from "node:fs";
import {
  copyFile,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readlink,
  realpath,
  rename,
  rmdir,
  symlink,
  unlink,
} from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import process from "node:process";
import { systemCodeOf } from "../../base/errors.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { type Guarded, nameIdentity } from "./surveys.ts";

/** Items that may lie there: what a person has not looked at is never thrown away, so commands stop in its place */
const MAX_ITEMS = 100;

/** Protected name that a command has made, and what became of it. */
export interface Quarantined {
  /** Relative to the workspace */
  readonly path: string;
  /** Where it lies now, absolute; undefined: it could not be moved, and is still there */
  readonly place: string | undefined;
}

/** Findings after a command: protected names that appeared in the workspace. */
export interface Aftermath {
  readonly quarantined: readonly Quarantined[];
  /** True when the workspace could not be looked through, so that nobody knows what appeared. */
  readonly unchecked: boolean;
}

/** The folder `{data_dir}/quarantine`: protected names that appeared while a command ran. */
export interface Quarantine {
  readonly folder: string;
  /** Tells whether the quarantine holds as many items as it may. */
  isFull(): Promise<boolean>;
  /** Moves what appeared out of the workspace. Never throws; what cannot be moved is in the answer. */
  take(appeared: readonly Guarded[], workspace: string): Promise<readonly Quarantined[]>;
}

/** Creates the quarantine of one data directory. */
export function createQuarantine({ folder, clock, random }: {
  /** Absolute; made when something is moved there */
  readonly folder: string;
  readonly clock: Clock;
  readonly random: Random;
}): Quarantine {
  const takeOne = async ({ path, identity }: Guarded, workspace: string): Promise<string | undefined> => {
    const parent = await holdFolder(dirname(path), workspace);
    try {
      const from = join(parent.place, basename(path));
      if (nameIdentity(from) !== identity) return undefined;
      const stamp = new Date(clock.now()).toISOString().replaceAll(":", "-");
      const item = join(folder, `${stamp}-${random.id("").slice(0, 12)}`);
      await mkdir(item, { recursive: true, mode: 0o700 });
      const place = join(item, basename(path));
      await move(from, place);
      return place;
    } finally {
      await parent.close();
    }
  };
  return {
    folder,
    isFull: async () => (await readdir(folder).catch(() => [])).length >= MAX_ITEMS,
    async take(appeared, workspace) {
      const taken: Quarantined[] = [];
      for (const one of appeared) {
        const place = await takeOne(one, workspace).catch(() => undefined);
        taken.push({ path: relative(workspace, one.path), place });
      }
      return taken;
    },
  };
}

/** Another file system cannot take it over by its name: it is copied, and then removed. */
async function move(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (systemCodeOf(error) !== "EXDEV") throw error;
    // A command may not use it while it is copied: under this name it means nothing
    const aside = join(dirname(from), `.postern-quarantine-${basename(dirname(to))}`);
    await rename(from, aside);
    await copyTree(aside, to);
    await removeTree(aside);
  }
}

/** Copies files, folders and links. Another program may exchange them meanwhile: no link in the place of a folder is followed. */
async function copyTree(from: string, to: string): Promise<void> {
  const found = await lstat(from);
  if (found.isSymbolicLink()) return await symlink(await readlink(from), to);
  if (!found.isDirectory()) {
    return await within(from, { isFolder: false }, (place) => copyFile(place, to, constants.COPYFILE_EXCL));
  }
  await mkdir(to, { mode: 0o700 });
  await within(from, { isFolder: true }, async (place) => {
    for (const name of await readdir(place)) await copyTree(join(place, name), join(to, name));
  });
}

/** Removes as copyTree copies. */
async function removeTree(path: string): Promise<void> {
  if (!(await lstat(path)).isDirectory()) return await unlink(path);
  await within(path, { isFolder: true }, async (place) => {
    for (const name of await readdir(place)) await removeTree(join(place, name));
  });
  await rmdir(path);
}

/** Calls `use` with a path that leads to this very file or folder while it does, whatever takes its name. @throws for a link, or another kind */
async function within(
  path: string,
  { isFolder }: { readonly isFolder: boolean },
  use: (place: string) => Promise<void>,
): Promise<void> {
  // Where nothing contains a program, it needs no such way
  if (process.platform !== "linux") return await use(path);
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(path, isFolder ? flags | constants.O_DIRECTORY : flags);
  try {
    if (!isFolder && !(await handle.stat()).isFile()) throw new Error("It is no file");
    await use(`/proc/self/fd/${handle.fd}`);
  } finally {
    await handle.close();
  }
}

interface HeldFolder {
  /** For system calls: leads to this very folder, whatever takes its name */
  readonly place: string;
  close(): Promise<void>;
}

/** Opens a folder of the workspace. A link that another program puts in its way would lead elsewhere. @throws when it does */
async function holdFolder(path: string, workspace: string): Promise<HeldFolder> {
  if (process.platform !== "linux") {
    if (await realpath(path) !== path || !isWithin(path, workspace)) throw new Error("The folder was moved");
    return { place: path, close: async () => {} };
  }
  const handle: FileHandle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const place = `/proc/self/fd/${handle.fd}`;
  try {
    if (await readlink(place) !== path || !isWithin(path, workspace)) throw new Error("The folder was moved");
  } catch (error) {
    await handle.close();
    throw error;
  }
  return { place, close: async () => await handle.close() };
}
