import { ConfigError } from "../../base/errors.ts";
import { sqlStateOf } from "../postgres/database_errors.ts";
import type { DedicatedSession } from "../postgres/dedicated_session.ts";
import type { PostgresRow, PostgresSession } from "../postgres/postgres_session.ts";
import { type PostgresValue, quoteName } from "../postgres/statement_text.ts";
import { type DigestRow, type MovingEntry, type MovingRecord, toRecordLine } from "./source_database.ts";

/** The copy that a schema holds, before the schema is given to gateways. */
export interface UnfinishedCopy {
  readonly id: string;
  /** True: an earlier call began it. The schema may hold a part of it, see `empty` */
  readonly wasBegun: boolean;
}

/** The data directory that a copy is made of. */
export interface CopyOrigin {
  readonly identity: string;
  /** Machine and folder, for people */
  readonly name: string;
}

/** Rows of one page of a digest, and bytes of their bodies, which the server reads in a moment. It answers with digests. */
const PAGE = { rows: 200, bytes: 50_000_000 } as const;
/** State of SQLSTATE of a lock that was waited for in vain. */
const LOCK_NOT_AVAILABLE = "55P03";
/** Gateways that an error names. */
const MAX_NAMED = 3;
const TABLES = ["records", "stream_records", "record_texts", "record_vectors", "batches"] as const;

/**
 * A schema that records are copied into. While it has the table `unfinished_move`, no gateway opens it (`migrateSchema`). A copy
 * that was cut off is made again, into the emptied schema.
 */
export class TargetSchema {
  readonly #session: DedicatedSession;
  readonly #name: string;
  readonly #schema: string;
  readonly #quoted: string;
  readonly #lockWaitMs: number;

  /**
   * @param place name of the database for messages, and the schema, whose tables are there
   * @param options.lockWaitMs time for which another copy is waited for. Default 5,000
   */
  constructor(
    session: DedicatedSession,
    place: { readonly database: string; readonly schema: string },
    { lockWaitMs = 5_000 }: { readonly lockWaitMs?: number | undefined } = {},
  ) {
    this.#session = session;
    this.#lockWaitMs = lockWaitMs;
    this.#name = place.database;
    this.#schema = place.schema;
    this.#quoted = quoteName(place.schema);
  }

  /**
   * Takes the schema for the copy of one data directory, for as long as the session lives.
   * @throws {ConfigError} `database_unusable`: it holds records, another copy, or somebody else copies into it
   */
  async claim(origin: CopyOrigin, newId: string): Promise<UnfinishedCopy> {
    await this.#lock();
    return await this.#session.transaction(async ({ query }) => {
      await query("SELECT pg_advisory_xact_lock(hashtext('postern schema'), hashtext($1))", [this.#schema]);
      const [found] = await query("SELECT to_regclass($1) IS NOT NULL AS has_copy", [this.#table("unfinished_move")]);
      if (found?.["has_copy"] === true) {
        const [row] = await query(`SELECT * FROM ${this.#table("unfinished_move")}`);
        return { id: String(this.#requireOwnCopy(row, origin.identity)["id"]), wasBegun: true };
      }
      await query(`LOCK TABLE ${this.#table("records")}, ${this.#table("stream_records")} IN SHARE MODE`);
      await this.#requireEmpty({ query });
      await query(
        `CREATE TABLE ${this.#table("unfinished_move")} (
           one boolean PRIMARY KEY DEFAULT true CHECK (one),
           id text NOT NULL,
           source text NOT NULL,
           source_name text NOT NULL,
           began_at timestamptz NOT NULL DEFAULT now()
         )`,
      );
      await query(`INSERT INTO ${this.#table("unfinished_move")} (id, source, source_name) VALUES ($1, $2, $3)`, [
        ...[newId, origin.identity, origin.name],
      ]);
      return { id: newId, wasBegun: false };
    });
  }

  /**
   * Looks whether the schema may be claimed, and changes nothing.
   * @throws {ConfigError} `database_unusable`, as `claim`
   */
  async look(identity: string): Promise<void> {
    const [found] = await this.#session.query(
      "SELECT to_regclass($1) IS NOT NULL AS has_copy, to_regclass($2) IS NOT NULL AS has_records",
      [this.#table("unfinished_move"), this.#table("records")],
    );
    if (found?.["has_copy"] === true) {
      const [row] = await this.#session.query(`SELECT * FROM ${this.#table("unfinished_move")}`);
      this.#requireOwnCopy(row, identity);
    } else if (found?.["has_records"] === true) {
      await this.#requireEmpty(this.#session);
    }
  }

  /** Returns the id of the copy that is not finished. Undefined: there is none, or no schema. */
  async unfinishedId(): Promise<string | undefined> {
    const [found] = await this.#session.query("SELECT to_regclass($1) IS NOT NULL AS has_copy", [
      this.#table("unfinished_move"),
    ]);
    if (found?.["has_copy"] !== true) return undefined;
    const [row] = await this.#session.query(`SELECT id FROM ${this.#table("unfinished_move")}`);
    return row === undefined ? undefined : String(row["id"]);
  }

  /**
   * Forgets everything that an earlier call copied.
   * @throws {ConfigError} `database_unusable`, as `requireNoGateway`
   */
  async empty(known: ReadonlySet<string>): Promise<void> {
    await this.#session.transaction(async (session) => {
      await session.query(`LOCK TABLE ${this.#table("records")} IN ACCESS EXCLUSIVE MODE`);
      await this.requireNoGateway(known, session);
      await session.query(`TRUNCATE ${TABLES.map((name) => this.#table(name)).join(", ")}`);
    });
  }

