import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { ConfigError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { migrate, type Migration } from "./migrate.ts";
import { cutOffRestores } from "../cut_off_restores.ts";
import { ensurePrivateFile } from "../gateway_lock.ts";

/** Milliseconds to wait for another process that writes, as the CLI during a start. */
export const BUSY_TIMEOUT_MS = 5_000;
/** "Post": tells our databases from those of other programs. */
export const APPLICATION_ID = 0x506f7374;
/** "Pmvd": a database whose records were moved to another place. A Postern that does not know of this takes it for another program's. */
export const MOVED_APPLICATION_ID = 0x506d7664;

/**
 * Opens or creates a database file (mode 0600; its folder, when created, 0700) and migrates it: WAL, full sync.
 * @throws {ConfigError} naming the file: `database_too_new`, `database_corrupt` (not a database, another program's, or
 * damaged), `database_moved` (its records were moved to PostgreSQL), `database_unusable` (cannot be opened, read or written)
 */
export function openDatabase(path: string, migrations: readonly Migration[], log?: Logger): DatabaseSync {
  let database: DatabaseSync | undefined;
  try {
    refuseLostRecords(path);
    ensurePrivateFile(path);
    database = new DatabaseSync(path);
    database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
    const isNew = checkOwner(database, path);
    database.exec(`
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = FULL;
      PRAGMA fullfsync = ON;
      PRAGMA checkpoint_fullfsync = ON;
      PRAGMA trusted_schema = OFF;
    `);
    // In the log, where it costs one sync of the disk; before it, four
    if (isNew) database.exec(`PRAGMA application_id = ${APPLICATION_ID}`);
    migrate(database, path, migrations, log);
    // Each write of a group has a savepoint, with a copy of each page that the write changes. SQLite would make a file for the copies of
    // every group, and remove it. A migration may sort whole tables, so its files stay files
    database.exec("PRAGMA temp_store = MEMORY");
    return database;
  } catch (error) {
    database?.close();
    throw toOpenError(path, error);
  }
}

/**
 * Opens a database file without changing it or leaving anything beside it.
 * @param options.isInUse true: another process may write to it meanwhile. Default false
 * @throws {ConfigError} `database_corrupt`: the file is empty beside a full log. {Error} SQLite's, for a file that cannot be read
 */
export function openReadOnly(path: string, { isInUse = false }: { readonly isInUse?: boolean } = {}): DatabaseSync {
  refuseLostDatabase(path);
  const address = pathToFileURL(path);
  // A log that a killed gateway left holds its last records. Without such a log, "immutable" keeps SQLite from making one.
  if (!isInUse && bytesOf(`${path}-wal`) === 0) address.searchParams.set("immutable", "1");
  return new DatabaseSync(address, { readOnly: true });
}

/**
 * Refuses a path where a database was, so that nobody takes it for a place without records.
 * @throws {ConfigError} `database_corrupt`: the file is missing or empty beside a full log, or a restore was cut off there
 */
export function refuseLostRecords(path: string): void {
  refuseLostDatabase(path);
  refuseCutOffRestore(path);
}

/**
 * A log that holds records belongs to a database that was there. SQLite would start a new one, and throw the log away, also where it
 * only reads.
 * @throws {ConfigError} `database_corrupt`
 */
function refuseLostDatabase(path: string): void {
  const log = lostLogBytes(path);
  if (log === 0) return;
  throw new ConfigError(
    "database_corrupt",
    `Cannot open "${path}": the database is missing or empty, and its log "${path}-wal" holds ${log} bytes of records; ` +
      "put the database back beside its log, or restore a backup: postern restore <file>",
    { file: path },
  );
}

/**
 * A restore that was killed may leave no folder under the name of the data directory: a new, empty one there would hide the other two.
 * @throws {ConfigError} `database_corrupt`
 */
function refuseCutOffRestore(path: string): void {
  if (bytesOf(path) > 0) return;
  const dataDir = dirname(resolve(path));
  const [cutOff] = cutOffRestores(dataDir);
  if (cutOff === undefined) return;
  throw new ConfigError(
    "database_corrupt",
    `Cannot open "${path}": it is missing, and "${cutOff.made}" says that a restore was cut off; run ` +
      `postern restore <file> again, or remove that folder and give "${cutOff.before}" the name "${dataDir}" again`,
    { file: path },
  );
}

/** Bytes of a log whose database is missing or empty; 0 where nothing is lost. */
export function lostLogBytes(path: string): number {
  return bytesOf(path) > 0 ? 0 : bytesOf(`${path}-wal`);
}

function bytesOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** @returns whether it is empty and nobody's yet. @throws {ConfigError} `database_corrupt` for another program's, `database_moved` */
function checkOwner(database: DatabaseSync, path: string): boolean {
  const owner = ownerOf(database);
  if (owner === "moved") throw movedAway(path, movedTo(database));
  if (owner === "another") {
    throw new ConfigError("database_corrupt", `Cannot open "${path}": it is the database of another program`, {
      file: path,
    });
  }
  return owner === "nobody";
}

/** Tells whose database it is. An empty one is nobody's yet; one that is `moved` is Postern's, and must not be used. */
export function ownerOf(database: DatabaseSync): "postern" | "moved" | "another" | "nobody" {
  const id = Number(database.prepare("PRAGMA application_id").get()?.["application_id"]);
  if (id === APPLICATION_ID) return "postern";
  if (id === MOVED_APPLICATION_ID) return "moved";
  const tables = Number(database.prepare("SELECT count(*) AS n FROM sqlite_schema").get()?.["n"]);
  return id !== 0 || tables > 0 ? "another" : "nobody";
}

/** Place that the records of a database were moved to. */
export interface MovedTo {
  /** Address of the server and name of the database, without user and password */
  readonly database: string;
  readonly schema: string;
  /** ISO 8601 */
  readonly movedAt: string;
  /** Id of the copy that is there */
  readonly copyId: string;
}

/** Returns where the records of a database were moved to. Call it only for a database that is `moved`. */
export function movedTo(database: DatabaseSync): MovedTo {
  const row = database.prepare("SELECT target, schema, moved_at, copy_id FROM moved_to").get();
  const text = (name: string) => String(row?.[name] ?? "unknown");
  return { database: text("target"), schema: text("schema"), movedAt: text("moved_at"), copyId: text("copy_id") };
}

/** Returns the error for a database whose records were moved, with the ways out. */
export function movedAway(path: string, { database: target, schema, movedAt }: MovedTo): ConfigError {
  return new ConfigError(
    "database_moved",
    `Cannot use "${path}": its records were moved to the schema "${schema}" of the database ${target} at ${movedAt}; ` +
      'set storage.driver = "postgres", or go back to these records with postern storage unmark',
    { key: "storage.driver", file: path },
  );
}

/** Returns the error for the operator of a database file that cannot be opened, with the way out. A `ConfigError` stays as it is. */
export function toOpenError(path: string, error: unknown): ConfigError {
  if (error instanceof ConfigError) return error;
  const reason = messageOf(error);
  const options = { file: path, cause: error };
  // The code of SQLite's error is missing on Deno, so its sentence decides
  if (/not a database|malformed|corrupt/i.test(reason)) {
    const way = "restore a backup with postern restore <file>, or move it away with its log";
    return new ConfigError(
      "database_corrupt",
      `Cannot open "${path}": it is damaged or no database (${reason}); ${way}`,
      options,
    );
  }
  const way = /is full|ENOSPC/i.test(reason) ? "; make room on the disk, and start again" : "";
  return new ConfigError("database_unusable", `Cannot open "${path}": ${reason}${way}`, options);
}
