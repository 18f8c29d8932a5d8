import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { EncodedWrite } from "../encode_write.ts";
import { searchTexts } from "../search_texts.ts";
import type { ScanOptions, Stored, StreamRecord, TextSearch } from "../store.ts";
import { findIndexedField, type IndexedField, nameOf, type WhereField } from "../indexed_fields.ts";
import { createTextIndex, NO_END, prefixEnd } from "./text_index.ts";

/** The SQL of the store: each function is one or a few statements, without a transaction of its own. */
export interface RecordStatements {
  get(collection: string, key: string): Stored | undefined;
  scan(collection: string, options: ScanOptions): readonly Stored[];
  count(collection: string, prefix: string): number;
  search(collection: string, options: TextSearch): readonly Stored[];
  read(stream: string, afterSeq: number, limit: number): readonly StreamRecord[];
  take(collection: string, key: string): Stored | undefined;
  /** @returns false when its precondition did not hold; a part of it may have been written */
  apply(write: EncodedWrite): boolean;
}

const COLUMNS = "key, version, body";
const UPSERT = "INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES (?, ?, 1, ?, ?, ?)";

/**
 * Prepares the statements of the store. Parameters are plain question marks: older versions of Node do not bind numbered parameters
 * by position.
 * @param now milliseconds since the epoch, for `created_at` and `updated_at`
 */
