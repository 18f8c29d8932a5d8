import { closeSync, fsyncSync, openSync } from "node:fs";
import { mkdir, open, readdir, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { systemCodeOf } from "./errors.ts";
import { type Clock, systemClock } from "./clock.ts";
import { createSystemRandom, type Random } from "./random.ts";

const NEW_FILE_MODE = 0o600;

/**
 * Writes a file so that a reader, or the next start after a power loss, sees the old text or the new one, never a part.
 * Once it resolves, the new text survives a loss of power. A symbolic link keeps pointing at the file; the file keeps its mode, a new one
 * gets 0600, its folder 0700.
 * @param options.isPrivate true: the file gets 0600 whatever was there, and takes the place of a link. Default false
 */
export async function writeAtomically(
  path: string,
  text: string,
  options: { readonly isPrivate?: boolean; readonly syncFolder?: typeof syncFolder } = {},
): Promise<void> {
  const target = options.isPrivate ? path : await realpath(path).catch(() => path);
  const mode = options.isPrivate
    ? NEW_FILE_MODE
    : await stat(target).then((info) => info.mode & 0o7777, () => NEW_FILE_MODE);
  const folder = dirname(target);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const temporary = join(folder, temporaryNames().next());
  try {
    const file = await open(temporary, "wx", NEW_FILE_MODE);
    try {
      await file.writeFile(text);
      await file.chmod(mode);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, target);
    await (options.syncFolder ?? syncFolder)(folder);
  } catch (cause) {
    await rm(temporary, { force: true });
    throw cause;
  }
}

/** Removes what processes that were killed in the middle of `writeAtomically` left in a folder. Never throws. */
export async function removeUnfinished(folder: string): Promise<void> {
  const names = temporaryNames();
  for (const name of (await readdir(folder).catch(() => [])).filter(isTemporary)) {
    const path = join(folder, name);
    const modifiedMs = await stat(path).then((info) => info.mtimeMs, () => Infinity);
    if (names.isLeftover(name, modifiedMs)) await rm(path, { force: true }).catch(() => {});
  }
}

function temporaryNames(): TemporaryNames {
  return createTemporaryNames({ clock: systemClock, random: createSystemRandom() });
}

/** Codes of systems that cannot open or sync a folder: names are durable there without it, or not at all. */
const CANNOT = ["EISDIR", "EPERM", "EINVAL", "ENOTSUP", "EACCES"];

/**
 * Brings the names in a folder to the disk. A new or renamed file is lost by a loss of power until its folder is synced, however
 * often the file itself was (fsync(2)).
 * @throws the file system's error
 */
export async function syncFolder(path: string): Promise<void> {
  try {
    const folder = await open(path, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  } catch (error) {
    if (!isImpossible(error)) throw error;
  }
}

/** Syncs `folder` and the folders above it up to `top` as syncFolder does, on the event loop: for folders that were just made. */
export function syncFoldersSync(folder: string, top: string): void {
  try {
    const descriptor = openSync(folder, "r");
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (!isImpossible(error)) throw error;
  }
  if (folder !== top && folder !== dirname(folder)) syncFoldersSync(dirname(folder), top);
}

function isImpossible(error: unknown): boolean {
  return CANNOT.includes(String(systemCodeOf(error)));
}

/** The process that made it, and a random part */
const NAME = /^\.postern-(\d{1,10})-[0-9a-z]{24}\.tmp$/;

/** Names of files that are written beside the place they will have. */
export interface TemporaryNames {
  /** Not guessable, so that nobody else has or takes it */
  next(): string;
  /**
   * Tells whether a file of this name was left behind by a process that ended in the middle of a change.
   * @param modifiedMs when it was last written, milliseconds since the epoch
   */
  isLeftover(name: string, modifiedMs: number): boolean;
}

/** Creates the names of temporary files of this process, for example `.postern-4711-k3v9.tmp`. */
export function createTemporaryNames({ clock, random }: {
  readonly clock: Clock;
  readonly random: Random;
}): TemporaryNames {
  const startedAt = clock.now() - process.uptime() * 1000;
  return {
    next: () => `.postern-${process.pid}-${random.id("")}.tmp`,
    isLeftover(name, modifiedMs) {
      const match = NAME.exec(name);
      if (match === null) return false;
      const pid = Number(match[1]);
      // In a container the next process often has the number of the last one
      return pid === process.pid ? modifiedMs < startedAt : !isAlive(pid);
    },
  };
}

/** Tells whether a name was made by `TemporaryNames`, in this process or any other. */
export function isTemporary(name: string): boolean {
  return NAME.test(name);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Anything but "no such process" says nothing about it
    return systemCodeOf(error) !== "ESRCH";
  }
}
