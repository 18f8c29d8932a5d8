import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import {
  openConfiguredDatabase,
  type PostgresSettings,
  refusalOf,
} from "../../lib/storage/open_configured_postgres.ts";
import { DatabaseAwayError, type PostgresDatabase } from "../../lib/storage/postgres/postgres_database.ts";
import { SCHEMA_STEPS } from "../../lib/storage/postgres/schema.ts";
import { quoteName } from "../../lib/storage/postgres/statement_text.ts";
import { failure, type Finding, fine, warning } from "./finding.ts";

/** Seconds that the server's clock may differ from this machine's. */
const TOLERATED_SECONDS = 120;

/** Checks that the PostgreSQL database of `[storage]` answers, and is one that this program can use. Changes nothing in it. */
export async function checkPostgres(
  name: string,
  storage: PostgresSettings,
  environment: (name: string) => string | undefined,
): Promise<Finding> {
  let database: PostgresDatabase | undefined;
  try {
    database = await openConfiguredDatabase({ storage, environment, clock: systemClock, random: createSystemRandom() });
    return await judge(name, database, storage.schema);
  } catch (error) {
    const refusal = error instanceof DatabaseAwayError ? refusalOf(error, storage) : error;
    const key = refusal instanceof ConfigError ? refusal.key : undefined;
    return failure(name, messageOf(refusal), key === undefined ? "see the log of the database" : `see ${key}`);
  } finally {
    await database?.close();
  }
}

async function judge(name: string, database: PostgresDatabase, schema: string): Promise<Finding> {
  const [server] = await database.query(
    `SELECT current_setting('server_version') AS version, current_setting('synchronous_commit') AS commits,
     current_setting('fsync') AS fsync, extract(epoch FROM clock_timestamp())::float8 AS time,
     to_regclass($1) IS NOT NULL AS has_tables, pg_size_pretty(pg_database_size(current_database())) AS size`,
    [`${quoteName(schema)}.schema_version`],
  );
  const place = `PostgreSQL ${String(server?.["version"])} at ${database.name}`;
  if (server?.["has_tables"] !== true) {
    return fine(name, `${place}: no schema "${schema}" yet, the first start makes it`);
  }
  const [row] = await database.query(`SELECT version FROM ${quoteName(schema)}.schema_version`);
  const version = Number(row?.["version"]);
  const known = SCHEMA_STEPS.length;
  if (version > known) {
    const message =
      `A newer Postern wrote the schema "${schema}" of ${database.name}: its version is ${version}, this program knows ${known}`;
    return failure(name, message, "install the newer Postern, or name another schema by storage.schema");
  }
  if (server["fsync"] === "off" || server["commits"] === "off") {
    const setting = server["fsync"] === "off" ? "fsync" : "synchronous_commit";
    const message = `${place} loses what it has answered when its machine stops: ${setting} is off`;
    return warning(name, message, `ALTER SYSTEM SET ${setting} = on`);
  }
  const difference = Math.round(Math.abs(Number(server["time"]) - systemClock.now() / 1_000));
  if (difference > TOLERATED_SECONDS) {
    const message = `The clock of ${place} differs from this machine's by ${difference} s`;
    return warning(name, message, "set both clocks by NTP");
  }
  const due = version < known ? `; the next start brings it to version ${known}` : "";
  return fine(name, `${place}, schema "${schema}" of version ${version}, ${String(server["size"])}${due}`);
}
