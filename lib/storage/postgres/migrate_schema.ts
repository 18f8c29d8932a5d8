import { ConfigError } from "../../base/errors.ts";
import { type Logger, SILENT } from "../../base/telemetry/log.ts";
import type { PostgresSession } from "./postgres_database.ts";
import { sqlStateOf } from "./postgres_database.ts";
import { SCHEMA_STEPS } from "./schema.ts";
import { quoteName } from "./statement_text.ts";

/** A session that migrations run in: past a pooler, and alone in its connection. */
export interface MigrationSession extends PostgresSession {
  transaction<T>(work: (session: PostgresSession) => Promise<T>): Promise<T>;
}

/** Options of `migrateSchema`. */
export interface MigrateSchemaOptions {
  /** `[storage] schema`, which is created where it is missing */
  readonly schema: string;
  /** Name of the database for messages, without user and password */
  readonly name: string;
  /** `[storage] engine_unchecked`: takes any engine */
  readonly engineUnchecked?: boolean;
  readonly log?: Pick<Logger, "info">;
  /** True: opens a schema that records are still copied into, for `postern storage migrate`. Default false */
  readonly isMove?: boolean;
  /** Default: `SCHEMA_STEPS` */
  readonly steps?: readonly string[];
}

/** Oldest major version that is tested. */
const OLDEST_VERSION = 14;
/** Names in `version()` of engines that speak PostgreSQL's protocol, and keep less of its promises */
const OTHER_ENGINES =
  /cockroach|-YB-|yugabyte|redshift|greenplum|materialize|cratedb|questdb|opengauss|gaussdb|risingwave|h2 /i;

/**
 * Brings a schema to the version of the last step, each step in a transaction of its own under the lock of the schema's row, and all of
 * them in one for a new schema. Steps only go forward.
 * @throws {ConfigError} `database_too_new` when a newer Postern wrote it; `database_unusable`: another engine, a server that is too old,
 * a schema with an unfinished copy, or a user who may not create the tables. Nothing is changed then
 */
export async function migrateSchema(session: MigrationSession, options: MigrateSchemaOptions): Promise<void> {
  const { schema, name, log = SILENT, steps = SCHEMA_STEPS } = options;
  if (options.engineUnchecked !== true) await checkEngine(session, name);
  const quoted = quoteName(schema);
  try {
    const { hasUnfinishedMove } = await createVersionRow(session, { schema, quoted });
    if (hasUnfinishedMove && options.isMove !== true) throw unfinishedMove({ name, schema });
    while (
      await session.transaction(async (locked) => {
        const [row] = await locked.query(`SELECT version FROM ${quoted}.schema_version FOR UPDATE`);
        const version = Number(row?.["version"]);
        if (version > steps.length) throw tooNew({ name, schema, version, known: steps.length });
        // Tables that nobody has used yet are made at once
        const due = version === 0 ? steps : steps.slice(version, version + 1);
        if (due.length === 0) return false;
        if (version > 0) {
          log.info("Bringing the database to its next version; a large one takes some minutes", {
            database: name,
            from_version: version,
            to_version: version + 1,
          });
        }
        for (const step of due) {
          await locked.query(`SET LOCAL statement_timeout = 0; ${step.replaceAll("{s}", quoted)}`);
        }
        await locked.query(`UPDATE ${quoted}.schema_version SET version = $1::int4`, [version + due.length]);
        return true;
      })
    );
  } catch (error) {
    if (sqlStateOf(error) !== "42501") throw error;
    throw unusable(
      `Cannot use the schema "${schema}" of the database ${name}: the user may not create tables there (${
        (error as Error).message
      }); grant CREATE on it, or name another by storage.schema`,
      error,
    );
  }
}

/** Refuses a schema that records are copied into. @throws {ConfigError} `database_unusable` */
export async function refuseUnfinishedMove(
  session: PostgresSession,
  { schema, name }: { readonly schema: string; readonly name: string },
): Promise<void> {
  const table = `${quoteName(schema)}.unfinished_move`;
  const [found] = await session.query("SELECT to_regclass($1) IS NOT NULL AS has_copy", [table]);
  if (found?.["has_copy"] === true) throw unfinishedMove({ schema, name });
}

/** Makes the schema and the row that holds its version. Of many gateways that start at once each waits for the one before. */
async function createVersionRow(
  session: MigrationSession,
  { schema, quoted }: { readonly schema: string; readonly quoted: string },
): Promise<{ readonly hasUnfinishedMove: boolean }> {
  return await session.transaction(async (locked) => {
    await locked.query("SELECT pg_advisory_xact_lock(hashtext('postern schema'), hashtext($1))", [schema]);
    const [found] = await locked.query(
      "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS has_schema, EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'schema_version') AS has_version, EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'unfinished_move') AS has_move",
      [schema],
    );
    if (found?.["has_schema"] !== true) await locked.query(`CREATE SCHEMA ${quoted}`);
    const facts = { hasUnfinishedMove: found?.["has_move"] === true };
    if (found?.["has_version"] === true) return facts;
    await locked.query(
      `CREATE TABLE ${quoted}.schema_version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int4 NOT NULL);
       INSERT INTO ${quoted}.schema_version (version) VALUES (0)`,
    );
    return facts;
  });
}

async function checkEngine(session: MigrationSession, name: string): Promise<void> {
  const [row] = await session.query(
    "SELECT version() AS version, current_setting('server_version_num', true) AS number",
  );
  const version = String(row?.["version"]);
  const wayOut = "set storage.engine_unchecked = true to try it, at your own risk";
  if (!version.startsWith("PostgreSQL ") || OTHER_ENGINES.test(version)) {
    throw unusable(`Cannot use the database ${name}: it is not PostgreSQL, but "${version.slice(0, 80)}"; ${wayOut}`);
  }
  if (!(Number(row?.["number"]) >= OLDEST_VERSION * 10_000)) {
    throw unusable(
      `Cannot use the database ${name}: PostgreSQL ${OLDEST_VERSION} or later is needed, and it is ${
        version.split(" ")[1]
      }; ${wayOut}`,
    );
  }
  const [held] = await session.transaction(async (locked) => {
    await locked.query("SELECT pg_advisory_xact_lock(hashtext('postern engine'), pg_backend_pid())");
    return await locked.query(
      "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    );
  });
  if (!(Number(held?.["n"]) > 0)) {
    throw unusable(`Cannot use the database ${name}: it ignores advisory locks; ${wayOut}`);
  }
}

function tooNew({ name, schema, version, known }: {
  readonly name: string;
  readonly schema: string;
  readonly version: number;
  readonly known: number;
}): ConfigError {
  return new ConfigError(
    "database_too_new",
    `Cannot open the schema "${schema}" of the database ${name}: its version is ${version}, and this Postern knows versions up to ${known}; run the Postern that needs version ${version}, or name another by storage.schema`,
    { key: "storage.schema" },
  );
}

function unfinishedMove({ name, schema }: { readonly name: string; readonly schema: string }): ConfigError {
  return new ConfigError(
    "database_unusable",
    `Cannot open the schema "${schema}" of the database ${name}: records are copied into it, and the copy is not finished; run postern storage migrate --from sqlite --to postgres again where it was begun`,
    { key: "storage.schema" },
  );
}

function unusable(message: string, cause?: unknown): ConfigError {
  return new ConfigError("database_unusable", message, { key: "storage.driver", cause });
}
