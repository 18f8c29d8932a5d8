import { readFile } from "node:fs/promises";
import { unlessAborted } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ConfigError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { openPostgresStore } from "./open_postgres_store.ts";
import { DatabaseAwayError, sqlStateOf } from "./postgres/database_errors.ts";
import { openPostgresDatabase, type PostgresDatabase } from "./postgres/postgres_database.ts";
import { storageUnavailable } from "./postgres/server_watch.ts";
import type { Store } from "./store.ts";

/** `[storage]` as far as PostgreSQL needs it. */
export interface PostgresSettings {
  readonly url: string;
  readonly url_env: string;
  readonly url_file: string;
  readonly direct_url_env: string;
  readonly schema: string;
  readonly pool_size: number;
  readonly statement_timeout_secs: number;
  readonly engine_unchecked: boolean;
}

/** Options of `openConfiguredPostgres`. */
export interface ConfiguredPostgresOptions {
  readonly storage: PostgresSettings;
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Aborts at the end of the gateway's start, whose calls wait for a server that goes away. Default: no call waits */
  readonly started?: AbortSignal | undefined;
  /** Aborts when the start is given up, which ends each wait of it. Default: it never does */
  readonly signal?: AbortSignal | undefined;
}

/** Store in a database that other gateways may share. */
export interface ConfiguredPostgres {
  /** Closes the database with itself */
  readonly store: Store;
  readonly database: PostgresDatabase;
}

/** Time that a start waits for a server that is about to start too. Milliseconds */
const WAIT_MS = 30_000;
const PAUSE_MS = 500;
/** States of SQLSTATE that waiting does not mend: a wrong password or user, no such database, no right to connect */
const WRONG_ADDRESS = /^(?:28|3D|42501$)/;
/** Reasons that `node:tls` and pg give for a certificate that is not trusted, and for a server without TLS */
const NOT_TRUSTED = /certificate|self.signed|altnames|issuer|SSL/i;

/**
 * Opens the store that `[storage]` names, and waits up to 30 seconds for its server.
 * @throws {ConfigError} `storage_unavailable`: an address or a package that is missing, or a server that does not let the user in;
 * {HttpError} `storage_unavailable`: no server; {CancelError} the signal aborted; and what `openPostgresStore` throws
 */
export async function openConfiguredPostgres(options: ConfiguredPostgresOptions): Promise<ConfiguredPostgres> {
  const { storage, clock, log, signal } = options;
  const database = await openConfiguredDatabase(options);
  try {
    let reason: string | undefined;
    for (const end = clock.monotonic() + WAIT_MS;;) {
      try {
        return { store: await openUnlessAborted(options, database), database };
      } catch (error) {
        if (!(error instanceof DatabaseAwayError)) throw error;
        if (isFinal(error)) throw refusalOf(error, storage);
        // No error of the configuration: a service manager starts the gateway again, and the server may be there then
        if (clock.monotonic() >= end) throw storageUnavailable(error);
        if (error.message !== reason) {
          reason = error.message;
          log.warn(`The database does not answer yet: the start waits ${WAIT_MS / 1_000} s for it`, { reason });
        }
        await clock.sleep(PAUSE_MS, signal);
      }
    }
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** Opens the store. @throws {CancelError} when the signal aborts first; a store that opens later is closed */
async function openUnlessAborted(options: ConfiguredPostgresOptions, database: PostgresDatabase): Promise<Store> {
  const { schema, engine_unchecked: engineUnchecked } = options.storage;
  const { signal } = options;
  const opening = openPostgresStore({ ...options, database, schema, engineUnchecked });
  if (signal === undefined) return await opening;
  try {
    return await unlessAborted(opening, signal);
  } catch (error) {
    opening.then((late) => late.close()).catch(() => {});
    throw error;
  }
}

/** Opens the database that `[storage]` names, and connects to nothing yet. @throws {ConfigError} */
export async function openConfiguredDatabase(
  options: Omit<ConfiguredPostgresOptions, "log" | "started" | "signal">,
): Promise<PostgresDatabase> {
  const { storage, environment, clock, random } = options;
  const directUrl = storage.direct_url_env === ""
    ? undefined
    : fromEnvironment("direct_url_env", storage.direct_url_env, environment);
  return await openPostgresDatabase({
    url: await readUrl(storage, environment),
    directUrl,
    keys: { url: keyOf(storage), directUrl: "storage.direct_url_env" },
    poolSize: storage.pool_size,
    statementTimeoutMs: storage.statement_timeout_secs * 1_000,
    clock,
    random,
  });
}

/** Returns the error for the operator of a server that cannot be reached, with the key that names it. */
export function refusalOf(error: DatabaseAwayError, storage: PostgresSettings): ConfigError {
  const key = keyOf(storage);
  const { message } = error;
  const wayOut = error.isStranger
    ? `see that ${key} names the host and the port of the server`
    : NOT_TRUSTED.test(message)
    ? `name its authority by "sslrootcert=/path/root.pem" in ${key}, or turn TLS off by "sslmode=disable" where the network is your own`
    : `see that the server runs, and that ${key} is right`;
  return new ConfigError("storage_unavailable", `${message}; ${wayOut}`, { key, cause: error });
}

function isFinal({ cause, message, isStranger }: DatabaseAwayError): boolean {
  return isStranger || WRONG_ADDRESS.test(sqlStateOf(cause) ?? "") || NOT_TRUSTED.test(message);
}

/** Returns the key that the address comes from. */
function keyOf({ url_env, url_file }: PostgresSettings): string {
  return url_env !== "" ? "storage.url_env" : url_file !== "" ? "storage.url_file" : "storage.url";
}

async function readUrl(
  { url, url_env, url_file }: PostgresSettings,
  environment: (name: string) => string | undefined,
): Promise<string> {
  if (url_env !== "") return fromEnvironment("url_env", url_env, environment);
  if (url_file === "") return url;
  const text = await readFile(url_file, "utf8").catch((cause: unknown) => {
    throw new ConfigError(
      "storage_unavailable",
      `Cannot read storage.url_file: the file "${url_file}" cannot be opened`,
      {
        key: "storage.url_file",
        cause,
      },
    );
  });
  return text.trim();
}

function fromEnvironment(
  name: "url_env" | "direct_url_env",
  variable: string,
  environment: (name: string) => string | undefined,
): string {
  const value = environment(variable)?.trim();
  if (value !== undefined && value !== "") return value;
  const problem = value === undefined ? "is not set" : "is empty";
  throw new ConfigError(
    "storage_unavailable",
    `Cannot use storage.${name}: the environment variable "${variable}" ${problem}`,
    { key: `storage.${name}` },
  );
}
