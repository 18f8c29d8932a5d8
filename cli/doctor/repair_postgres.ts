import { closeSync, existsSync, fsyncSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../lib/base/clock.ts";
import { syncFoldersSync } from "../../lib/base/durable_files.ts";
import type { Random } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { DATABASE_NAME } from "../../lib/storage/back_up.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import {
  openConfiguredDatabase,
  openConfiguredPostgres,
  refusalOf,
} from "../../lib/storage/open_configured_postgres.ts";
import { DatabaseAwayError } from "../../lib/storage/postgres/database_errors.ts";
import { StoredTexts } from "../../lib/storage/postgres/stored_texts.ts";
import { lostLogBytes } from "../../lib/storage/sqlite/open_database.ts";
import type { Write } from "../../lib/storage/store.ts";
import { CommandError } from "../command.ts";
import { requireNoGateway } from "../restore/require_no_gateway.ts";
import { removeUnreadable, type Repaired } from "./repair.ts";
import { PARSERS } from "./damaged_records.ts";

/** Configuration, environment, clock and randomness of a repair over PostgreSQL. */
export interface RepairPostgresOptions {
  readonly loaded: LoadedConfig;
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * Tells whether the records are still in the SQLite file of the data directory, although the configuration names PostgreSQL already: before
 * a move, and in the middle of one.
 * @throws {ConfigError} a server that cannot be reached
 */
export async function isBeforeMove({ loaded, ...services }: RepairPostgresOptions): Promise<boolean> {
  const { config: { storage }, dataDir } = loaded;
  const path = join(dataDir, DATABASE_NAME);
  if (!existsSync(path) && lostLogBytes(path) === 0) return false;
  const database = await openConfiguredDatabase({ storage, ...services });
  try {
    return !await new StoredTexts(database, storage.schema).hasRecords();
  } catch (error) {
    throw error instanceof DatabaseAwayError ? refusalOf(error, storage) : error;
  } finally {
    await database.close();
  }
}

/**
 * Removes every record of a PostgreSQL schema that cannot be read, and records that are of no use without it. Each is written to a file of
 * the data directory first, as it was: one line of JSON for a record, and for an entry of a stream.
 * @throws {CommandError} a gateway uses the schema, or the data directory
 * @throws {ConfigError} what `openConfiguredPostgres` throws
 */
export async function repairPostgres({ loaded, clock, ...services }: RepairPostgresOptions): Promise<Repaired> {
  const { config: { storage, cluster }, dataDir } = loaded;
  const lock = takeGatewayLock(dataDir);
  if (lock === undefined) {
    throw new CommandError(`Cannot repair the records: a gateway or node uses "${dataDir}"; stop every gateway first`);
  }
  try {
    const { store, database } = await openConfiguredPostgres({ storage, clock, ...services, log: SILENT });
    try {
      const shared = { database, schema: storage.schema, leaseSeconds: cluster.lease_secs };
      await requireNoGateway("repair the records", shared);
      const texts = new StoredTexts(database, storage.schema);
      const { unreadable, finished } = await texts.findUnreadable(PARSERS);
      if (unreadable.length === 0) return { backup: null, removed: [], finished };
      // The look may have taken minutes
      await requireNoGateway("repair the records", shared);
      const time = new Date(clock.now()).toISOString().replaceAll(":", "-");
      const backup = join(dataDir, `before-repair-${time}.jsonl`);
      const file = openSync(backup, "wx", 0o600);
      try {
        syncFoldersSync(dataDir, dataDir);
        const keep = async (writes: readonly Write[]) => {
          for await (const row of texts.before(writes)) writeSync(file, `${JSON.stringify(row)}\n`);
          fsyncSync(file);
        };
        await removeUnreadable(store, unreadable, keep);
      } finally {
        closeSync(file);
      }
      return { backup, removed: unreadable, finished };
    } finally {
      await store.close();
    }
  } finally {
    lock.release();
  }
}
