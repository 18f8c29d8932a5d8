import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { EncodedWrite } from "../encode_write.ts";
import { searchTexts } from "../search_texts.ts";
import type { ScanOptions, Stored, StreamRecord, TextSearch, VectorlessPage, VectorlessScan } from "../store.ts";
import { findIndexedField, type IndexedField, nameOf, scanOf, type WhereField } from "../indexed_fields.ts";
import { NO_END, prefixEnd, TextIndex } from "./text_index.ts";
import { createVectorIndex, type VectorIndex } from "./vector_index.ts";

const COLUMNS = "key, version, body";
const UPSERT = "INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES (?, ?, 1, ?, ?, ?)";

type Prepare = (text: string) => StatementSync;

/** Prepares the statements of records. Parameters are plain question marks: older Node does not bind numbered ones by position. */
function prepareRecords(sql: Prepare) {
  return {
    get: sql(`SELECT ${COLUMNS} FROM records WHERE collection = ? AND key = ?`),
    take: sql(`DELETE FROM records WHERE collection = ? AND key = ? RETURNING id, searchable, ${COLUMNS}`),
    put: sql(
      `${UPSERT} ON CONFLICT (collection, key)
     DO UPDATE SET version = version + 1, body = excluded.body, updated_at = excluded.updated_at RETURNING id, searchable`,
    ),
    insert: sql(`${UPSERT} ON CONFLICT (collection, key) DO NOTHING RETURNING id, searchable`),
    putIf: sql(
      `UPDATE records SET version = version + 1, body = ?, updated_at = ?
     WHERE collection = ? AND key = ? AND version = ? RETURNING id, searchable`,
    ),
    mark: sql("UPDATE records SET searchable = ? WHERE id = ?"),
    versionOf: sql("SELECT version FROM records WHERE collection = ? AND key = ?"),
    idOf: sql("SELECT id FROM records WHERE collection = ? AND key = ?"),
    count: sql("SELECT count(*) AS n FROM records WHERE collection = ? AND key >= ? AND key < ?"),
  };
}

/** Prepares the scans by key and by insertion. A prefix with a slash has an index of its own. */
function prepareScans(sql: Prepare) {
  const range = "collection = ? AND key >= max(?, ?) AND key <> ? AND key < min(?, ?)";
  const created = "collection = ? AND key >= ? AND key < ? AND id > ? AND id < ?";
  const inScope = `${created} AND instr(key, '/') > 0 AND substr(key, 1, instr(key, '/')) = ?`;
  const createdScan = (index: string, where: string, direction: string) =>
    sql(`SELECT ${COLUMNS} FROM records INDEXED BY ${index} WHERE ${where} ORDER BY id ${direction} LIMIT ?`);
  return {
    keysForward: sql(`SELECT ${COLUMNS} FROM records WHERE ${range} ORDER BY key LIMIT ?`),
    keysReverse: sql(`SELECT ${COLUMNS} FROM records WHERE ${range} ORDER BY key DESC LIMIT ?`),
    createdForward: createdScan("records_created", created, "ASC"),
    createdReverse: createdScan("records_created", created, "DESC"),
    scopedForward: createdScan("records_scoped", inScope, "ASC"),
    scopedReverse: createdScan("records_scoped", inScope, "DESC"),
  };
}

function prepareStreams(sql: Prepare) {
  return {
    lastSeq: sql("SELECT max(seq) AS seq FROM stream_records WHERE stream = ?"),
    append: sql("INSERT INTO stream_records (stream, seq, body, created_at) VALUES (?, ?, ?, ?)"),
    drop: sql("DELETE FROM stream_records WHERE stream = ?"),
    read: sql("SELECT seq, body FROM stream_records WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?"),
  };
}

/**
 * The SQL of the store: each function is one or a few statements, without a transaction of its own.
 */
