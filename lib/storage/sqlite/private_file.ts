import { syncFoldersSync } from "../../base/sync_folder.ts";
import { chmodSync, closeSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Makes sure that a file exists, mode 0600, in a folder that is created with mode 0700 where it is missing.
 *
 * A file that exists is never opened here: closing it would drop the locks that this process holds on it (POSIX fcntl).
 * @throws the file system's errors, and Error when something else than a file has the name
 */
export function ensurePrivateFile(path: string): void {
  const made = mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  if (made !== undefined) syncFoldersSync(dirname(dirname(path)), dirname(made));
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    const found = statSync(path);
    if (!found.isFile()) throw new Error("it is not a regular file", { cause: error });
    if ((found.mode & 0o077) !== 0) chmodSync(path, 0o600);
  }
}
