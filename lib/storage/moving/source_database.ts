import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import type { DatabaseSync } from "node:sqlite";
import { ConfigError } from "../../base/errors.ts";
import { indexedTextsOf, modelText } from "../postgres/record_queries.ts";
import { type TextRow, toTextRow } from "../postgres/text_queries.ts";

/** Record with everything that the store keeps of it. */
export interface MovingRecord {
  /** Gives the order of creation, and is the same on both sides */
  readonly id: number;
  readonly collection: string;
  readonly key: string;
  readonly version: number;
  /** JSON text as it was serialised. A damaged record may have any text */
  readonly body: string;
  readonly fields: readonly (string | null)[];
  /** Undefined: the record is not searched */
  readonly text: TextRow | undefined;
  readonly vector: MovingVector | undefined;
  /** Milliseconds since the epoch */
  readonly createdAt: number;
  readonly updatedAt: number;
}

/** Vector of a record. */
export interface MovingVector {
  /** Name of the model as PostgreSQL keeps it */
  readonly model: string;
  readonly dimensions: number;
  readonly bytes: Uint8Array;
}

/** Record of a journal, or of another stream. */
export interface MovingEntry {
  readonly stream: string;
  readonly seq: number;
  readonly body: string;
  readonly createdAt: number;
}

/** Row for a digest: the collection or stream that it counts for, and all of it in one line. */
export interface DigestRow {
  readonly group: string;
  readonly line: string;
}

/** Returns the text that a record is found by. Undefined where it is searched by none, or its body is damaged. */
export type TextOf = (collection: string, body: string) => string | undefined;

/** Most rows and bytes of one batch. A larger body is a batch of its own. */
const BATCH = { rows: 500, bytes: 4_000_000 } as const;
const COLUMNS = `records.id, collection, key, version, CAST(body AS BLOB) AS body, searchable, created_at, updated_at,
  model, dimensions, vector FROM records LEFT JOIN record_vectors ON record_id = records.id`;

type Row = Readonly<Record<string, unknown>>;

/** The records of an SQLite database that nobody else has open, read a batch at a time. */
export class SourceDatabase {
  readonly #database: DatabaseSync;
  readonly #path: string;
  readonly #textOf: TextOf;
  #indexed = { texts: 0, vectors: 0 };

  constructor(database: DatabaseSync, path: string, textOf: TextOf) {
    this.#database = database;
    this.#path = path;
    this.#textOf = textOf;
  }

  /** Returns an id of the records of this data directory, which a copy of the file has too. */
  identity(): string {
    const marker = this.#database.prepare("SELECT body FROM records WHERE collection = 'processes' AND key = 'marker'");
    return sha256(String(marker.get()?.["body"] ?? this.#path));
  }

  /** Returns the gateways that the records of a cluster name. */
  gateways(): ReadonlySet<string> {
    const rows = this.#database.prepare(
      "SELECT DISTINCT key FROM records WHERE collection IN ('gateway_leases', 'gateway_fences')",
    );
    return new Set(rows.all().map(({ key }) => String(key)));
  }

  /** Returns how many records and entries of streams there are. */
  counts(): { readonly records: number; readonly entries: number } {
    const count = (table: string) => Number(this.#database.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.["n"]);
    return { records: count("records"), entries: count("stream_records") };
  }

  /** Returns how many texts and vectors the digests of all records had. Call it after `recordDigests` has ended. */
  indexed(): { readonly texts: number; readonly vectors: number } {
    return this.#indexed;
  }

  /** Returns the last id that any record had, also one that is gone: no other may get it. */
  lastId(): number {
    return Number(this.#database.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'records'").get()?.["seq"] ?? 0);
  }

  /** Returns the next records by id, at most a batch. @throws {ConfigError} a body that PostgreSQL cannot keep */
  recordsAfter(id: number): readonly MovingRecord[] {
    const rows = this.#database.prepare(`SELECT ${COLUMNS} WHERE records.id > ? ORDER BY records.id`).iterate(id);
    return batchOf(rows, (row) => this.#toRecord(row));
  }

  /** Returns the next entries of streams, at most a batch. @throws {ConfigError} a body that PostgreSQL cannot keep */
  entriesAfter(stream: string, seq: number): readonly MovingEntry[] {
    const rows = this.#database.prepare(
      `SELECT stream, seq, CAST(body AS BLOB) AS body, created_at FROM stream_records
       WHERE (stream, seq) > (?, ?) ORDER BY stream, seq`,
    ).iterate(stream, seq);
    return batchOf(rows, (row) => ({
      stream: String(row["stream"]),
      seq: Number(row["seq"]),
      body: this.#bodyOf(row, `entry ${Number(row["seq"])} of "${String(row["stream"])}"`),
      createdAt: Number(row["created_at"]),
    }));
  }

  /** Yields a row for each record, by collection and creation. */
  *recordDigests(): Generator<DigestRow> {
    this.#indexed = { texts: 0, vectors: 0 };
    for (const row of this.#database.prepare(`SELECT ${COLUMNS} ORDER BY collection, records.id`).iterate()) {
      const record = this.#toRecord(row);
      if (record.text !== undefined) this.#indexed.texts++;
      if (record.vector !== undefined) this.#indexed.vectors++;
      yield { group: record.collection, line: recordLine(record) };
    }
  }

  /** Yields a row for each entry, by stream and seq. */
  *entryDigests(): Generator<DigestRow> {
    const rows = this.#database.prepare(
      "SELECT stream, seq, CAST(body AS BLOB) AS body, created_at FROM stream_records ORDER BY stream, seq",
    );
    for (const { stream, seq, body, created_at: createdAt } of rows.iterate()) {
      const group = String(stream);
      yield { group, line: JSON.stringify([Number(seq), Number(createdAt), sha256(bytesOf(body))]) };
    }
  }

  #toRecord(row: Row): MovingRecord {
    const [collection, key] = [String(row["collection"]), String(row["key"])];
    const body = this.#bodyOf(row, `record "${key}" of "${collection}"`);
    const text = row["searchable"] === 1 ? this.#textOf(collection, body) : undefined;
    return {
      id: Number(row["id"]),
      collection,
      key,
      version: Number(row["version"]),
      body,
      fields: indexedTextsOf(collection, parsed(body)),
      text: text === undefined ? undefined : toTextRow(text, { collection, key }),
      vector: text === undefined ? undefined : vectorOf(row),
      createdAt: Number(row["created_at"]),
      updatedAt: Number(row["updated_at"]),
    };
  }

  #bodyOf({ body }: Row, place: string): string {
    try {
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytesOf(body));
      if (!text.includes("\0")) return text;
    } catch {
      // Refused below
    }
    throw new ConfigError(
      "database_corrupt",
      `Cannot copy ${place} of "${this.#path}": its text is damaged, and PostgreSQL cannot keep it; postern doctor --repair removes it after a backup`,
      { file: this.#path },
    );
  }
}