export class RecordStatements {
  readonly #records: ReturnType<typeof prepareRecords>;
  readonly #scans: ReturnType<typeof prepareScans>;
  readonly #fieldScans: (field: IndexedField) => FieldScans;
  readonly #streams: ReturnType<typeof prepareStreams>;
  readonly #texts: TextIndex;
  readonly vectors: VectorIndex;
  readonly #now: () => number;

  /** @param now milliseconds since the epoch, for `created_at` and `updated_at` */
  constructor(database: DatabaseSync, now: () => number) {
    const sql: Prepare = (text) => database.prepare(text);
    this.#records = prepareRecords(sql);
    this.#scans = prepareScans(sql);
    this.#fieldScans = createFieldScans(sql);
    this.#streams = prepareStreams(sql);
    this.#texts = new TextIndex(database, COLUMNS);
    this.vectors = createVectorIndex(database, COLUMNS);
    this.#now = now;
  }

  get(collection: string, key: string): Stored | undefined {
    return toStored(this.#records.get.get(collection, key));
  }

  scan(collection: string, { where, ...options }: ScanOptions): readonly Stored[] {
    if (where !== undefined) return toStoredList(this.#scanField(collection, { ...options, where }));
    if (options.order === "created") return toStoredList(this.#scanCreated(collection, options));
    return toStoredList(this.#scanKeys(collection, options));
  }

  count(collection: string, which: string | WhereField): number {
    if (typeof which === "string") return Number(this.#records.count.get(collection, which, prefixEnd(which))?.["n"]);
    const field = findIndexedField(collection, scanOf(collection, which));
    return Number(this.#fieldScans(field).count.get(which.value)?.["n"]);
  }

  search(collection: string, { query, prefix = "", limit }: TextSearch): readonly Stored[] {
    return toStoredList(searchTexts(this.#texts.engine(collection, prefix), query, limit));
  }

  vectorless(collection: string, options: VectorlessScan): VectorlessPage {
    const rows = this.vectors.look(collection, options);
    const last = rows.at(-1)?.["id"];
    return {
      records: toStoredList(rows.filter((row) => row["has_vector"] === 0)),
      last: last === undefined ? undefined : Number(last),
    };
  }

  /** Returns the records with these ids that are still there */
  withIds(ids: readonly number[]): readonly Stored[] {
    return ids.flatMap((id) => toStored(this.vectors.record(id)) ?? []);
  }

  read(stream: string, afterSeq: number, limit: number): readonly StreamRecord[] {
    return this.#streams.read.all(stream, afterSeq, limit)
      .map((row) => ({ seq: Number(row["seq"]), body: bodyOf(row) }));
  }

  take(collection: string, key: string): Stored | undefined {
    return toStored(this.#takeRow(collection, key));
  }

  /** @returns false when its precondition did not hold; a part of it may have been written */
  apply(write: EncodedWrite): boolean {
    const { put, insert, putIf } = this.#records;
    const now = this.#now();
    switch (write.op) {
      case "put":
        return this.#index(put.get(write.collection, write.key, write.json, now, now), write);
      case "insert":
        return this.#index(insert.get(write.collection, write.key, write.json, now, now), write);
      case "putIf":
        return this.#index(putIf.get(write.json, now, write.collection, write.key, write.version), write);
      case "delete":
        this.#takeRow(write.collection, write.key);
        return true;
      case "vector":
        return this.vectors.put(write, write.vector);
      case "check":
        return Number(this.#records.versionOf.get(write.collection, write.key)?.["version"] ?? 0) === write.version;
      case "append":
        return this.#append(write);
      case "drop":
        this.#streams.drop.run(write.stream);
        return true;
    }
  }

  #append({ stream, expectedSeq, jsons }: Extract<EncodedWrite, { readonly op: "append" }>): boolean {
    let seq = Number(this.#streams.lastSeq.get(stream)?.["seq"] ?? 0);
    if (seq !== expectedSeq) return false;
    for (const json of jsons) this.#streams.append.run(stream, ++seq, json, this.#now());
    return true;
  }

  #scanKeys(collection: string, options: ScanOptions): Row[] {
    const { prefix = "", after, limit } = options;
    const end = prefixEnd(prefix);
    return options.reverse === true
      ? this.#scans.keysReverse.all(collection, prefix, "", "", end, after ?? NO_END, limit)
      : this.#scans.keysForward.all(collection, prefix, after ?? "", after ?? "", end, NO_END, limit);
  }

  #scanCreated(collection: string, options: ScanOptions): Row[] {
    const { prefix = "", after, limit, reverse = false } = options;
    const scans = this.#scans;
    const end = prefixEnd(prefix);
    const from = after === undefined ? undefined : this.#idOf(collection, after);
    if (after !== undefined && from === undefined) return [];
    const range = reverse
      ? [collection, prefix, end, 0, from ?? Number.MAX_SAFE_INTEGER]
      : [collection, prefix, end, from ?? 0, Number.MAX_SAFE_INTEGER];
    const scope = prefix.slice(0, prefix.indexOf("/") + 1);
    if (scope === "") return (reverse ? scans.createdReverse : scans.createdForward).all(...range, limit);
    return (reverse ? scans.scopedReverse : scans.scopedForward).all(...range, scope, limit);
  }

  #scanField(collection: string, options: ScanOptions & { readonly where: WhereField }): Row[] {
    const { where, after, limit, reverse = false } = options;
    const field = findIndexedField(collection, options);
    const scans = this.#fieldScans(field);
    if (after === undefined) return (reverse ? scans.newest : scans.oldest).all(where.value, limit);
    const from = field.order === "key" ? after : this.#idOf(collection, after);
    return from === undefined ? [] : (reverse ? scans.before : scans.after).all(where.value, from, limit);
  }

  #idOf(collection: string, key: string): Row[string] | undefined {
    return this.#records.idOf.get(collection, key)?.["id"];
  }

  /** Keeps the full text in step with a record just written. */
  #index(row: Row | undefined, write: PutWrite): boolean {
    if (row === undefined) return false;
    const { text } = write;
    const id = Number(row["id"]);
    const searchable = row["searchable"] ?? 0;
    if (text !== undefined) this.#texts.put(id, write, text);
    else if (searchable === 1) this.#texts.drop(id);
    if ((text !== undefined) !== (searchable === 1)) this.#records.mark.run(text === undefined ? 0 : 1, id);
    return true;
  }

  #takeRow(collection: string, key: string): Row | undefined {
    const row = this.#records.take.get(collection, key);
    if (row?.["searchable"] === 1) this.#texts.drop(Number(row["id"]));
    return row;
  }
}

/** Scans of one indexed field: all of them, or from a place on. */
interface FieldScans {
  readonly count: StatementSync;
  readonly oldest: StatementSync;
  readonly newest: StatementSync;
  readonly after: StatementSync;
  readonly before: StatementSync;
}

/** Returns the scans of a field, prepared at their first use. The index of a field is named after it; SQLite refuses a missing one. */
function createFieldScans(sql: (text: string) => StatementSync): (field: IndexedField) => FieldScans {
  const known = new Map<IndexedField, FieldScans>();
  const prepare = (field: IndexedField): FieldScans => {
    const { collection, path, order, findsAbsent } = field;
    const place = order === "key" ? "key" : "id";
    const value = `json_extract(body, '$.${nameOf(field)}')`;
    const found = findsAbsent === true ? `coalesce(${value}, '')` : value;
    const where = `FROM records INDEXED BY ${collection}_by_${path.join("_")}
      WHERE collection = '${collection}' AND CASE WHEN json_valid(body) THEN ${found} END = ?`;
    const from = `SELECT ${COLUMNS} ${where}`;
    return {
      count: sql(`SELECT count(*) AS n ${where}`),
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
