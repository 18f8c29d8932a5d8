import type { Client, ClientConfig, Pool, PoolClient, QueryResult } from "pg";
import type { Clock } from "../../base/clock.ts";
import { ConfigError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { nameOfAddress, parsePostgresAddress, type PostgresAddress } from "./postgres_address.ts";
import { type PostgresValue, quoteName, withValues } from "./statement_text.ts";

/** Row of a result, by the names of its columns. `int8` is a number, `bytea` a Uint8Array. */
export type PostgresRow = Readonly<Record<string, unknown>>;

/** Something that runs statements. */
export interface PostgresSession {
  /**
   * Runs one statement, or several with `;` between them as one transaction, in one round trip. `$1` stands for the first value.
   * @returns the rows of the last statement
   * @throws {DatabaseAwayError} the connection failed; the server's own error with its `code` (SQLSTATE, see `sqlStateOf`) otherwise
   */
  query(text: string, values?: readonly PostgresValue[]): Promise<readonly PostgresRow[]>;
}

/** Connection of its own, outside the pool and past a pooler: for leases, LISTEN, session locks and migrations. */
export interface DedicatedSession extends PostgresSession {
  /** Runs `work` between BEGIN and COMMIT, once. No other statement of this session may be made meanwhile. */
  transaction<T>(work: (session: PostgresSession) => Promise<T>): Promise<T>;
  /** Calls `hear` with the payload of each NOTIFY on the channel, from now on. */
  listen(channel: string, hear: (payload: string) => void): Promise<void>;
  /** Calls `lost` once when the connection ends by any other way than `close()`, also when it has ended already. */
  onLost(lost: (error: Error) => void): void;
  /** Ends the connection. Repeating it does nothing. */
  close(): Promise<void>;
}

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

/** Error of a connection: there is none to be had, or it was lost. */
export class DatabaseAwayError extends Error {
  override readonly name = "DatabaseAwayError";
  /** A statement was on its way, so nobody knows whether it was done. False: nothing was sent */
  readonly wasSent: boolean;
  /** True: something answers at the address, and it is not PostgreSQL. */
  readonly isStranger: boolean;
  constructor(
    message: string,
    options: { readonly wasSent: boolean; readonly isStranger?: boolean; readonly cause: unknown },
  ) {
    super(message, { cause: options.cause });
    this.wasSent = options.wasSent;
    this.isStranger = options.isStranger ?? false;
  }
}

/** Returns the SQLSTATE of an error of the server, for example "40P01". Undefined for any other error. */
export function sqlStateOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return undefined;
  return /^[0-9A-Z]{5}$/.test(error.code) && "severity" in error ? error.code : undefined;
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
      'Cannot use storage.driver = "postgres": the optional package "pg" is not installed; install it beside Postern, as with "npm install -g pg"',
      { key: "storage.driver", cause },
    );
  }
}

