import { chmodSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { ConfigError } from "../../base/errors.ts";
import { type Logger, SILENT } from "../../base/telemetry/log.ts";
import { rollBack } from "./group_commit.ts";

/** A step that brings a database to the next version. A released step never changes. */
export interface Migration {
  /** The database's version after it; counts from 1 without a gap */
  readonly version: number;
  /** Runs inside a transaction that the caller opens and ends */
  readonly up: (database: DatabaseSync) => void;
}

const KEPT_BACKUPS = 3;

/**
 * Brings a database to the version of the last migration, each step in a transaction of its own, after one backup at
 * `<path>.bak-<version before the first step>`; the three newest backups stay, so that of an upgrade over many versions is what was there
 * before it. A new, empty database gets none. The log tells of each step but those of a new database: a step may take a minute.
 * @throws {ConfigError} `database_too_new` when a newer Postern wrote it; nothing is changed
 */
export function migrate(
  database: DatabaseSync,
  path: string,
  migrations: readonly Migration[],
  log: Pick<Logger, "info"> = SILENT,
): void {
  const known = migrations.at(-1)?.version ?? 0;
  const found = versionOf(database);
  if (found > known) {
    throw new ConfigError(
      "database_too_new",
      `Cannot open "${path}": its version is ${found}, and this Postern knows versions up to ${known}; ` +
        `run the Postern that needs version ${found}, or restore a backup "${path}.bak-*"`,
      { file: path },
    );
  }
  for (const migration of migrations) {
    if (migration.version <= found) continue;
    const versions = { file: path, from_version: migration.version - 1, to_version: migration.version };
    if (found > 0) {
      log.info("Bringing the database to its next version; a large one takes some minutes", versions);
      if (migration.version === found + 1) backUp(database, path, found);
    }
    database.exec("BEGIN IMMEDIATE");
    try {
      migration.up(database);
      database.exec(`PRAGMA user_version = ${migration.version}`);
      database.exec("COMMIT");
    } catch (error) {
      rollBack(database);
      throw error;
    }
    if (found > 0) log.info("The database has its next version", versions);
  }
}

function versionOf(database: DatabaseSync): number {
  return Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
}

function backUp(database: DatabaseSync, path: string, version: number): void {
  const backup = `${path}.bak-${version}`;
  // A backup that an interrupted attempt left may be half written
  rmSync(backup, { force: true });
  database.prepare("VACUUM INTO ?").run(backup);
  chmodSync(backup, 0o600);
  const prefix = `${basename(path)}.bak-`;
  const kept = readdirSync(dirname(path))
    .filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)))
    .sort((a, b) => Number(b.slice(prefix.length)) - Number(a.slice(prefix.length)));
  for (const name of kept.slice(KEPT_BACKUPS)) rmSync(join(dirname(path), name), { force: true });
}
