import { closeSync, fsyncSync, openSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname } from "node:path";

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

/** As syncFolder, on the event loop, for `folder` and those above it up to `top`: the names of folders that were just made. */
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
  return CANNOT.includes(String((error as NodeJS.ErrnoException).code));
}
