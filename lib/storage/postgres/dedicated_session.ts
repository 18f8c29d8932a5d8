import type { Client, QueryResult } from "pg";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { connectionLost, DatabaseAwayError, refusedStart, watchFirstByte } from "./database_errors.ts";
import {
  createOrder,
  DOES_IT_WRITE,
  inTransaction,
  type PostgresRow,
  type PostgresSession,
  REPLY_GRACE_MS,
  rowsOf,
  runStatements,
} from "./postgres_session.ts";
import { type PostgresValue, quoteName, withValues } from "./statement_text.ts";

/** Milliseconds that the server has to answer the end of a connection. */
const CLOSE_MS = 3_000;

/** Place and bounds of a session. */
interface SessionOptions {
  /** Name of the database, for messages. */
  readonly name: string;
  /** Milliseconds after which the server gives a statement up. */
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/**
 * Connects a client, and makes a session of it.
 * @throws {DatabaseAwayError} there is no connection, or the server only reads
 */
export async function openDedicatedSession(
  client: Client,
  { hasTls, ...options }: SessionOptions & { readonly hasTls: boolean },
): Promise<DedicatedSession> {
  const session = new DedicatedSession(client, options);
  const firstByte = watchFirstByte(client);
  try {
    await client.connect();
  } catch (cause) {
    await session.close();
    throw refusedStart(options.name, { cause, firstByte: firstByte(), hasTls });
  }
  try {
    await session.query(`SET statement_timeout = ${options.timeoutMs}; ${DOES_IT_WRITE}`);
  } catch (error) {
    await session.close();
    throw error;
  }
  return session;
}

/** Connection of its own, outside the pool and past a pooler: for leases, LISTEN, session locks and migrations. */
export class DedicatedSession implements PostgresSession {
  readonly #client: Client;
  readonly #place: SessionOptions;
  readonly #listeners = new Map<string, ((payload: string) => void)[]>();
  readonly #lostListeners: ((error: Error) => void)[] = [];
  readonly #inOrder = createOrder();
  #lost: Error | undefined;
  #isClosed = false;

  constructor(client: Client, place: SessionOptions) {
    this.#client = client;
    this.#place = place;
    client.on("error", (cause) => this.#noteEnd(cause));
    client.on("end", () => this.#noteEnd(undefined));
    client.on("notification", ({ channel, payload = "" }) => {
      for (const onPayload of this.#listeners.get(channel) ?? []) onPayload(payload);
    });
  }

  async query(text: string, values: readonly PostgresValue[] = []): Promise<readonly PostgresRow[]> {
    return rowsOf(await this.#run(withValues(text, values)));
  }

  /** Runs `work` between BEGIN and COMMIT, once. No other statement of this session may be made meanwhile. */
  transaction<T>(work: (session: PostgresSession) => Promise<T>): Promise<T> {
    return inTransaction((text) => this.#run(text), { work, timeoutMs: this.#place.timeoutMs });
  }

  /** Calls `onPayload` with the payload of each NOTIFY on the channel, from now on. */
  async listen(channel: string, onPayload: (payload: string) => void): Promise<void> {
    const known = this.#listeners.get(channel);
    this.#listeners.set(channel, [...known ?? [], onPayload]);
    if (known === undefined) await this.query(`LISTEN ${quoteName(channel)}`);
  }

  /** Calls `lost` once when the connection ends by any other way than `close()`, also when it has ended already. */
  onLost(lost: (error: Error) => void): void {
    if (this.#lost !== undefined) lost(this.#lost);
    else this.#lostListeners.push(lost);
  }

  /** Ends the connection, by force when the server does not answer. Repeating it does nothing. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await withTimeout(this.#client.end().catch(() => {}), { ms: CLOSE_MS, clock: this.#place.clock });
    // A server that is frozen or cut off never ends its side
    this.#client.connection.stream.destroy();
  }

  #run(statement: string): Promise<QueryResult> {
    return this.#inOrder(() => this.#send(statement));
  }

  async #send(statement: string): Promise<QueryResult> {
    const { name, timeoutMs, clock } = this.#place;
    if (this.#isClosed) throw new Error(`Cannot use a connection to the database ${name}: it is closed`);
    try {
      return await runStatements(this.#client, statement, { name, ms: timeoutMs + REPLY_GRACE_MS, clock });
    } catch (error) {
      if (error instanceof DatabaseAwayError) this.#noteEnd(error);
      throw error;
    }
  }

  #noteEnd(cause: unknown): void {
    if (this.#isClosed || this.#lost !== undefined) return;
    this.#lost = cause instanceof DatabaseAwayError ? cause : connectionLost(this.#place.name, cause);
    for (const lost of this.#lostListeners.splice(0)) lost(this.#lost);
  }
}
