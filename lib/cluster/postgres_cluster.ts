import { type Clock, type Timer, withTimeout } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { encodeWrite } from "../storage/encode_write.ts";
import { sqlStateOf } from "../storage/postgres/database_errors.ts";
import type { DedicatedSession } from "../storage/postgres/dedicated_session.ts";
import type { PostgresDatabase } from "../storage/postgres/postgres_database.ts";
import type { PostgresRow } from "../storage/postgres/postgres_session.ts";
import { refuseUnfinishedMove } from "../storage/postgres/migrate_schema.ts";
import { storageUnavailable } from "../storage/postgres/server_watch.ts";
import { type PostgresValue, quoteName } from "../storage/postgres/statement_text.ts";
import { createUnreadableRecords, type Stored, type Write } from "../storage/store.ts";
import { type ClusterNote, type NewsWire, noteText, parseNote } from "./cluster_news.ts";
import { readPostgresFacts } from "./postgres_facts.ts";
import type { ClusterDatabase } from "./join_cluster.ts";
import type { LeaseDatabase } from "./leases.ts";

/** Options of `openPostgresCluster`. */
export interface PostgresClusterOptions {
  /** Database, which whoever opened it closes */
  readonly database: Pick<PostgresDatabase, "dedicated" | "query" | "name">;
  /** `[storage] schema`, whose tables are there. */
  readonly schema: string;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

/** Pause before a lost connection is made again, up to as long again. Milliseconds */
const AGAIN_MS = 500;
/** Time after which a connection is given up that is still being made. Milliseconds */
const LONGEST_OPENING_MS = 5_000;
/** SQLSTATE by which `write_batch` says that a precondition did not hold */
const DID_NOT_HOLD = "PT412";
/**
 * Id of the cluster of databases, and its timeline, which a promotion of a standby and a restore to a moment change. The name of the file
 * of the log begins with it in 8 digits; the control file learns of it at the next checkpoint only. Any user may ask; a standby refuses.
 * Source: https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
 */
const HISTORY =
  "(SELECT system_identifier FROM pg_control_system())::text || '/' || \"left\"(pg_walfile_name(pg_current_wal_lsn()), 8)";
/** States of SQLSTATE of an engine that lacks a function, or refuses it to this user */
const CANNOT_TELL = /^(?:42501|42883|0A000)$/;

/**
 * Opens what a gateway needs of a PostgreSQL database beside its store: a connection for the lease and one for notifications, both outside
 * the pool. A connection that is lost or silent is given up and made again.
 */
export function openPostgresCluster(options: PostgresClusterOptions): ClusterDatabase {
  const leases = new LeaseConnection(options);
  const wire = new NotifyWire(options);
  return {
    leases,
    wire,
    facts: () => readPostgresFacts(options.database),
    async close() {
      await Promise.all([leases.close(), wire.close()]);
    },
  };
}

/** A connection outside the pool, made at its first use and again after a loss. */
class SingleConnection {
  readonly #options: PostgresClusterOptions;
  readonly #onOpen: (session: DedicatedSession) => Promise<void>;
  #opening: Promise<DedicatedSession> | undefined = undefined;
  /** Time at which the connection was asked for, in monotonic ms. */
  #openedAt = 0;
  #isClosed = false;

  constructor(options: PostgresClusterOptions, onOpen: (session: DedicatedSession) => Promise<void> = async () => {}) {
    this.#options = options;
    this.#onOpen = onOpen;
  }

