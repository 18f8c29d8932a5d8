import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { EncodedWrite } from "../encode_write.ts";
import type { SearchTerm } from "../search_terms.ts";
import type { ScanOptions, Stored, StreamRecord } from "../store.ts";

/** The SQL of the store: each function is one or a few statements, without a transaction of its own. */
export interface RecordStatements {
  get(collection: string, key: string): Stored | undefined;
  scan(collection: string, options: ScanOptions): readonly Stored[];
  count(collection: string, prefix: string): number;
  search(collection: string, terms: readonly SearchTerm[], prefix: string, limit: number): readonly Stored[];
  read(stream: string, afterSeq: number, limit: number): readonly StreamRecord[];
  take(collection: string, key: string): Stored | undefined;
  /** @returns false when its precondition did not hold; a part of it may have been written */
  apply(write: EncodedWrite): boolean;
}

/** Every text is below a blob, so this is the end of a range that has none. */
const NO_END = new Uint8Array([255]);

const COLUMNS = "key, version, body";
const UPSERT =
  "INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES (?1, ?2, 1, ?3, ?4, ?4)";

/** @param now milliseconds since the epoch, for `created_at` and `updated_at` */
export function createRecordStatements(database: DatabaseSync, now: () => number): RecordStatements {
  const sql = (text: string): StatementSync => database.prepare(text);
  const get = sql(`SELECT ${COLUMNS} FROM records WHERE collection = ? AND key = ?`);
  const take = sql(`DELETE FROM records WHERE collection = ? AND key = ? RETURNING id, searchable, ${COLUMNS}`);
  const put = sql(
    `${UPSERT} ON CONFLICT (collection, key) DO UPDATE SET version = version + 1, body = ?3, updated_at = ?4 RETURNING id, searchable`,
  );
  const insert = sql(`${UPSERT} ON CONFLICT (collection, key) DO NOTHING RETURNING id, searchable`);
  const putIf = sql(
    `UPDATE records SET version = version + 1, body = ?4, updated_at = ?5
     WHERE collection = ?1 AND key = ?2 AND version = ?3 RETURNING id, searchable`,
  );
  const mark = sql("UPDATE records SET searchable = ? WHERE id = ?");
  const putText = sql("INSERT OR REPLACE INTO record_texts (rowid, text) VALUES (?, ?)");
  const dropText = sql("DELETE FROM record_texts WHERE rowid = ?");
  const range = "collection = ?1 AND key >= max(?2, ?4) AND key <> ?4 AND key < min(?3, ?5)";
  const byKey = {
    forward: sql(`SELECT ${COLUMNS} FROM records WHERE ${range} ORDER BY key LIMIT ?6`),
    reverse: sql(`SELECT ${COLUMNS} FROM records WHERE ${range} ORDER BY key DESC LIMIT ?6`),
  };
  const created = "collection = ?1 AND key >= ?2 AND key < ?3 AND id > ?4 AND id < ?5";
  const byCreated = {
    forward: sql(`SELECT ${COLUMNS} FROM records INDEXED BY records_created WHERE ${created} ORDER BY id LIMIT ?6`),
    reverse: sql(
      `SELECT ${COLUMNS} FROM records INDEXED BY records_created WHERE ${created} ORDER BY id DESC LIMIT ?6`,
    ),
  };
  const idOf = sql("SELECT id FROM records WHERE collection = ? AND key = ?");
  const count = sql("SELECT count(*) AS n FROM records WHERE collection = ? AND key >= ? AND key < ?");
  const search = sql(
    `SELECT ${COLUMNS} FROM record_texts JOIN records ON records.id = record_texts.rowid
     WHERE record_texts MATCH ? AND collection = ? AND key >= ? AND key < ? ORDER BY bm25(record_texts), records.id LIMIT ?`,
  );
  const lastSeq = sql("SELECT max(seq) AS seq FROM stream_records WHERE stream = ?");
  const append = sql("INSERT INTO stream_records (stream, seq, body, created_at) VALUES (?, ?, ?, ?)");
  const drop = sql("DELETE FROM stream_records WHERE stream = ?");
  const read = sql("SELECT seq, body FROM stream_records WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?");

  function scanKeys(collection: string, options: ScanOptions): Row[] {
    const { prefix = "", after, limit } = options;
    const end = prefixEnd(prefix);
    return options.reverse === true
      ? byKey.reverse.all(collection, prefix, end, "", after ?? NO_END, limit)
      : byKey.forward.all(collection, prefix, end, after ?? "", NO_END, limit);
  }

  function scanCreated(collection: string, options: ScanOptions): Row[] {
    const { prefix = "", after, limit } = options;
    const end = prefixEnd(prefix);
    const from = after === undefined ? undefined : idOf.get(collection, after)?.["id"];
    if (after !== undefined && from === undefined) return [];
    return options.reverse === true
      ? byCreated.reverse.all(collection, prefix, end, 0, from ?? Number.MAX_SAFE_INTEGER, limit)
      : byCreated.forward.all(collection, prefix, end, from ?? 0, Number.MAX_SAFE_INTEGER, limit);
  }

  /** Keeps the full text in step with a record just written. */
  function index(row: Row | undefined, text: string | undefined): boolean {
    if (row === undefined) return false;
    const { id = 0, searchable = 0 } = row;
    // FTS5 reads a text up to its first NUL
    if (text !== undefined) putText.run(id, text.replaceAll("\0", " "));
    else if (searchable === 1) dropText.run(id);
    if ((text !== undefined) !== (searchable === 1)) mark.run(text === undefined ? 0 : 1, id);
    return true;
  }

  function takeRow(collection: string, key: string): Row | undefined {
    const row = take.get(collection, key);
    if (row?.["searchable"] === 1) dropText.run(row["id"] ?? 0);
    return row;
  }

  return {
    get: (collection, key) => toStored(get.get(collection, key)),
    scan: (collection, options) =>
      toStoredList(options.order === "created" ? scanCreated(collection, options) : scanKeys(collection, options)),
    count: (collection, prefix) => Number(count.get(collection, prefix, prefixEnd(prefix))?.["n"]),
    search: (collection, terms, prefix, limit) =>
      terms.length === 0
        ? []
        : toStoredList(search.all(toFtsQuery(terms), collection, prefix, prefixEnd(prefix), limit)),
    read: (stream, afterSeq, limit) =>
      read.all(stream, afterSeq, limit).map((row) => ({ seq: Number(row["seq"]), body: bodyOf(row) })),
    take: (collection, key) => toStored(takeRow(collection, key)),
    apply(write) {
      switch (write.op) {
        case "put":
          return index(put.get(write.collection, write.key, write.json, now()), write.text);
        case "insert":
          return index(insert.get(write.collection, write.key, write.json, now()), write.text);
        case "putIf":
          return index(putIf.get(write.collection, write.key, write.version, write.json, now()), write.text);
        case "delete":
          takeRow(write.collection, write.key);
          return true;
        case "append": {
          let seq = Number(lastSeq.get(write.stream)?.["seq"] ?? 0);
          if (seq !== write.expectedSeq) return false;
          for (const json of write.jsons) append.run(write.stream, ++seq, json, now());
          return true;
        }
        case "drop":
          drop.run(write.stream);
          return true;
      }
    },
  };
}