export function createRecordStatements(database: DatabaseSync, now: () => number): RecordStatements {
  const sql = (text: string): StatementSync => database.prepare(text);
  const get = sql(`SELECT ${COLUMNS} FROM records WHERE collection = ? AND key = ?`);
  const take = sql(`DELETE FROM records WHERE collection = ? AND key = ? RETURNING id, searchable, ${COLUMNS}`);
  const put = sql(
    `${UPSERT} ON CONFLICT (collection, key)
     DO UPDATE SET version = version + 1, body = excluded.body, updated_at = excluded.updated_at RETURNING id, searchable`,
  );
  const insert = sql(`${UPSERT} ON CONFLICT (collection, key) DO NOTHING RETURNING id, searchable`);
  const putIf = sql(
    `UPDATE records SET version = version + 1, body = ?, updated_at = ?
     WHERE collection = ? AND key = ? AND version = ? RETURNING id, searchable`,
  );
  const mark = sql("UPDATE records SET searchable = ? WHERE id = ?");
  const texts = createTextIndex(database, COLUMNS);
  const range = "collection = ? AND key >= max(?, ?) AND key <> ? AND key < min(?, ?)";
  const byKey = {
    forward: sql(`SELECT ${COLUMNS} FROM records WHERE ${range} ORDER BY key LIMIT ?`),
    reverse: sql(`SELECT ${COLUMNS} FROM records WHERE ${range} ORDER BY key DESC LIMIT ?`),
  };
  const created = "collection = ? AND key >= ? AND key < ? AND id > ? AND id < ?";
  const inScope = `${created} AND instr(key, '/') > 0 AND substr(key, 1, instr(key, '/')) = ?`;
  const createdScan = (index: string, where: string, direction: string) =>
    sql(`SELECT ${COLUMNS} FROM records INDEXED BY ${index} WHERE ${where} ORDER BY id ${direction} LIMIT ?`);
  const byCreated = {
    forward: createdScan("records_created", created, "ASC"),
    reverse: createdScan("records_created", created, "DESC"),
    scopedForward: createdScan("records_scoped", inScope, "ASC"),
    scopedReverse: createdScan("records_scoped", inScope, "DESC"),
  };
  const byField = createFieldScans(sql);
  const idOf = sql("SELECT id FROM records WHERE collection = ? AND key = ?");
  const count = sql("SELECT count(*) AS n FROM records WHERE collection = ? AND key >= ? AND key < ?");
  const lastSeq = sql("SELECT max(seq) AS seq FROM stream_records WHERE stream = ?");
  const append = sql("INSERT INTO stream_records (stream, seq, body, created_at) VALUES (?, ?, ?, ?)");
  const drop = sql("DELETE FROM stream_records WHERE stream = ?");
  const read = sql("SELECT seq, body FROM stream_records WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?");

  function scanKeys(collection: string, options: ScanOptions): Row[] {
    const { prefix = "", after, limit } = options;
    const end = prefixEnd(prefix);
    return options.reverse === true
      ? byKey.reverse.all(collection, prefix, "", "", end, after ?? NO_END, limit)
      : byKey.forward.all(collection, prefix, after ?? "", after ?? "", end, NO_END, limit);
  }

  function scanCreated(collection: string, options: ScanOptions): Row[] {
    const { prefix = "", after, limit } = options;
    const end = prefixEnd(prefix);
    const from = after === undefined ? undefined : idOf.get(collection, after)?.["id"];
    if (after !== undefined && from === undefined) return [];
    const range = options.reverse === true
      ? [collection, prefix, end, 0, from ?? Number.MAX_SAFE_INTEGER]
      : [collection, prefix, end, from ?? 0, Number.MAX_SAFE_INTEGER];
    const scope = prefix.slice(0, prefix.indexOf("/") + 1);
    if (scope === "") return (options.reverse === true ? byCreated.reverse : byCreated.forward).all(...range, limit);
    return (options.reverse === true ? byCreated.scopedReverse : byCreated.scopedForward).all(...range, scope, limit);
  }

  function scanField(collection: string, options: ScanOptions & { readonly where: WhereField }): Row[] {
    const { where, after, limit, reverse = false } = options;
    const field = findIndexedField(collection, options);
    const scans = byField(field);
    if (after === undefined) return (reverse ? scans.newest : scans.oldest).all(where.value, limit);
    const from = field.order === "key" ? after : idOf.get(collection, after)?.["id"];
    return from === undefined ? [] : (reverse ? scans.before : scans.after).all(where.value, from, limit);
  }

  /** Created and updated */
  function nowTwice(): readonly [number, number] {
    const time = now();
    return [time, time];
  }

  /** Keeps the full text in step with a record just written. */
  function index(row: Row | undefined, write: PutWrite): boolean {
    if (row === undefined) return false;
    const { text } = write;
    const id = Number(row["id"]);
    const searchable = row["searchable"] ?? 0;
    if (text !== undefined) texts.put(id, write, text);
    else if (searchable === 1) texts.drop(id);
    if ((text !== undefined) !== (searchable === 1)) mark.run(text === undefined ? 0 : 1, id);
    return true;
  }

  function takeRow(collection: string, key: string): Row | undefined {
    const row = take.get(collection, key);
    if (row?.["searchable"] === 1) texts.drop(Number(row["id"]));
    return row;
  }

  return {
    get: (collection, key) => toStored(get.get(collection, key)),
    scan: (collection, { where, ...options }) =>
      toStoredList(
        where !== undefined
          ? scanField(collection, { ...options, where })
          : options.order === "created"
          ? scanCreated(collection, options)
          : scanKeys(collection, options),
      ),
    count: (collection, prefix) => Number(count.get(collection, prefix, prefixEnd(prefix))?.["n"]),
    search: (collection, { query, prefix = "", limit }) =>
      toStoredList(searchTexts(texts.engine(collection, prefix), query, limit)),
    read: (stream, afterSeq, limit) =>
      read.all(stream, afterSeq, limit).map((row) => ({ seq: Number(row["seq"]), body: bodyOf(row) })),
    take: (collection, key) => toStored(takeRow(collection, key)),
    apply(write) {
      switch (write.op) {
        case "put":
          return index(put.get(write.collection, write.key, write.json, ...nowTwice()), write);
        case "insert":
          return index(insert.get(write.collection, write.key, write.json, ...nowTwice()), write);
        case "putIf":
          return index(putIf.get(write.json, now(), write.collection, write.key, write.version), write);
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

/** Scans of one indexed field: all of them, or from a place on. */
interface FieldScans {
  readonly oldest: StatementSync;
  readonly newest: StatementSync;
  readonly after: StatementSync;
  readonly before: StatementSync;
}

/** Returns the scans of a field, prepared at their first use. The index of a field is named after it; SQLite refuses a missing one. */
function createFieldScans(sql: (text: string) => StatementSync): (field: IndexedField) => FieldScans {
  const known = new Map<IndexedField, FieldScans>();
  const prepare = (field: IndexedField): FieldScans => {
    const { collection, path, order } = field;
    const place = order === "key" ? "key" : "id";
    const from = `SELECT ${COLUMNS} FROM records INDEXED BY ${collection}_by_${path.join("_")}
      WHERE collection = '${collection}' AND CASE WHEN json_valid(body) THEN json_extract(body, '$.${
      nameOf(field)
    }') END = ?`;
    return {
      oldest: sql(`${from} ORDER BY ${place} LIMIT ?`),
      newest: sql(`${from} ORDER BY ${place} DESC LIMIT ?`),
      after: sql(`${from} AND ${place} > ? ORDER BY ${place} LIMIT ?`),
      before: sql(`${from} AND ${place} < ? ORDER BY ${place} DESC LIMIT ?`),
    };
  };
  return (field) => {
    let scans = known.get(field);
    if (scans === undefined) known.set(field, scans = prepare(field));
    return scans;
  };
}

type Row = NonNullable<ReturnType<StatementSync["get"]>>;
type PutWrite = Extract<EncodedWrite, { readonly text: string | undefined }>;

function toStored(row: Row | undefined): Stored | undefined {
  return row === undefined
    ? undefined
    : { key: String(row["key"]), version: Number(row["version"]), body: bodyOf(row) };
}

function toStoredList(rows: readonly Row[]): readonly Stored[] {
  return rows.flatMap((row) => toStored(row) ?? []);
}

function bodyOf(row: Row): unknown {
  try {
    return JSON.parse(String(row["body"]));
  } catch {
    return undefined;
  }
}