const DEFAULT_POOL_SIZE = 10;
const DEFAULT_STATEMENT_TIMEOUT_MS = 30_000;
const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
const DEFAULT_REPLY_GRACE_MS = 5_000;
const IDLE_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_DELAY_MS = 10_000;
/** Attempts of a transaction that the server rolls back in favour of another one */
const MAX_ATTEMPTS = 10;
const RETRY_PAUSE_MS = 20;
/** OID of the type int8 */
const INT8 = 20;
/** Server rolled the transaction back in favour of another: serialization failure, deadlock */
const ROLLED_BACK = ["40001", "40P01"];
/** Classes and states of SQLSTATE by which a server, or a pooler, ends a connection */
const CONNECTION_ENDED = /^(?:08|57P0[1-5]$)/;

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
    this.#graceMs = options.replyGraceMs ?? DEFAULT_REPLY_GRACE_MS;
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
    const name = nameOfAddress(direct);
    const session = new ClientSession(client, { name, timeoutMs: this.#timeoutMs, clock });
    const firstByte = hearFirstByte(client);
    try {
      await client.connect();
    } catch (cause) {
      await session.close();
      throw refusedStart(name, { cause, firstByte: firstByte(), hasTls: direct.ssl !== false });
    }
    try {
      await session.query(`SET statement_timeout = ${this.#timeoutMs}; ${DOES_IT_WRITE}`);
    } catch (error) {
      await session.close();
      throw error;
    }
    return session;
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
      throw notConnected(this.name, cause);
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
      return await run(client, statement, { name: this.name, ms: this.#timeoutMs + this.#graceMs, clock });
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

class ClientSession implements DedicatedSession {
  readonly #client: Client;
  readonly #place: { readonly name: string; readonly timeoutMs: number; readonly clock: Clock };
  readonly #heard = new Map<string, ((payload: string) => void)[]>();
  readonly #lostListeners: ((error: Error) => void)[] = [];
  readonly #inOrder = createOrder();
  #lost: Error | undefined;
  #isClosed = false;

  constructor(client: Client, place: { readonly name: string; readonly timeoutMs: number; readonly clock: Clock }) {
    this.#client = client;
    this.#place = place;
    client.on("error", (cause) => this.#lose(cause));
    client.on("end", () => this.#lose(undefined));
    client.on("notification", ({ channel, payload = "" }) => {
      for (const hear of this.#heard.get(channel) ?? []) hear(payload);
    });
  }

  async query(text: string, values: readonly PostgresValue[] = []): Promise<readonly PostgresRow[]> {
    return rowsOf(await this.#run(withValues(text, values)));
  }

  transaction<T>(work: (session: PostgresSession) => Promise<T>): Promise<T> {
    return inTransaction((text) => this.#run(text), { work, timeoutMs: this.#place.timeoutMs });
  }

  async listen(channel: string, hear: (payload: string) => void): Promise<void> {
    const known = this.#heard.get(channel);
    this.#heard.set(channel, [...known ?? [], hear]);
    if (known === undefined) await this.query(`LISTEN ${quoteName(channel)}`);
  }

  onLost(lost: (error: Error) => void): void {
    if (this.#lost !== undefined) lost(this.#lost);
    else this.#lostListeners.push(lost);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#client.end().catch(() => {});
  }

  #run(statement: string): Promise<QueryResult> {
    return this.#inOrder(() => this.#send(statement));
  }

  async #send(statement: string): Promise<QueryResult> {
    const { name, timeoutMs, clock } = this.#place;
    if (this.#isClosed) throw new Error(`Cannot use a connection to the database ${name}: it is closed`);
    try {
      return await run(this.#client, statement, { name, ms: timeoutMs + DEFAULT_REPLY_GRACE_MS, clock });
    } catch (error) {
      if (error instanceof DatabaseAwayError) this.#lose(error);
      throw error;
    }
  }

  #lose(cause: unknown): void {
    if (this.#isClosed || this.#lost !== undefined) return;
    this.#lost = cause instanceof DatabaseAwayError ? cause : connectionLost(this.#place.name, cause);
    for (const lost of this.#lostListeners.splice(0)) lost(this.#lost);
  }
}

async function inTransaction<T>(
  runText: (text: string) => Promise<QueryResult>,
  { work, timeoutMs }: {
    readonly work: (session: PostgresSession) => Promise<T>;
    readonly timeoutMs: number;
  },
): Promise<T> {
  await runText(`BEGIN; ${settings(timeoutMs)}`);
  let result: T;
  const inOrder = createOrder();
  try {
    result = await work({
      query: async (text, values = []) => rowsOf(await inOrder(() => runText(withValues(text, values)))),
    });
  } catch (error) {
    if (!(error instanceof DatabaseAwayError)) await inOrder(() => runText("ROLLBACK"));
    throw error;
  }
  const { command } = await runText("COMMIT");
  if (command !== "COMMIT") throw new Error("Cannot commit a transaction: one of its statements failed before");
  return result;
}

/** Creates the order of the statements of a connection: one is sent after the answer to the one before. */
function createOrder() {
  let last: Promise<unknown> = Promise.resolve();
  return <T>(send: () => Promise<T>): Promise<T> => {
    const answer = last.then(send);
    last = answer.catch(() => {});
    return answer;
  };
}

/**
 * Asks the server whether it writes. A standby that is not promoted yet answers with what it has replayed so far, so a token may still count
 * there that was revoked: nothing is read from a server that only reads.
 */
const DOES_IT_WRITE = "SHOW transaction_read_only";

/** Returns the settings of one transaction. A lock that was waited for is of use only when the next statement sees what its holder wrote. */
function settings(timeoutMs: number): string {
  return `SET LOCAL statement_timeout = ${timeoutMs}; SET LOCAL transaction_isolation = 'read committed'; ${DOES_IT_WRITE}`;
}

/**
 * Runs a text on a connection. A reply that does not come in time ends the connection.
 * @throws {DatabaseAwayError} also when the text asks whether the server writes, and it does not
 */
async function run(
  client: Pick<Client, "query" | "end">,
  statement: string,
  { name, ms, clock }: { readonly name: string; readonly ms: number; readonly clock: Clock },
): Promise<QueryResult> {
  const timer = clock.after(ms, () => void client.end().catch(() => {}));
  try {
    // A text of several statements gives a list of results, which the types of pg leave out
    const results = await client.query(statement) as QueryResult | [...QueryResult[], QueryResult];
    if (!Array.isArray(results)) return results;
    if (results.some(({ command, rows }) => command === "SHOW" && rows[0]?.transaction_read_only === "on")) {
      throw onlyReads(name);
    }
    return results[results.length - 1] as QueryResult;
  } catch (error) {
    if (error instanceof DatabaseAwayError) throw error;
    const state = sqlStateOf(error);
    if (state === undefined || CONNECTION_ENDED.test(state)) throw connectionLost(name, error);
    throw error;
  } finally {
    timer.clear();
  }
}

/** Returns the rows of a result, as the types of `clientConfig` make them. */
function rowsOf(result: QueryResult): readonly PostgresRow[] {
  return result.rows;
}

function notConnected(name: string, cause: unknown): DatabaseAwayError {
  return new DatabaseAwayError(`Cannot reach the database ${name}: ${reasonOf(cause)}`, { wasSent: false, cause });
}

/** Bytes that an answer of PostgreSQL to the first message begins with: to a start without TLS, and to the question for TLS. */
const FIRST_BYTES = { plain: "RENv", tls: "SNE" } as const;
/** Reason that pg gives for a connection that the other side closes before it has said anything */
const CLOSED = "Connection terminated unexpectedly";

/** Returns a function that tells the first byte which the server has sent on a new connection. Undefined: none has come yet */
function hearFirstByte({ connection }: Client): () => string | undefined {
  let first: string | undefined;
  connection.stream.once("data", (bytes: Uint8Array) => void (first = String.fromCharCode(bytes[0] ?? 0)));
  return () => first;
}

/** Returns the error of a connection that did not come about. A server that is starting may close connections too; it says nothing else first. */
function refusedStart(
  name: string,
  { cause, firstByte, hasTls }: {
    readonly cause: unknown;
    readonly firstByte: string | undefined;
    readonly hasTls: boolean;
  },
): DatabaseAwayError {
  if (firstByte !== undefined && !FIRST_BYTES[hasTls ? "tls" : "plain"].includes(firstByte)) {
    const message = `Cannot reach the database ${name}: something else than PostgreSQL answers there`;
    return new DatabaseAwayError(message, { wasSent: false, isStranger: true, cause });
  }
  if (firstByte === undefined && reasonOf(cause) === CLOSED) {
    const message = `Cannot reach the database ${name}: the connection is closed before the first answer, ` +
      "as by a server that starts, and by one that is not PostgreSQL";
    return new DatabaseAwayError(message, { wasSent: false, cause });
  }
  return notConnected(name, cause);
}

function onlyReads(name: string): DatabaseAwayError {
  const message = `The server of the database ${name} only reads, as a standby does that is not promoted yet`;
  return new DatabaseAwayError(message, { wasSent: false, cause: undefined });
}

function connectionLost(name: string, cause: unknown): DatabaseAwayError {
  const reason = cause === undefined ? "the server closed it" : reasonOf(cause);
  return new DatabaseAwayError(`Lost the connection to the database ${name}: ${reason}`, { wasSent: true, cause });
}

function reasonOf(cause: unknown): string {
  // Trying each address of a name fails with all errors at once, and no message of its own
  const error = cause instanceof AggregateError ? cause.errors.at(0) : cause;
  return error instanceof Error && error.message !== "" ? error.message : "it gave no reason";
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
        oid === INT8 && format !== "binary" ? Number : pg.types.getTypeParser(oid, format as "text"),
    } as NonNullable<ClientConfig["types"]>, // its overloads name the result of each format
  };
}
