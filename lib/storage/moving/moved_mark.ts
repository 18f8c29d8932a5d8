import { DatabaseSync } from "node:sqlite";
import { inspectDatabase } from "../inspect_database.ts";
import {
  APPLICATION_ID,
  BUSY_TIMEOUT_MS,
  MOVED_APPLICATION_ID,
  type MovedTo,
  refuseLostRecords,
  toOpenError,
} from "../sqlite/open_database.ts";

/**
 * Marks a database as moved, in one transaction that is on the disk when the call returns. No gateway opens it from then on.
 * @throws SQLite's error when it cannot be written
 */
export function markMoved(database: DatabaseSync, to: MovedTo): void {
  inTransaction(database, () => {
    database.exec(`
      DROP TABLE IF EXISTS moved_to;
      CREATE TABLE moved_to (target TEXT NOT NULL, schema TEXT NOT NULL, moved_at TEXT NOT NULL, copy_id TEXT NOT NULL) STRICT;
      PRAGMA application_id = ${MOVED_APPLICATION_ID};
    `);
    database.prepare("INSERT INTO moved_to (target, schema, moved_at, copy_id) VALUES (?, ?, ?, ?)")
      .run(to.database, to.schema, to.movedAt, to.copyId);
  });
}

/**
 * Takes the mark from a database, so that gateways open it again. Only for whoever holds the data directory's lock.
 * @returns where its records had been moved to. Undefined: it has no mark, or there is no database, and nothing was changed
 * @throws {ConfigError} as `readMovedMark`; `database_unusable`: it cannot be written
 */
export function unmarkMoved(path: string): MovedTo | undefined {
  const to = readMovedMark(path);
  if (to === undefined) return undefined;
  let database: DatabaseSync | undefined;
  try {
    const file = database = new DatabaseSync(path);
    file.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON`);
    inTransaction(file, () => file.exec(`DROP TABLE moved_to; PRAGMA application_id = ${APPLICATION_ID}`));
    return to;
  } catch (error) {
    throw toOpenError(path, error);
  } finally {
    database?.close();
  }
}

/**
 * Returns where the records of a database were moved to. Undefined: it has no mark, or there is no database. Changes nothing. Only for
 * whoever holds the data directory's lock.
 * @throws {ConfigError} `database_corrupt`: it was there and is missing or empty, or is no database; `database_unusable`: it cannot be read
 */
export function readMovedMark(path: string): MovedTo | undefined {
  refuseLostRecords(path);
  try {
    return inspectDatabase(path, { maxBytes: 0 })?.moved;
  } catch (error) {
    throw toOpenError(path, error);
  }
}

function inTransaction(database: DatabaseSync, work: () => void): void {
  database.exec("BEGIN IMMEDIATE");
  try {
    work();
    database.exec("COMMIT");
  } catch (error) {
    database.exec("ROLLBACK");
    throw error;
  }
}
