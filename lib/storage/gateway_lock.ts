import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { ConfigError } from "../base/errors.ts";
import { ensurePrivateFile } from "./sqlite/private_file.ts";

/** The hold on a data directory; releasing twice does nothing. */
export interface GatewayLock {
  release(): void;
}

/**
 * Takes a data directory for this process, so that one gateway at a time owns its records, or a daemon its name. The operating system drops the
 * lock with the process, also on `kill -9`. The directory is created, mode 0700, where it is missing.
 * @param name file in the directory. Default: that of the records
 * @returns undefined when another holds it
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
    const reason = error instanceof Error ? error.message : String(error);
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
