import type { Write } from "../store.ts";
import { type StoredParsers, type StoredText, type UnreadableFound, UnreadableSearch } from "../unreadable_search.ts";
import type { PostgresRow, PostgresSession } from "./postgres_session.ts";
import { type PostgresValue, quoteName } from "./statement_text.ts";

/** Rows of one page, and bytes of their bodies; a larger body is a page of its own. */
const PAGE = { rows: 200, bytes: 8_000_000 } as const;

/** The records of a schema as they are stored, damaged ones too. Only for whoever knows that no gateway works on them. */
export class StoredTexts {
  readonly #session: PostgresSession;
  readonly #schema: string;

  constructor(session: PostgresSession, schema: string) {
    this.#session = session;
    this.#schema = quoteName(schema);
  }

  /** Tells whether gateways have records here. False also where there is no schema, and where a move copies into it. */
  async hasRecords(): Promise<boolean> {
    const [found] = await this.#session.query(
      "SELECT to_regclass($1) IS NOT NULL AS has_tables, to_regclass($2) IS NOT NULL AS has_copy",
      [`${this.#schema}.records`, `${this.#schema}.unfinished_move`],
    );
    if (found?.["has_tables"] !== true || found["has_copy"] === true) return false;
    const [row] = await this.#session.query(`SELECT EXISTS (SELECT FROM ${this.#schema}.records) AS has_records`);
    return row?.["has_records"] === true;
  }

  /** Parses every record. @param isOver asked before each record: true ends the search early. Default: all are looked at */
  async findUnreadable(parsers: StoredParsers, isOver?: () => boolean): Promise<UnreadableFound> {
    const search = new UnreadableSearch(parsers, isOver);
    const all = async (pages: AsyncIterable<readonly StoredText[]>) => {
      for await (const page of pages) if (!search.look(page)) return false;
      return true;
    };
    return search.found(await all(this.#records()) && await all(this.#entries()));
  }

  /** Yields the records and entries of streams that writes change or remove, a row at a time. */
  async *before(writes: readonly Write[]): AsyncGenerator<PostgresRow> {
    for (const write of writes) {
      if (write.op === "drop") {
        for (let seq = 0;;) {
          const page = await this.#page("stream_records", "seq", ["stream = $1 AND seq > $2::int8", [
            write.stream,
            seq,
          ]]);
          yield* page;
          if (page.length === 0) break;
          seq = Number(page.at(-1)?.["seq"]);
        }
      } else if (write.op !== "append") {
        yield* await this.#session.query(
          `SELECT collection, key, version, body, created_at, updated_at FROM ${this.#schema}.records
           WHERE collection = $1 AND key = $2`,
          [write.collection, write.key],
        );
      }
    }
  }

  async *#records(): AsyncGenerator<readonly StoredText[]> {
    for (let id = 0;;) {
      const page = await this.#page("records", "id", ["id > $1::int8", [id]]);
      if (page.length === 0) return;
      yield page.map(({ collection, key, body }) => (
        { kind: "collections", name: String(collection), key: String(key), body: String(body) }
      ));
      id = Number(page.at(-1)?.["id"]);
    }
  }

  async *#entries(): AsyncGenerator<readonly StoredText[]> {
    for (let after: readonly [string, number] = ["", 0];;) {
      const page = await this.#page("stream_records", "stream, seq", ["(stream, seq) > ($1, $2::int8)", after]);
      if (page.length === 0) return;
      yield page.map(({ stream, seq, body }) => (
        { kind: "streams", name: String(stream), key: String(seq), body: String(body) }
      ));
      after = [String(page.at(-1)?.["stream"]), Number(page.at(-1)?.["seq"])];
    }
  }

  /** Returns the next rows of a table whose bodies have few enough bytes together. */
  #page(
    table: "records" | "stream_records",
    order: string,
    [where, values]: readonly [string, readonly PostgresValue[]],
  ): Promise<readonly PostgresRow[]> {
    const columns = table === "records"
      ? "id, collection, key, version, body, created_at, updated_at"
      : "stream, seq, body, created_at";
    return this.#session.query(
      `SELECT ${columns} FROM (
         SELECT n.*, sum(octet_length(n.body)) OVER (ORDER BY ${order}) - octet_length(n.body) AS bytes_before FROM (
           SELECT * FROM ${this.#schema}.${table} WHERE ${where} ORDER BY ${order} LIMIT ${PAGE.rows}
         ) n
       ) p WHERE bytes_before < ${PAGE.bytes} ORDER BY ${order}`,
      values,
    );
  }
}
