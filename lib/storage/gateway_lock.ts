import { chmodSync, closeSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { ConfigError, messageOf, systemCodeOf } from "../base/errors.ts";
import { syncFoldersSync } from "../base/durable_files.ts";

/** The lock on a data directory. A second release does nothing. */
export interface GatewayLock {
  release(): void;
}

/**
 * Takes a data directory for this process, so that one gateway at a time owns its records, or a daemon its name. The operating
 * system drops the lock with the process, also on `kill -9`. A missing directory is created, mode 0700.
 * @param name file in the directory. Default: that of the records
 * @returns undefined when another process holds it
 * @throws {ConfigError} `database_unusable` when the file cannot be written
 */
export function takeGatewayLock(dataDir: string, name = "gateway.lock"): GatewayLock | undefined {
  const path = join(dataDir, name);
  let database: DatabaseSync | undefined;
  try {
    ensurePrivateFile(path);
    database = new DatabaseSync(path);
    database.exec("PRAGMA busy_timeout = 0");
    database.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    database?.close();
    const reason = messageOf(error);
    // The code of SQLite's error is missing on Deno, so its sentence decides
    if (/database is locked/i.test(reason)) return undefined;
    throw new ConfigError("database_unusable", `Cannot lock "${path}": ${reason}`, { file: path, cause: error });
  }
  const held = database;
  let released = false;
  return {
    release() {
      if (released) return;
      released = true;
      held.close();
    },
  };
}

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
    if (systemCodeOf(error) !== "EEXIST") throw error;
    const found = statSync(path);
    if (!found.isFile()) throw new Error("it is not a regular file", { cause: error });
    if ((found.mode & 0o077) !== 0) chmodSync(path, 0o600);
  }
}
