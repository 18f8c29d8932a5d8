/** Stores in PostgreSQL for tests: on a real server, and on PGlite where there is none. */
import { randomBytes } from "node:crypto";
import { systemClock } from "../../lib/base/clock.ts";
import { lazily } from "../../lib/base/lazily.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { openPostgresStore } from "../../lib/storage/open_postgres_store.ts";
import type { DedicatedSession } from "../../lib/storage/postgres/dedicated_session.ts";
import {
  openPostgresDatabase,
  type PostgresDatabase,
  type PostgresDatabaseOptions,
} from "../../lib/storage/postgres/postgres_database.ts";
import type { PostgresRow, PostgresSession } from "../../lib/storage/postgres/postgres_session.ts";
import { type PostgresValue, quoteName, withValues } from "../../lib/storage/postgres/statement_text.ts";
import type { Store } from "../../lib/storage/store.ts";
import { sharedPostgres } from "./postgres_server.ts";

/** Database of the shared server in which each test has a schema of its own: a schema takes less time than a database. */
const sharedDatabase = lazily(async () => {
  const server = await sharedPostgres();
  // Texts of this locale are in another order than their bytes
  return server.url(await server.createDatabase({ sortedAs: "de" }));
});

/** Runs `use` with the address of a database and the name of a schema that nobody else has, and drops the schema afterwards. */
export async function withSchema(use: (url: string, schema: string) => Promise<void>): Promise<void> {
  const url = await sharedDatabase();
  const schema = `test "${randomBytes(6).toString("hex")}"`;
  try {
    await use(url, schema);
  } finally {
    const database = await openTestDatabase(url);
    await database.query(`SET LOCAL client_min_messages = error; DROP SCHEMA IF EXISTS ${quoteName(schema)} CASCADE`);
    await database.close();
  }
}

/** Opens a database with the clock and randomness of the system. */
export function openTestDatabase(
  url: string,
  options: Partial<PostgresDatabaseOptions> = {},
): Promise<PostgresDatabase> {
  return openPostgresDatabase({ url, clock: systemClock, random: createSystemRandom(), ...options });
}

/** Schema of the stores that a process opens one after the other: emptying its tables takes less time than making them. */
const STORE_SCHEMA = 'store "of" a test';
const TABLES = ["records", "stream_records", "record_texts", "record_vectors", "batches"];

/** Runs `use` with an empty store on the shared server. Two of them at the same time would be one store. */
export async function withPostgresStore(use: (store: Store) => Promise<void>): Promise<void> {
  await withEmptied(await openTestDatabase(await sharedDatabase()), use);
}

/** Runs `use` with an empty store on PGlite, which is one session in this process. */
export async function withPgliteStore(use: (store: Store) => Promise<void>): Promise<void> {
  await withEmptied(await pglite(), use);
}

async function withEmptied(database: PostgresDatabase, use: (store: Store) => Promise<void>): Promise<void> {
  const store = await openTestStore(database, STORE_SCHEMA);
  try {
    await database.query(`TRUNCATE ${TABLES.map((table) => `${quoteName(STORE_SCHEMA)}.${table}`).join(", ")}`);
    await use(store);
  } finally {
    await store.close();
  }
}

/** Opens a store of a database, which goes with the store. */
export function openTestStore(database: PostgresDatabase, schema: string): Promise<Store> {
  return openPostgresStore({ database, schema, clock: systemClock, random: createSystemRandom() });
}

/** Database on PGlite. It takes seconds to start, so the tests of a process share one. */
const pglite = lazily(async (): Promise<PostgresDatabase> => {
  const { PGlite } = await import("@electric-sql/pglite");
  const engine = await PGlite.create({ parsers: { 20: Number } });
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const mine = last.then(work, work);
    last = mine.catch(() => {});
    return mine;
  };
  const run: PostgresSession["query"] = async (text, values = []) => {
    const results = await engine.exec(withValues(text, values));
    return (results.at(-1)?.rows ?? []) as readonly PostgresRow[]; // objects, as no row mode is asked for
  };
  const session = {
    query: async (text: string, values?: readonly PostgresValue[]) => await inTurn(() => run(text, values)),
    transaction: <T>(work: (session: PostgresSession) => Promise<T>): Promise<T> =>
      inTurn(async () => {
        await run("BEGIN");
        try {
          const result = await work({ query: run });
          await run("COMMIT");
          return result;
        } catch (error) {
          await run("ROLLBACK");
          throw error;
        }
      }),
    close: async () => {},
  };
  const listen = () => Promise.reject(new TypeError("PGlite in tests is one session"));
  const pool = () => ({ inUse: 0, idle: 1, waiting: 0 });
  const measures = { pool, onStatement: () => {} };
  const dedicated = { ...session, listen, onLost: () => {} } as unknown as DedicatedSession;
  return { name: "pglite", ...session, ...measures, dedicated: async () => dedicated };
});