/** Returns all of a record in one line, with digests in the place of long texts. */
function recordLine({ text, vector, body, fields, ...record }: MovingRecord): string {
  return toRecordLine({
    ...record,
    fields: [0, 1, 2].map((slot) => fields[slot] ?? null),
    body: sha256(body),
    text: text === undefined ? null : [sha256(text.terms.join("\n")), sha256(repeatsText(text.repeats)), text.total],
    vector: vector === undefined ? null : [vector.model, vector.dimensions, sha256(vector.bytes)],
  });
}

/** Parts of a line that stands for a record in a digest. */
export interface RecordLineParts extends Pick<MovingRecord, "id" | "key" | "version" | "createdAt" | "updatedAt"> {
  /** Values of the three columns of indexed fields */
  readonly fields: readonly (string | null)[];
  /** Digest of the body */
  readonly body: string;
  /** Digests of terms and repeats, and the length of the text in terms */
  readonly text: readonly [string, string, number] | null;
  /** Model, dimensions, digest of the numbers */
  readonly vector: readonly [string, number, string] | null;
}

/** Returns the line of a record, the same on both sides. */
export function toRecordLine(parts: RecordLineParts): string {
  const { id, key, version, createdAt, updatedAt, fields, body, text, vector } = parts;
  return JSON.stringify([id, key, version, createdAt, updatedAt, fields, body, text, vector]);
}

/** Returns the words that a text has more than once, by their bytes, as the digest on the server puts them. */
function repeatsText(repeats: TextRow["repeats"]): string {
  return Object.entries(repeats).map(([word, count]) => [Buffer.from(word), count] as const)
    .sort(([one], [other]) => Buffer.compare(one, other)).map(([word, count]) => `${word.toString()}=${count}`).join(
      "\n",
    );
}

function batchOf<T extends { readonly body: string }>(rows: Iterable<Row>, toItem: (row: Row) => T): readonly T[] {
  const batch: T[] = [];
  let bytes = 0;
  for (const row of rows) {
    const size = bytesOf(row["body"]).byteLength;
    if (batch.length > 0 && bytes + size > BATCH.bytes) break;
    batch.push(toItem(row));
    bytes += size;
    if (batch.length >= BATCH.rows || bytes >= BATCH.bytes) break;
  }
  return batch;
}

function vectorOf({ model, dimensions, vector }: Row): MovingVector | undefined {
  if (!(vector instanceof Uint8Array)) return undefined;
  return { model: modelText(String(model)), dimensions: Number(dimensions), bytes: vector };
}

function bytesOf(body: unknown): Uint8Array {
  return body instanceof Uint8Array ? body : new Uint8Array();
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}
