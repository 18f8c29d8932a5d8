import { existsSync, mkdirSync, realpathSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import type { Clock } from "../../lib/base/clock.ts";
import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import { syncFolder } from "../../lib/base/durable_files.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { cutOffRestores, type RestoreFolders, restoreFolders } from "../../lib/storage/cut_off_restores.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { inspectDatabase } from "../../lib/storage/inspect_database.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { type HeldWork, holdOpenWork } from "./hold_open_work.ts";
import { unpackBackup, type UnpackedParts } from "./unpack_backup.ts";

/** Result of a restore: the data directories, the parts of the backup, and the work that is held. */
export interface Restored extends UnpackedParts {
  readonly dataDir: string;
  /** Path of the earlier data directory. Null: there was none */
  readonly before: string | null;
  readonly held: HeldWork;
  /** Earlier restores that were cut off: the folders they had made are removed */
  readonly cutOff: readonly RestoreFolders[];
}

/** Options of `restoreBackup`. */
export interface RestoreOptions {
  readonly file: string;
  readonly dataDir: string;
  readonly keepTokens: boolean;
  readonly clock: Clock;
}

/**
 * Replaces a data directory by a backup, and keeps the earlier folder under another name.
 *
 * The new folder is made whole beside the old one before the two are exchanged. So both survive if the process ends at any moment,
 * and a start between the two renames is refused. Unfinished work in the backup does not go on by itself (see `holdOpenWork`).
 * @throws {ConfigError} `data_dir_locked` while something runs on the data directory; `database_corrupt`, `database_too_new`,
 * `database_unusable` for a file that is no backup, is damaged, or cannot be read
 */
export async function restoreBackup({ file, dataDir: named, keepTokens, clock }: RestoreOptions): Promise<Restored> {
  checkBackup(file);
  const hadOne = existsSync(named);
  const dataDir = hadOne ? realpathSync(named) : named;
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) {
    throw new ConfigError(
      "data_dir_locked",
      `Cannot restore into "${dataDir}": a gateway or node uses it; postern daemon stop, or end it first`,
    );
  }
  // No other restore is at work: it would hold the lock
  const cutOff = cutOffRestores(dataDir);
  const { made, before } = restoreFolders(dataDir, clock.now());
  try {
    mkdirSync(made, { mode: 0o700 });
    const parts = await unpackBackup(file, made);
    const store = await openSqliteStore({ path: join(made, DATABASE_NAME), clock });
    const held = await holdOpenWork({ store, clock, keepTokens }).finally(() => store.close());
    await syncFolder(made);
    setAsideFolder(dataDir, before);
    try {
      renameSync(made, dataDir);
    } catch (error) {
      renameSync(before, dataDir);
      throw error;
    }
    await syncFolder(dirname(dataDir));
    // Removed last: until the data directory is whole, they say that it may be missing
    for (const { made } of cutOff) rmSync(made, { recursive: true, force: true });
    return { dataDir, before: hadOne ? before : null, held, ...parts, cutOff };
  } finally {
    lock.release();
    rmSync(made, { recursive: true, force: true });
    // Taking the lock made the folder
    if (!hadOne) rmSync(before, { recursive: true, force: true });
  }
}

function setAsideFolder(dataDir: string, before: string): void {
  try {
    renameSync(dataDir, before);
  } catch (cause) {
    const reason = messageOf(cause);
    const message =
      `Cannot restore into "${dataDir}": the folder cannot be renamed (${reason}); where it is mounted, restore ` +
      "into a folder inside it with --data-dir";
    throw new ConfigError("database_unusable", message, { cause });
  }
}

function checkBackup(file: string): void {
  const refused = (code: string, reason: string, cause?: unknown) =>
    new ConfigError(code, `Cannot restore "${file}": ${reason}`, { file, cause });
  let facts: ReturnType<typeof inspectDatabase>;
  let isBackup = false;
  if (statSync(file, { throwIfNoEntry: false })?.isFile() === false) {
    throw refused("database_unusable", "it is no file");
  }
  try {
    facts = inspectDatabase(file, { maxBytes: Infinity });
    if (facts !== undefined) isBackup = isOurs(file);
  } catch (error) {
    throw refused("database_corrupt", messageOf(error), error);
  }
  if (facts === undefined) throw refused("database_unusable", "there is no such file");
  if (facts.damage !== null) throw refused("database_corrupt", `it is damaged: ${facts.damage}`);
  if (!isBackup) throw refused("database_corrupt", "it is no backup; postern backup makes one");
  if (facts.version > facts.knownVersion) {
    throw refused("database_too_new", `its version is ${facts.version}, and this Postern knows ${facts.knownVersion}`);
  }
}

function isOurs(file: string): boolean {
  const address = pathToFileURL(file);
  address.searchParams.set("immutable", "1");
  const database = new DatabaseSync(address, { readOnly: true });
  try {
    return database.prepare("SELECT name FROM sqlite_schema WHERE name = 'backup_files'").get() !== undefined;
  } finally {
    database.close();
  }
}