type Row = NonNullable<ReturnType<StatementSync["get"]>>;

function toStored(row: Row | undefined): Stored | undefined {
  return row === undefined
    ? undefined
    : { key: String(row["key"]), version: Number(row["version"]), body: bodyOf(row) };
}

function toStoredList(rows: readonly Row[]): readonly Stored[] {
  return rows.flatMap((row) => toStored(row) ?? []);
}

function bodyOf(row: Row): unknown {
  return JSON.parse(String(row["body"]));
}

/** Words in quotes, of which any may match: the only syntax that reaches FTS5. */
function toFtsQuery(terms: readonly SearchTerm[]): string {
  return terms.map(({ word, prefix }) => `"${word.replaceAll('"', '""')}"${prefix ? "*" : ""}`).join(" OR ");
}

/** The first text, by bytes of UTF-8, after all that begin with `prefix`. */
function prefixEnd(prefix: string): string | Uint8Array {
  const points = [...prefix].map((character) => character.codePointAt(0) ?? 0);
  while (points.length > 0) {
    const last = points.pop() ?? 0;
    if (last === 0x10ffff) continue;
    // Surrogates are not characters of their own
    points.push(last === 0xd7ff ? 0xe000 : last + 1);
    return String.fromCodePoint(...points);
  }
  return NO_END;
}
