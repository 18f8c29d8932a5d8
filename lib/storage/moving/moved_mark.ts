import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { ConfigError } from "../../base/errors.ts";
import {
  APPLICATION_ID,
  BUSY_TIMEOUT_MS,
  MOVED_APPLICATION_ID,
  type MovedTo,
  movedTo,
  ownerOf,
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
 * @returns where its records had been moved to. Undefined: the database has no mark, and nothing was changed
 * @throws {ConfigError} `database_unusable`: there is no database
 */
export function unmarkMoved(path: string): MovedTo | undefined {
  const database = openMarked(path);
  try {
    if (ownerOf(database) !== "moved") return undefined;
    const to = movedTo(database);
    inTransaction(database, () => {
      database.exec(`DROP TABLE moved_to; PRAGMA application_id = ${APPLICATION_ID}`);
    });
    return to;
  } finally {
    database.close();
  }
}

/** Returns where the records of a database were moved to. Undefined: it has no mark, or there is no database. Changes nothing. */
export function readMovedMark(path: string): MovedTo | undefined {
  if (!existsSync(path)) return undefined;
  const database = openMarked(path);
  try {
    return ownerOf(database) === "moved" ? movedTo(database) : undefined;
  } finally {
    database.close();
  }
}

function openMarked(path: string): DatabaseSync {
  if (!existsSync(path)) {
    throw new ConfigError("database_unusable", `Cannot open "${path}": there is no database`, { file: path });
  }
  const database = new DatabaseSync(path);
  database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON`);
  return database;
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
