import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import {
  fieldOf,
  findIndexedField,
  INDEXED_FIELDS,
  type IndexedField,
  scanOf,
  type WhereField,
} from "../indexed_fields.ts";
import type { ScanOptions, Stored, StreamRecord, VectorlessPage, VectorlessScan } from "../store.ts";
import { BestItems, cosineOf, type TextVector, toUnit } from "../vectors.ts";
import type { PostgresRow, PostgresSession } from "./postgres_session.ts";
import { type PostgresValue, quoteName } from "./statement_text.ts";

/** Vectors that `nearest` compares exactly, at most, and their bytes. */
const CANDIDATES = { most: 20_000, bytes: 6_000_000 } as const;
/** Vectors that it compares at least, for each record that is wanted. */
const CANDIDATES_PER_RECORD = 4;
/** A longer value of a field is kept as its digest, so that the entry of the index has room. Characters */
const MAX_FIELD_LENGTH = 200;

/** The reads of the store: each call is one statement, and `nearest` is two. */
export class RecordQueries {
  readonly #session: PostgresSession;
  readonly #records: string;
  readonly #schema: string;

  constructor(session: PostgresSession, schema: string) {
    this.#session = session;
    this.#schema = quoteName(schema);
    this.#records = `${this.#schema}.records`;
  }

  async get(collection: string, key: string): Promise<Stored | undefined> {
    const rows = await this.#session.query(
      `SELECT key, version, body FROM ${this.#records} WHERE collection = $1 AND key = $2`,
      [collection, key],
    );
    return toStoredList(rows)[0];
  }

  async count(collection: string, which: string | WhereField): Promise<number> {
    const range = new Conditions();
    range.add("collection = ?", collection);
    if (typeof which === "string") range.addPrefix(which);
    else {
      const field = findIndexedField(collection, scanOf(collection, which));
      range.add(`field${slotOf(field)} = ?`, fieldText(which.value));
    }
    const [row] = await this.#session.query(
      `SELECT count(*) AS n FROM ${this.#records} WHERE ${range.text()}`,
      range.values,
    );
    return Number(row?.["n"]);
  }

  async scan(collection: string, options: ScanOptions): Promise<readonly Stored[]> {
    const { prefix = "", after, limit, where, reverse = false } = options;
    const field = where === undefined ? undefined : findIndexedField(collection, { ...options, where });
    const place = (field?.order ?? options.order ?? "key") === "key" ? "key" : "id";
    const range = new Conditions();
    range.add("collection = ?", collection);
    if (field !== undefined && where !== undefined) range.add(`field${slotOf(field)} = ?`, fieldText(where.value));
    range.addPrefix(prefix);
    const scope = prefix.slice(0, prefix.indexOf("/") + 1);
    if (place === "id" && scope !== "") {
      range.add(`strpos(key, '/') > 0 AND "left"(key, strpos(key, '/')) = ?`, scope);
    }
    if (after !== undefined && place === "key") range.add(`key ${reverse ? "<" : ">"} ?`, after);
    // A record that is gone has no place in the order of creation: nothing is after NULL
    if (after !== undefined && place === "id") {
      range.add(
        `id ${reverse ? "<" : ">"} (SELECT a.id FROM ${this.#records} a WHERE a.collection = $1 AND a.key = ?)`,
        after,
      );
    }
    const order = `ORDER BY ${place} ${reverse ? "DESC" : "ASC"} LIMIT ${limit}`;
    return toStoredList(
      await this.#session.query(
        `SELECT key, version, body FROM ${this.#records} WHERE ${range.text()} ${order}`,
        range.values,
      ),
    );
  }

  async read(stream: string, afterSeq: number, limit: number): Promise<readonly StreamRecord[]> {
    const rows = await this.#session.query(
      `SELECT seq, body FROM ${this.#schema}.stream_records WHERE stream = $1 AND seq > $2::int8 ORDER BY seq LIMIT ${limit}`,
      [stream, afterSeq],
    );
    return rows.map((row) => ({ seq: Number(row["seq"]), body: bodyOf(row) }));
  }

  async vectorless(collection: string, options: VectorlessScan): Promise<VectorlessPage> {
    const { model, dimensions = 0, after, limit } = options;
    const rows = await this.#session.query(
      `SELECT r.id, r.key, r.version, r.body, r.searchable AND NOT EXISTS (
         SELECT FROM ${this.#schema}.record_vectors v
         WHERE v.record_id = r.id AND v.model = $1 AND ($2::int4 = 0 OR v.dimensions = $2::int4)
       ) AS lacks
       FROM ${this.#records} r WHERE r.collection = $3 AND ($4::int8 IS NULL OR r.id < $4::int8)
       ORDER BY r.id DESC LIMIT ${limit}`,
      [modelText(model), dimensions, collection, after ?? null],
    );
    const last = rows.at(-1)?.["id"];
    return {
      records: toStoredList(rows.filter((row) => row["lacks"] === true)),
      last: last === undefined ? undefined : Number(last),
    };
  }

  async nearest(
    collection: string,
    { vector, prefix, limit }: { readonly vector: TextVector; readonly prefix: string; readonly limit: number },
  ): Promise<readonly Stored[]> {
    const values = toUnit(vector.values);
    const range = new Conditions();
    range.add("r.collection = ?", collection);
    range.addPrefix(prefix, "r.key");
    range.add("v.dimensions = ?::int4", values.length);
    range.add("v.model = ?", modelText(vector.model));
    range.values.push(signsOf(values));
    const candidates = candidatesOf(values.length, limit);
    const found = await this.#session.query(
      `SELECT c.id, encode(c.vector, 'base64') AS vector FROM (
         SELECT v.record_id AS id, v.vector FROM ${this.#schema}.record_vectors v
         JOIN ${this.#records} r ON r.id = v.record_id WHERE ${range.text()}
         ORDER BY bit_count(v.signs # $${range.values.length}::bit varying), v.record_id LIMIT ${candidates}
       ) c ORDER BY c.id`,
      range.values,
    );
    const best = new BestItems<number>(limit);
    for (const row of found) best.add(Number(row["id"]), cosineOf(toValues(row["vector"]), values));
    return await this.#withIds(best.list());
  }

  async #withIds(ids: readonly number[]): Promise<readonly Stored[]> {
    if (ids.length === 0) return [];
    const rows = await this.#session.query(
      `SELECT r.key, r.version, r.body FROM unnest($1::int8[]) WITH ORDINALITY n (id, place)
       JOIN ${this.#records} r ON r.id = n.id ORDER BY n.place`,
      [ids.map(String)],
    );
    return toStoredList(rows);
  }
}

