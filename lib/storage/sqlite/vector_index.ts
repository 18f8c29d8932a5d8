import type { DatabaseSync, StatementSync } from "node:sqlite";
import { lazily } from "../../base/lazily.ts";
import type { Stored, VectorlessScan } from "../store.ts";
import type { TextVector } from "../vectors.ts";
import { prefixEnd } from "./text_index.ts";

type Row = NonNullable<ReturnType<StatementSync["get"]>>;

/** A record with its vector. */
export interface VectorRow {
  readonly id: number;
  /** Undefined for a vector of a record outside of the range */
  readonly values: Float32Array | undefined;
}

/** Vectors of one model and length in a part of a collection. */
export interface VectorRange {
  readonly collection: string;
  readonly prefix: string;
  readonly vector: TextVector;
}

/** The vectors of records. */
export interface VectorIndex {
  /** @returns false when no record with a text has this version */
  put(place: Pick<Stored, "key" | "version"> & { readonly collection: string }, vector: TextVector): boolean;
  /** Returns `limit` vectors of the model and length, after the record `afterId`, in the order of their records */
  page(range: VectorRange, page: { readonly afterId: number; readonly limit: number }): readonly VectorRow[];
  /** Returns records, newest first, with `has_vector` 1 for one that needs no vector */
  look(collection: string, options: VectorlessScan): readonly Row[];
  record(id: number): Row | undefined;
}

/**
 * Creates the index of a database.
 * @param columns of `records` that a record found has; `key` is among them
 */
export function createVectorIndex(database: DatabaseSync, columns: string): VectorIndex {
  const statements = lazily(() => prepareVectors((text) => database.prepare(text), columns));
  return {
    put({ collection, key, version }, { model, values }) {
      const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      return Number(statements().put.run(model, values.length, bytes, collection, key, version).changes) > 0;
    },
    page: ({ collection, prefix, vector: { model, values } }, { afterId, limit }) =>
      statements().page.all(collection, prefix, prefixEnd(prefix), model, values.length, afterId, limit)
        .map((row) => ({ id: Number(row["id"]), values: toValues(row["vector"]) })),
    look: (collection, { model, dimensions = 0, after = Number.MAX_SAFE_INTEGER, limit }) =>
      statements().look.all(model, dimensions, dimensions, collection, after, limit),
    record: (id) => statements().record.get(id),
  };
}

/** Prepares the statements of the index, at its first use: few gateways have vectors. */
function prepareVectors(sql: (text: string) => StatementSync, columns: string) {
  return {
    put: sql(
      `INSERT OR REPLACE INTO record_vectors (record_id, model, dimensions, vector)
     SELECT id, ?, ?, ? FROM records WHERE collection = ? AND key = ? AND version = ? AND searchable = 1`,
    ),
    page: sql(
      `SELECT record_id AS id, CASE WHEN collection = ? AND key >= ? AND key < ? THEN vector END AS vector
     FROM record_vectors CROSS JOIN records ON records.id = record_id
     WHERE model = ? AND dimensions = ? AND record_id > ? ORDER BY record_id LIMIT ?`,
    ),
    look: sql(
      `SELECT id, ${columns}, searchable = 0 OR EXISTS (
       SELECT 1 FROM record_vectors WHERE record_id = records.id AND model = ? AND (? = 0 OR dimensions = ?)
     ) AS has_vector
     FROM records INDEXED BY records_created WHERE collection = ? AND id < ? ORDER BY id DESC LIMIT ?`,
    ),
    record: sql(`SELECT ${columns} FROM records WHERE id = ?`),
  };
}

function toValues(blob: Row[string] | undefined): Float32Array | undefined {
  // A copy begins at an address that 32-bit numbers may have
  return blob instanceof Uint8Array ? new Float32Array(blob.slice().buffer) : undefined;
}
