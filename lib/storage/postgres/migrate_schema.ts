import { ConfigError, messageOf } from "../../base/errors.ts";
import { type Logger, SILENT } from "../../base/telemetry/log.ts";
import type { PostgresSession } from "./postgres_session.ts";
import { sqlStateOf } from "./database_errors.ts";
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
        messageOf(error)
      }); grant CREATE on it, or name another by storage.schema`,
      error,
    );
  }
}

/** Schema as a start of a gateway would find it. */
export interface SchemaFacts {
  /** Number of the last step that was made. Undefined: the first start makes the schema */
  readonly version: number | undefined;
  /** Number of the last step that this program has. */
  readonly knownVersion: number;
}

/**
 * Checks that `migrateSchema` would bring a schema to the version of the last step, and changes nothing.
 * @throws {ConfigError} as `migrateSchema`
 */
export async function checkSchema(
  session: MigrationSession,
  options: Omit<MigrateSchemaOptions, "log" | "isMove">,
): Promise<SchemaFacts> {
  const { schema, name, steps = SCHEMA_STEPS } = options;
  if (options.engineUnchecked !== true) await checkEngine(session, name);
  const { hasSchema, hasVersion, hasUnfinishedMove } = await findSchema(session, schema);
  if (hasUnfinishedMove) throw unfinishedMove({ name, schema });
  const rights = await readRights(session, schema);
  const requireRight = (isThere: boolean, problem: string) => {
    if (isThere) return;
    const who = `Cannot use the schema "${schema}" of the database ${name}: the user`;
    throw unusable(`${who} ${problem}, or name another by storage.schema`);
  };
  if (!hasSchema) requireRight(rights.mayCreate, "may not make it; grant CREATE on the database");
  requireRight(rights.mayUse, "may not use it; grant USAGE and CREATE on it");
  if (!hasVersion) {
    requireRight(rights.mayCreate, "may not create tables there; grant CREATE on it");
    return { version: undefined, knownVersion: steps.length };
  }
  // A start locks the row of the version, also where there is no step to make
  requireRight(rights.mayWrite, "may not change its tables; make the user their owner");
  const [row] = await session.query(`SELECT version FROM ${quoteName(schema)}.schema_version`);
  const version = Number(row?.["version"]);
  if (version > steps.length) throw tooNew({ name, schema, version, known: steps.length });
  if (version < steps.length) {
    const wayOut = "grant CREATE on it, and make the user the owner of its tables";
    requireRight(rights.mayCreate && rights.isOwner, `may not bring its tables to their next version; ${wayOut}`);
  }
  return { version, knownVersion: steps.length };
}

/** Reads what the user may do with a schema and its tables. A schema that is missing may be used by whoever makes it. */
async function readRights(session: PostgresSession, schema: string) {
  const [row] = await session.query(
    `SELECT coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1), true) AS may_use,
       coalesce(
         (SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1),
         has_database_privilege(current_database(), 'CREATE')
       ) AS may_create,
       coalesce(bool_and(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE')), true) AS may_write,
       coalesce(bool_and(pg_has_role(c.relowner, 'USAGE')), true) AS is_owner
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relname IN ('schema_version', 'records')`,
    [schema],
  );
  return {
    mayUse: row?.["may_use"] === true,
    mayCreate: row?.["may_create"] === true,
    mayWrite: row?.["may_write"] === true,
    isOwner: row?.["is_owner"] === true,
  };
}

/** Refuses a schema that records are copied into. @throws {ConfigError} `database_unusable` */
export async function refuseUnfinishedMove(
  session: PostgresSession,
  { schema, name }: { readonly schema: string; readonly name: string },
): Promise<void> {
  if ((await findSchema(session, schema)).hasUnfinishedMove) throw unfinishedMove({ schema, name });
}

/** Makes the schema and the row that holds its version. Of many gateways that start at once each waits for the one before. */
async function createVersionRow(
  session: MigrationSession,
  { schema, quoted }: { readonly schema: string; readonly quoted: string },
): Promise<{ readonly hasUnfinishedMove: boolean }> {
  return await session.transaction(async (locked) => {
    await locked.query("SELECT pg_advisory_xact_lock(hashtext('postern schema'), hashtext($1))", [schema]);
    const { hasSchema, hasVersion, hasUnfinishedMove } = await findSchema(locked, schema);
    if (!hasSchema) await locked.query(`CREATE SCHEMA ${quoted}`);
    if (hasVersion) return { hasUnfinishedMove };
    await locked.query(
      `CREATE TABLE ${quoted}.schema_version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int4 NOT NULL);
       INSERT INTO ${quoted}.schema_version (version) VALUES (0)`,
    );
    return { hasUnfinishedMove };
  });
}

/** Tells what there is of a schema, whatever the user may read of it. */
export async function findSchema(session: PostgresSession, schema: string) {
  const [found] = await session.query(
    "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS has_schema, EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'schema_version') AS has_version, EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'unfinished_move') AS has_move",
    [schema],
  );
  return {
    hasSchema: found?.["has_schema"] === true,
    hasVersion: found?.["has_version"] === true,
    hasUnfinishedMove: found?.["has_move"] === true,
  };
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