/** Conditions of a statement, with their values. */
export class Conditions {
  readonly values: PostgresValue[] = [];
  readonly #texts: string[] = [];

  /** Adds a condition in which `?` stands for the value. */
  add(text: string, value: PostgresValue): void {
    this.values.push(value);
    this.#texts.push(text.replace("?", `$$${this.values.length}`));
  }

  /** Adds the range of keys that begin with a prefix. */
  addPrefix(prefix: string, column = "key"): void {
    if (prefix === "") return;
    this.add(`${column} >= ?`, prefix);
    const end = prefixEnd(prefix);
    if (end !== undefined) this.add(`${column} < ?`, end);
  }

  text(): string {
    return this.#texts.join(" AND ");
  }
}

/** Returns the first text, by bytes of UTF-8, after all texts that begin with `prefix`. Undefined where there is none. */
function prefixEnd(prefix: string): string | undefined {
  const points = [...prefix].map((character) => character.codePointAt(0) ?? 0);
  while (points.length > 0) {
    const last = points.pop() ?? 0;
    if (last === 0x10ffff) continue;
    // Surrogates are not characters of their own
    points.push(last === 0xd7ff ? 0xe000 : last + 1);
    return String.fromCodePoint(...points);
  }
  return undefined;
}

/** Returns the number of the column that keeps a field: its place among the fields of its collection, from 1. */
function slotOf(field: IndexedField): number {
  return INDEXED_FIELDS.filter(({ collection }) => collection === field.collection).indexOf(field) + 1;
}

/** Returns the values of a body's indexed fields for their columns. */
export function indexedTextsOf(collection: string, body: unknown): readonly (string | null)[] {
  return INDEXED_FIELDS.filter((field) => field.collection === collection).map((field) => {
    const value = fieldOf(body, field);
    return value === undefined ? null : fieldText(value);
  });
}

/** Returns the text that stands for a field's value: with NUL and lone surrogates as escapes, a long one as its digest. */
function fieldText(value: string): string {
  const json = JSON.stringify(value);
  return json.length <= MAX_FIELD_LENGTH ? json : createHash("sha256").update(json).digest("hex");
}

/** Returns the text that stands for a model's name, which may have any characters. */
export function modelText(model: string): string {
  return JSON.stringify(model);
}

/** Returns the records of rows with `key`, `version` and `body`. */
export function toStoredList(rows: readonly PostgresRow[]): readonly Stored[] {
  return rows.map((row) => ({ key: String(row["key"]), version: Number(row["version"]), body: bodyOf(row) }));
}

/** Returns the JSON value of a row's `body`. Undefined for a text that is not JSON. */
function bodyOf(row: PostgresRow): unknown {
  try {
    return JSON.parse(String(row["body"]));
  } catch {
    return undefined;
  }
}

/** Returns how many vectors with the nearest signs are read: enough that the nearest vectors are among them. */
function candidatesOf(dimensions: number, limit: number): number {
  const fitting = Math.floor(CANDIDATES.bytes / (dimensions * Float32Array.BYTES_PER_ELEMENT));
  return Math.max(limit * CANDIDATES_PER_RECORD, Math.min(CANDIDATES.most, fitting));
}

/** Returns a bit for each number of a vector, as the function `signs_of` of the schema: 1 for one below zero. */
function signsOf(values: Float32Array): string {
  return Array.from(values, (value) => value < 0 || Object.is(value, -0) ? "1" : "0").join("");
}

function toValues(base64: unknown): Float32Array {
  // A copy begins at an address that 32-bit numbers may have
  return new Float32Array(Uint8Array.from(Buffer.from(String(base64), "base64")).buffer);
}

/** Returns the bytes of a vector in base64. */
export function vectorText(values: Float32Array): string {
  return Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString("base64");
}
