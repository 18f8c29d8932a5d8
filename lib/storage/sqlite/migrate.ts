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
 * before it. The log tells of each step: it may take a minute. A new, empty database gets no backup and one transaction for all steps: the
 * disk is waited for once.
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
  const steps = migrations.filter(({ version }) => version > found);
  if (found === 0) return apply(database, steps);
  for (const step of steps) {
    const versions = { file: path, from_version: step.version - 1, to_version: step.version };
    log.info("Bringing the database to its next version; a large one takes some minutes", versions);
    if (step === steps[0]) backUp(database, path, found);
    apply(database, [step]);
    log.info("The database has its next version", versions);
  }
}

/** Applies steps in one transaction. */
function apply(database: DatabaseSync, steps: readonly Migration[]): void {
  database.exec("BEGIN IMMEDIATE");
  try {
    for (const { up, version } of steps) {
      up(database);
      database.exec(`PRAGMA user_version = ${version}`);
    }
    database.exec("COMMIT");
  } catch (error) {
    rollBack(database);
    throw error;
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