  /**
   * Runs one statement. A reply that takes longer than half a lease counts as a loss.
   * @throws {HttpError} `storage_unavailable` for a connection that is lost or cannot be made; the server's own error for a statement
   */
  async query(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]> {
    const { clock, leaseMs } = this.#options;
    const opening = this.open();
    const work = opening.then((session) => session.query(text, values));
    work.catch(() => {});
    let isOpen = false;
    opening.then(() => isOpen = true, () => {});
    try {
      const rows = await withTimeout(work, { ms: leaseMs / 2, clock });
      if (rows !== undefined) return rows;
    } catch (error) {
      // A request may wait for the statement, as for the fences of other gateways
      if (sqlStateOf(error) !== undefined) throw error;
      this.#drop(opening);
      throw storageUnavailable(error);
    }
    // A busy server may take longer for a connection: giving each up in the middle would never end
    if (isOpen || clock.monotonic() - this.#openedAt >= LONGEST_OPENING_MS) this.#drop(opening);
    throw storageUnavailable(new Error("the database did not answer in time"));
  }

  open(): Promise<DedicatedSession> {
    if (this.#isClosed) return Promise.reject(new Error("Cannot use the connection: it is closed"));
    if (this.#opening !== undefined) return this.#opening;
    const opening = this.#connect();
    this.#opening = opening;
    this.#openedAt = this.#options.clock.monotonic();
    opening.then((session) => session.onLost(() => this.#drop(opening)), () => this.#drop(opening));
    return opening;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const opening = this.#opening;
    this.#opening = undefined;
    await opening?.then((session) => session.close(), () => {});
  }

  async #connect(): Promise<DedicatedSession> {
    const session = await this.#options.database.dedicated();
    try {
      await this.#onOpen(session);
      return session;
    } catch (error) {
      await session.close();
      throw error;
    }
  }

  #drop(opening: Promise<DedicatedSession>): void {
    if (this.#opening === opening) this.#opening = undefined;
    opening.then((session) => session.close(), () => {}).catch(() => {});
  }
}

/** The leases on a connection that nothing else uses. */
class LeaseConnection implements LeaseDatabase {
  readonly #connection: SingleConnection;
  readonly #place: { readonly name: string; readonly schema: string };
  readonly #schema: string;
  readonly #clock: Clock;
  readonly store: LeaseDatabase["store"];
  #history: string | undefined = undefined;
  /** False: the engine does not tell its history to this user. */
  #tellsHistory = true;

  constructor(options: PostgresClusterOptions) {
    this.#connection = new SingleConnection(options);
    this.#place = { name: options.database.name, schema: options.schema };
    this.#schema = quoteName(options.schema);
    this.#clock = options.clock;
    this.store = {
      unreadable: createUnreadableRecords(),
      get: async (collection, key) => (await this.#records("r.key = $2", [collection, key]))[0],
      scan: (collection, { limit }) => this.#records("true ORDER BY r.key LIMIT $2", [collection, limit]),
      batch: (writes) => this.#write(writes),
    };
  }

  async now(): Promise<number> {
    const history = this.#tellsHistory ? HISTORY : "NULL";
    try {
      const [row] = await this.#connection.query(
        `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8 AS now, ${history} AS history`,
        [],
      );
      this.#history = row?.["history"] == null ? undefined : String(row["history"]);
      return Number(row?.["now"]);
    } catch (error) {
      if (!this.#tellsHistory || !CANNOT_TELL.test(sqlStateOf(error) ?? "")) throw error;
      this.#tellsHistory = false;
      return await this.now();
    }
  }

  history(): string | undefined {
    return this.#history;
  }

  admit(): Promise<void> {
    return refuseUnfinishedMove({ query: (text, values = []) => this.#connection.query(text, values) }, this.#place);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #records(where: string, values: readonly PostgresValue[]): Promise<readonly Stored[]> {
    const rows = await this.#connection.query(
      `SELECT r.key, r.version, r.body FROM ${this.#schema}.records r WHERE r.collection = $1 AND ${where}`,
      values,
    );
    return rows.map(({ key, version, body }) => (
      { key: String(key), version: Number(version), body: JSON.parse(String(body)) as unknown }
    ));
  }

  async #write(writes: readonly Write[]): Promise<boolean> {
    const encoded = writes.map(encodeWrite).map((write) => "json" in write ? { ...write, body: write.json } : write);
    try {
      await this.#connection.query(`SELECT ${this.#schema}.write_batch($1::jsonb, $2::int8)`, [
        JSON.stringify(encoded),
        this.#clock.now(),
      ]);
      return true;
    } catch (error) {
      if (sqlStateOf(error) === DID_NOT_HOLD) return false;
      throw error;
    }
  }
}

/** Notes by LISTEN and NOTIFY on a connection of their own, so that no note waits for a transaction. */
class NotifyWire implements NewsWire {
  readonly #options: PostgresClusterOptions;
  readonly #channel: string;
  readonly #connection: SingleConnection;
  readonly #listeners = new Set<(note: ClusterNote) => void>();
  #again: Timer | undefined = undefined;
  #isClosed = false;

  constructor(options: PostgresClusterOptions) {
    this.#options = options;
    // Names of channels have 63 bytes, as names of schemas
    this.#channel = options.schema;
    this.#connection = new SingleConnection(options, async (session) => {
      await session.listen(this.#channel, (payload) => this.#receive(payload));
      session.onLost(() => this.#openAgain());
    });
  }

  async send(notes: readonly ClusterNote[]): Promise<void> {
    await this.#connection.query("SELECT pg_notify($1, value) FROM jsonb_array_elements_text($2::jsonb)", [
      this.#channel,
      JSON.stringify(notes.map(noteText)),
    ]);
  }

  async listen(onNote: (note: ClusterNote) => void): Promise<() => void> {
    this.#listeners.add(onNote);
    await this.#connection.open();
    return () => void this.#listeners.delete(onNote);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#again?.clear();
    await this.#connection.close();
  }

  #receive(payload: string): void {
    const note = parseNote(payload);
    if (note === undefined) return;
    for (const onNote of [...this.#listeners]) onNote(note);
  }

  /** Listens again after a loss. What is told meanwhile is found by the looks once a second. */
  #openAgain(): void {
    if (this.#isClosed) return;
    const { clock, random } = this.#options;
    const [share = 0] = random.bytes(1);
    this.#again?.clear();
    this.#again = clock.after(AGAIN_MS * (1 + share / 255), () => {
      this.#connection.open().catch(() => this.#openAgain());
    });
  }
}