  /**
   * Looks for gateways that use the schema although records are copied into it, as those of an older Postern that opened it before.
   * @param known gateways that the source has records of
   * @throws {ConfigError} `database_unusable`: there is one, and it may have accepted work
   */
  async requireNoGateway(known: ReadonlySet<string>, session: PostgresSession = this.#session): Promise<void> {
    const rows = await session.query(
      `SELECT DISTINCT key FROM ${this.#table("records")}
       WHERE collection IN ('gateway_leases', 'gateway_fences') ORDER BY key`,
    );
    const foreign = rows.map(({ key }) => String(key)).filter((key) => !known.has(key));
    if (foreign.length === 0) return;
    const shown = foreign.slice(0, MAX_NAMED).join(", ");
    throw this.#unusable(
      `a gateway began to use it before the copy (${shown}); stop it, keep what it has done there if you need it, ` +
        "remove the schema with DROP SCHEMA, and try again",
    );
  }

  /** Writes a batch of records, in one transaction. */
  async putRecords(records: readonly MovingRecord[]): Promise<void> {
    const statement = new Statement();
    statement.insert(
      `${
        this.#table("records")
      } (collection, key, id, version, body, searchable, field1, field2, field3, created_at, updated_at)`,
      records.map((record) => [
        ...[record.collection, record.key, record.id, record.version, record.body, record.text !== undefined],
        ...[0, 1, 2].map((slot) => record.fields[slot] ?? null),
        ...[record.createdAt, record.updatedAt],
      ]),
      ["", "", "::int8", "::int8", "", "::boolean", "", "", "", "::int8", "::int8"],
    );
    statement.insert(
      `${this.#table("record_texts")} (record_id, terms, repeats, total)`,
      records.flatMap(({ id, text }) =>
        text === undefined ? [] : [[id, text.terms, JSON.stringify(text.repeats), text.total]]
      ),
      ["::int8", "::text[]", "::jsonb", "::int4"],
    );
    statement.insert(
      `${this.#table("record_vectors")} (record_id, model, dimensions, vector)`,
      records.flatMap(({ id, vector }) =>
        vector === undefined ? [] : [[id, vector.model, vector.dimensions, vector.bytes]]
      ),
      ["::int8", "", "::int4", "::bytea"],
    );
    await this.#session.query(statement.text(), statement.values);
  }

  /** Writes a batch of entries of streams. */
  async putEntries(entries: readonly MovingEntry[]): Promise<void> {
    const statement = new Statement();
    statement.insert(
      `${this.#table("stream_records")} (stream, seq, body, created_at)`,
      entries.map(({ stream, seq, body, createdAt }) => [stream, seq, body, createdAt]),
      ["", "::int8", "", "::int8"],
    );
    await this.#session.query(statement.text(), statement.values);
  }

  /** Lets ids of new records begin after this one, so that no record of a gateway takes the id of one that is copied later. */
  async reserveIds(lastId: number): Promise<void> {
    await this.#session.query("SELECT setval($1::regclass, greatest($2::int8, 1), $2::int8 > 0)", [
      this.#table("record_ids"),
      lastId,
    ]);
  }

  /** Gathers what the server plans its reads by. */
  async analyze(): Promise<void> {
    await this.#session.query(`ANALYZE ${TABLES.slice(0, 4).map((name) => this.#table(name)).join(", ")}`);
  }

  /** Yields a row for each record, by collection and creation. */
  async *recordDigests(): AsyncGenerator<DigestRow> {
    for (let after: readonly [string, number] = ["", 0];;) {
      const page = await this.#session.query(
        `SELECT r.id, r.collection, r.key, r.version, r.created_at, r.updated_at, r.field1, r.field2, r.field3,
           ${digestOf("r.body")} AS body, t.total, ${digestOf("array_to_string(t.terms, chr(10))")} AS terms,
           (SELECT ${
          digestOf(`coalesce(string_agg(e.key || '=' || e.value, chr(10) ORDER BY e.key COLLATE "C"), '')`)
        } FROM jsonb_each_text(t.repeats) e) AS repeats,
           v.model, v.dimensions, encode(sha256(v.vector), 'hex') AS vector
         FROM ${this.#page("records", "collection, id")} r
         LEFT JOIN ${this.#table("record_texts")} t ON t.record_id = r.id AND r.searchable
         LEFT JOIN ${this.#table("record_vectors")} v ON v.record_id = r.id
         WHERE r.bytes_before < ${PAGE.bytes} ORDER BY r.collection, r.id`,
        after,
      );
      for (const row of page) yield { group: String(row["collection"]), line: recordLine(row) };
      const last = page.at(-1);
      if (last === undefined) return;
      after = [String(last["collection"]), Number(last["id"])];
    }
  }

  /** Yields a row for each entry, by stream and seq. */
  async *entryDigests(): AsyncGenerator<DigestRow> {
    for (let after: readonly [string, number] = ["", 0];;) {
      const page = await this.#session.query(
        `SELECT s.stream, s.seq, s.created_at, ${digestOf("s.body")} AS body FROM ${
          this.#page("stream_records", "stream, seq")
        } s
         WHERE s.bytes_before < ${PAGE.bytes} ORDER BY s.stream, s.seq`,
        after,
      );
      for (const { stream, seq, created_at: createdAt, body } of page) {
        yield { group: String(stream), line: JSON.stringify([seq, createdAt, body]) };
      }
      const last = page.at(-1);
      if (last === undefined) return;
      after = [String(last["stream"]), Number(last["seq"])];
    }
  }

  /** Returns how many texts and vectors are there, with those that no record has. */
  async indexCounts(): Promise<{ readonly texts: number; readonly vectors: number }> {
    const [row] = await this.#session.query(
      `SELECT (SELECT count(*) FROM ${this.#table("record_texts")}) AS texts,
         (SELECT count(*) FROM ${this.#table("record_vectors")}) AS vectors`,
    );
    return { texts: Number(row?.["texts"]), vectors: Number(row?.["vectors"]) };
  }

  /** Gives the schema to gateways. */
  async finish(): Promise<void> {
    await this.#session.query(`DROP TABLE IF EXISTS ${this.#table("unfinished_move")}`);
  }

  /** Returns the next rows of a table after the place $1, $2, each with the bytes of the bodies before it. Bodies are not read for that. */
  #page(table: string, order: string): string {
    return `(
      SELECT n.*, sum(octet_length(n.body)) OVER (ORDER BY ${order}) - octet_length(n.body) AS bytes_before FROM (
        SELECT * FROM ${this.#table(table)} WHERE (${order}) > ($1, $2::int8) ORDER BY ${order} LIMIT ${PAGE.rows}
      ) n
    )`;
  }

  /** Takes the lock of the session. The server notices a moment later that the session of a killed command is gone. */
  async #lock(): Promise<void> {
    try {
      await this.#session.transaction(async ({ query }) => {
        await query(`SET LOCAL lock_timeout = ${this.#lockWaitMs}`);
        await query("SELECT pg_advisory_lock(hashtext('postern move'), hashtext($1))", [this.#schema]);
      });
    } catch (error) {
      if (sqlStateOf(error) !== LOCK_NOT_AVAILABLE) throw error;
      throw this.#unusable("another postern storage migrate copies into it now");
    }
  }

  #requireOwnCopy(row: PostgresRow | undefined, identity: string): PostgresRow {
    if (row?.["source"] === identity) return row;
    const name = JSON.stringify(String(row?.["source_name"]).slice(0, 200));
    throw this.#unusable(`it holds the unfinished copy of ${name}; finish that one, or remove it with DROP SCHEMA`);
  }

  async #requireEmpty(session: PostgresSession): Promise<void> {
    const held = await session.query(
      `SELECT collection AS name, count(*) AS n FROM ${this.#table("records")} GROUP BY collection
       UNION ALL SELECT 'entries of streams', count(*) FROM ${this.#table("stream_records")} HAVING count(*) > 0
       ORDER BY 2 DESC LIMIT 4`,
    );
    if (held.length === 0) return;
    const leases = held.some(({ name }) => name === "gateway_leases") ? ", and gateways use it" : "";
    const shown = held.map(({ name, n }) => `${String(n)} ${String(name)}`).join(", ");
    throw this.#unusable(
      `it holds records already (${shown})${leases}; name another by storage.schema, or remove it with DROP SCHEMA`,
    );
  }

  #table(name: string): string {
    return `${this.#quoted}.${name}`;
  }

  #unusable(reason: string): ConfigError {
    return new ConfigError(
      "database_unusable",
      `Cannot copy the records into the schema "${this.#schema}" of the database ${this.#name}: ${reason}`,
      { key: "storage.schema" },
    );
  }
}

