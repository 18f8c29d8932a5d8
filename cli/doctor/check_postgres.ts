import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import {
  openConfiguredDatabase,
  type PostgresSettings,
  refusalOf,
} from "../../lib/storage/open_configured_postgres.ts";
import { DatabaseAwayError } from "../../lib/storage/postgres/database_errors.ts";
import type { PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import { checkSchema, type SchemaFacts } from "../../lib/storage/postgres/migrate_schema.ts";
import { StoredTexts } from "../../lib/storage/postgres/stored_texts.ts";
import { RecordQueries } from "../../lib/storage/postgres/record_queries.ts";
import type { RecordKeysOptions } from "../../lib/storage/record_keys.ts";
import { damagedRecords, lookIsOver, PARSERS } from "./damaged_records.ts";
import { checkKeys, splitRefusal } from "./check_keys.ts";
import { failure, type Finding, fine, warning } from "./finding.ts";

/** Seconds that the server's clock may differ from this machine's. */
const TOLERATED_SECONDS = 120;

/**
 * Checks that the PostgreSQL database of `[storage]` answers, and is one that a gateway would start with, by the checks of the start. Looks
 * through its records where no gateway of this data directory runs, which is asked otherwise. Changes nothing in it.
 */
export async function checkPostgres(name: string, options: {
  readonly storage: PostgresSettings & RecordKeysOptions["settings"];
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  /** True: a gateway runs on the data directory, which has other variables than this terminal perhaps. */
  readonly isRunning: boolean;
}): Promise<readonly Finding[]> {
  const { storage, environment, isRunning } = options;
  let database: PostgresDatabase | undefined;
  try {
    database = await openConfiguredDatabase({ storage, environment, clock: systemClock, random: createSystemRandom() });
    const facts = await readSchema(database, storage);
    const queries = new RecordQueries(database, storage.schema);
    const get = (facts.version ?? 0) === 0 ? undefined : queries.get.bind(queries);
    const isWhole = !isRunning && facts.version === facts.knownVersion;
    const { unreadable } = isWhole
      ? await new StoredTexts(database, storage.schema).findUnreadable(PARSERS, lookIsOver())
      : { unreadable: [] };
    return [
      ...(unreadable.length === 0 ? [] : [damagedRecords(name, unreadable, "cannot be read")]),
      await judge(name, database, { ...facts, schema: storage.schema }),
      ...await checkKeys(name, { settings: storage, isShared: true, environment, isRunning, get }),
    ];
  } catch (error) {
    if (error instanceof DatabaseAwayError) {
      const { message, key } = refusalOf(error, storage);
      return [failure(name, message, key === undefined ? "see the log of the database" : `see ${key}`)];
    }
    const { message, fix } = splitRefusal(error);
    return [failure(name, message, fix)];
  } finally {
    await database?.close();
  }
}

async function readSchema(database: PostgresDatabase, storage: PostgresSettings): Promise<SchemaFacts> {
  const { schema, engine_unchecked: engineUnchecked } = storage;
  const session = await database.dedicated();
  try {
    return await checkSchema(session, { schema, name: database.name, engineUnchecked });
  } finally {
    await session.close();
  }
}

async function judge(
  name: string,
  database: PostgresDatabase,
  { version, knownVersion, schema }: SchemaFacts & { readonly schema: string },
): Promise<Finding> {
  const [server] = await database.query(
    `SELECT current_setting('server_version') AS version, current_setting('synchronous_commit') AS commits,
     current_setting('fsync') AS fsync, extract(epoch FROM clock_timestamp())::float8 AS time,
     pg_size_pretty(pg_database_size(current_database())) AS size`,
  );
  const place = `PostgreSQL ${String(server?.["version"])} at ${database.name}`;
  if (version === undefined) return fine(name, `${place}: no schema "${schema}" yet, the first start makes it`);
  if (server?.["fsync"] === "off" || server?.["commits"] === "off") {
    const setting = server?.["fsync"] === "off" ? "fsync" : "synchronous_commit";
    const message = `${place} loses what it has answered when its machine stops: ${setting} is off`;
    return warning(name, message, `ALTER SYSTEM SET ${setting} = on`);
  }
  const difference = Math.round(Math.abs(Number(server?.["time"]) - systemClock.now() / 1_000));
  if (difference > TOLERATED_SECONDS) {
    const message = `The clock of ${place} differs from this machine's by ${difference} s`;
    return warning(name, message, "set both clocks by NTP");
  }
  const due = version < knownVersion ? `; the next start brings it to version ${knownVersion}` : "";
  return fine(name, `${place}, schema "${schema}" of version ${version}, ${String(server?.["size"])}${due}`);
}
