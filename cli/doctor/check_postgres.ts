import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import {
  openConfiguredDatabase,
  type PostgresSettings,
  refusalOf,
} from "../../lib/storage/open_configured_postgres.ts";
import { DatabaseAwayError, type PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import { checkSchema, type SchemaFacts } from "../../lib/storage/postgres/migrate_schema.ts";
import { RecordQueries } from "../../lib/storage/postgres/record_queries.ts";
import { type RecordKeysOptions, verifyRecordKeys } from "../../lib/storage/record_keys.ts";
import { createUnreadableRecords } from "../../lib/storage/store.ts";
import { failure, type Finding, fine, warning } from "./finding.ts";

/** Seconds that the server's clock may differ from this machine's. */
const TOLERATED_SECONDS = 120;

/** Options of `checkPostgres`. */
export interface PostgresCheckOptions {
  readonly storage: PostgresSettings & RecordKeysOptions["settings"];
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  /** True: a gateway runs on the data directory, which has other variables than this terminal perhaps. */
  readonly isRunning: boolean;
}

/**
 * Checks that the PostgreSQL database of `[storage]` answers, and is one that a gateway would start with, by the checks of the start.
 * Changes nothing in it.
 */
export async function checkPostgres(name: string, options: PostgresCheckOptions): Promise<readonly Finding[]> {
  const { storage, environment } = options;
  let database: PostgresDatabase | undefined;
  try {
    database = await openConfiguredDatabase({ storage, environment, clock: systemClock, random: createSystemRandom() });
    const facts = await readSchema(database, storage);
    return [
      await judge(name, database, { ...facts, schema: storage.schema }),
      ...await checkKeys(name, database, { ...options, facts }),
    ];
  } catch (error) {
    if (error instanceof DatabaseAwayError) {
      const { message, key } = refusalOf(error, storage);
      return [failure(name, message, key === undefined ? "see the log of the database" : `see ${key}`)];
    }
    const { message, fix } = toProblem(error);
    return [failure(name, message, fix)];
  } finally {
    await database?.close();
  }
}

/** Splits the error of a start into its problem and the way out at its end. */
function toProblem(error: unknown): { readonly message: string; readonly fix: string } {
  const message = messageOf(error);
  const at = message.lastIndexOf("; ");
  if (!(error instanceof ConfigError)) return { message, fix: "see the log of the database" };
  if (at >= 0) return { message: message.slice(0, at), fix: message.slice(at + 2) };
  return { message, fix: error.key === undefined ? "see the log of the database" : `see ${error.key}` };
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

/** Checks that this environment has the key of the encrypted records. */
async function checkKeys(
  name: string,
  database: PostgresDatabase,
  { storage, environment, isRunning, facts }: PostgresCheckOptions & { readonly facts: SchemaFacts },
): Promise<readonly Finding[]> {
  if ((facts.version ?? 0) === 0) return [];
  const queries = new RecordQueries(database, storage.schema);
  const store = { get: queries.get.bind(queries), unreadable: createUnreadableRecords() };
  try {
    await verifyRecordKeys({ settings: storage, environment, isShared: true, store });
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const { message, fix } = toProblem(error);
    if (!isRunning) return [failure(name, message, fix)];
    return [
      warning(name, `The running gateway has its key, and a start from this terminal is refused: ${message}`, fix),
    ];
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
