import type { ClientConfig, Pool, PoolClient, QueryResult } from "pg";
import type { Clock } from "../../base/clock.ts";
import { ConfigError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { DatabaseAwayError, noConnection, sqlStateOf } from "./database_errors.ts";
import { type DedicatedSession, openDedicatedSession } from "./dedicated_session.ts";
import { nameOfAddress, parsePostgresAddress, type PostgresAddress } from "./postgres_address.ts";
import {
  inTransaction,
  type PostgresRow,
  type PostgresSession,
  REPLY_GRACE_MS,
  rowsOf,
  runStatements,
  settings,
} from "./postgres_session.ts";
import { type PostgresValue, withValues } from "./statement_text.ts";

/** A PostgreSQL database with a bounded pool of connections. Safe behind a pooler in transaction mode, but for `dedicated()`. */
export interface PostgresDatabase extends PostgresSession {
  /** Address for messages, without user and password */
  readonly name: string;
  /**
   * Runs `work` between BEGIN and COMMIT on one connection. Runs it again when the server rolled it back to end a deadlock or a
   * conflict (40P01, 40001), so `work` must change nothing but the database.
   */
  transaction<T>(work: (session: PostgresSession) => Promise<T>): Promise<T>;
  /** Opens a connection outside the pool, to `directUrl` where there is one. @throws {DatabaseAwayError} */
  dedicated(): Promise<DedicatedSession>;
  /** Returns how many connections of the pool work and rest, and how much work waits for one. */
  pool(): PoolCounts;
  /** Calls a function with the milliseconds that each statement of the pool took, failed ones included, in place of an earlier function. Must not throw. */
  onStatement(listener: (ms: number) => void): void;
  /** Ends the connections, each after its statement. Dedicated sessions are closed by whoever opened them. */
  close(): Promise<void>;
}

/** Connections of a pool. */
export interface PoolCounts {
  readonly inUse: number;
  readonly idle: number;
  /** Work that waits for a connection. */
  readonly waiting: number;
}

/** Options of `openPostgresDatabase`. */
export interface PostgresDatabaseOptions {
  /** May hold a password, and is in no message */
  readonly url: string;
  /** Address past a pooler. Default: `url` */
  readonly directUrl?: string | undefined;
  /** Keys of the configuration that the addresses come from, for messages. Default: `storage.url`, `storage.direct_url_env` */
  readonly keys?: { readonly url: string; readonly directUrl: string };
  /** Most connections of the pool. Default 10 */
  readonly poolSize?: number;
  /** Milliseconds after which the server gives a statement up. Default 30,000 */
  readonly statementTimeoutMs?: number;
  /** Milliseconds that a reply may take on its way beyond the statement's own time, before the connection counts as lost. Default 5,000 */
  readonly replyGraceMs?: number;
  /** Milliseconds that a connection may take, with the wait for its place in the pool. Default 10,000 */
  readonly connectTimeoutMs?: number;
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * Opens a database. Connects at the first use.
 * @throws {ConfigError} `storage_unavailable`: the package "pg" is not installed; `config_invalid`: not the address of a server
 */
export async function openPostgresDatabase(options: PostgresDatabaseOptions): Promise<PostgresDatabase> {
  const { url, directUrl, keys } = options;
  const address = parsePostgresAddress(url, keys?.url ?? "storage.url");
  const direct = directUrl === undefined
    ? address
    : parsePostgresAddress(directUrl, keys?.directUrl ?? "storage.direct_url_env");
  return new PooledDatabase(await loadPg(), { ...options, address, direct });
}

type Pg = typeof import("pg");

async function loadPg(): Promise<Pg> {
  try {
    return await import("pg");
  } catch (cause) {
    throw new ConfigError(
      "storage_unavailable",
      'Cannot use storage.driver = "postgres": the optional package "pg" is not installed; install it beside Postern, for example with "npm install -g pg"',
      { key: "storage.driver", cause },
    );
  }
}

const DEFAULT_POOL_SIZE = 10;
const DEFAULT_STATEMENT_TIMEOUT_MS = 30_000;
const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
const IDLE_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_DELAY_MS = 10_000;
/** Attempts of a transaction that the server rolls back in favour of another one */
const MAX_ATTEMPTS = 10;
const RETRY_PAUSE_MS = 20;
/** OID of the type int8 */
const INT8 = 20;
/** Server rolled the transaction back in favour of another: serialization failure, deadlock */
const ROLLED_BACK = ["40001", "40P01"];

interface Opened extends PostgresDatabaseOptions {
  readonly address: PostgresAddress;
  readonly direct: PostgresAddress;
}

class PooledDatabase implements PostgresDatabase {
  readonly name: string;
  readonly #pg: Pg;
  readonly #options: Opened;
  readonly #pool: Pool;
  readonly #timeoutMs: number;
  readonly #graceMs: number;
  #onStatement: ((ms: number) => void) | undefined = undefined;

  constructor(pg: Pg, options: Opened) {
    this.#pg = pg;
    this.#options = options;
    this.name = nameOfAddress(options.address);
    this.#timeoutMs = options.statementTimeoutMs ?? DEFAULT_STATEMENT_TIMEOUT_MS;
    this.#graceMs = options.replyGraceMs ?? REPLY_GRACE_MS;
    this.#pool = new pg.Pool({
      ...clientConfig(pg, options.address, options),
      max: options.poolSize ?? DEFAULT_POOL_SIZE,
      idleTimeoutMillis: IDLE_TIMEOUT_MS,
      allowExitOnIdle: true,
    });
    // A connection that fails between two statements leaves the pool by itself. Without listeners the process would end
    this.#pool.on("error", () => {});
    this.#pool.on("connect", (client) => void client.on("error", () => {}));
  }

  async query(text: string, values: readonly PostgresValue[] = []): Promise<readonly PostgresRow[]> {
    const statement = `${settings(this.#timeoutMs)}; ${withValues(text, values)}`;
    return await this.#retrying(() => this.#withClient(async (client) => rowsOf(await this.#run(client, statement))));
  }

  transaction<T>(work: (session: PostgresSession) => Promise<T>): Promise<T> {
    return this.#retrying(() =>
      this.#withClient((client) =>
        inTransaction((text) => this.#run(client, text), { work, timeoutMs: this.#timeoutMs })
      )
    );
  }

  async dedicated(): Promise<DedicatedSession> {
    const { direct, clock } = this.#options;
    const client = new this.#pg.Client(clientConfig(this.#pg, direct, this.#options));
    return await openDedicatedSession(client, {
      name: nameOfAddress(direct),
      timeoutMs: this.#timeoutMs,
      hasTls: direct.ssl !== false,
      clock,
    });
  }

  pool(): PoolCounts {
    const { totalCount, idleCount: idle, waitingCount: waiting } = this.#pool;
    return { inUse: totalCount - idle, idle, waiting };
  }

  onStatement(listener: (ms: number) => void): void {
    this.#onStatement = listener;
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #withClient<T>(use: (client: PoolClient) => Promise<T>): Promise<T> {
    let client: PoolClient;
    try {
      client = await this.#pool.connect();
    } catch (cause) {
      throw noConnection(this.name, cause);
    }
    try {
      const result = await use(client);
      client.release();
      return result;
    } catch (error) {
      // Every other error has ended its transaction, so the connection is as new
      client.release(error instanceof DatabaseAwayError);
      throw error;
    }
  }

  async #run(client: PoolClient, statement: string): Promise<QueryResult> {
    const { clock } = this.#options;
    const sentAt = clock.monotonic();
    try {
      return await runStatements(client, statement, { name: this.name, ms: this.#timeoutMs + this.#graceMs, clock });
    } finally {
      this.#onStatement?.(clock.monotonic() - sentAt);
    }
  }

  async #retrying<T>(attempt: () => Promise<T>): Promise<T> {
    const { clock, random } = this.#options;
    for (let tries = 1;; tries++) {
      try {
        return await attempt();
      } catch (error) {
        if (tries >= MAX_ATTEMPTS || !ROLLED_BACK.includes(sqlStateOf(error) ?? "")) throw error;
        const [share = 0] = random.bytes(1);
        await clock.sleep((tries * RETRY_PAUSE_MS * share) / 255);
      }
    }
  }
}

function clientConfig(pg: Pg, address: PostgresAddress, { connectTimeoutMs }: Opened): ClientConfig {
  const { host, port, user, password, database, ssl } = address;
  return {
    host,
    port,
    user,
    ...(password === undefined ? {} : { password }),
    database,
    ssl,
    application_name: "postern",
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_MS,
    connectionTimeoutMillis: connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS,
    types: {
      getTypeParser: (oid: number, format?: "text" | "binary") =>
        // The overloads of pg want one of the formats, and each takes both
        oid === INT8 && format !== "binary" ? Number : pg.types.getTypeParser(oid, format as "text"),
    } as NonNullable<ClientConfig["types"]>, // its overloads name the result of each format
  };
}