/** Statements with their values, as one message and so one transaction. */
class Statement {
  readonly values: PostgresValue[] = [];
  readonly #texts: string[] = [];

  /** Adds an insertion of rows. @param casts casts of the columns, in their order */
  insert(into: string, rows: readonly (readonly PostgresValue[])[], casts: readonly string[]): void {
    if (rows.length === 0) return;
    const tuples = rows.map((row) => `(${row.map((value, at) => this.#place(value) + (casts[at] ?? "")).join(", ")})`);
    this.#texts.push(`INSERT INTO ${into} VALUES ${tuples.join(", ")}`);
  }

  text(): string {
    return this.#texts.join(";\n");
  }

  #place(value: PostgresValue): string {
    this.values.push(value);
    return `$${this.values.length}`;
  }
}

function recordLine(row: PostgresRow): string {
  const { terms, vector } = row;
  return toRecordLine({
    id: Number(row["id"]),
    key: String(row["key"]),
    version: Number(row["version"]),
    createdAt: Number(row["created_at"]),
    updatedAt: Number(row["updated_at"]),
    fields: [row["field1"], row["field2"], row["field3"]].map((field) => field == null ? null : String(field)),
    body: String(row["body"]),
    text: terms == null ? null : [String(terms), String(row["repeats"]), Number(row["total"])],
    vector: vector == null ? null : [String(row["model"]), Number(row["dimensions"]), String(vector)],
  });
}

function digestOf(text: string): string {
  return `encode(sha256(convert_to(${text}, 'UTF8')), 'hex')`;
}
