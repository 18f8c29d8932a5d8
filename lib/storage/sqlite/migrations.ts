import { scopeWordsOf } from "../search_texts.ts";
import type { Migration } from "./migrate.ts";
import { toColumns } from "./text_index.ts";

/**
 * Creates records by collection and key, their full text, and append-only streams. Times are milliseconds since the epoch.
 *
 * `records.id` grows with each insertion and is never used twice: it is the order `created`. The text table keeps the index
 * without the texts; its rows are the records of the same id where `searchable` is 1.
 */
const migration0001: Migration = {
  version: 1,
  up(database) {
    database.exec(`
      CREATE TABLE records (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        collection TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        body TEXT NOT NULL,
        searchable INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        UNIQUE (collection, key)
      ) STRICT;
      CREATE INDEX records_created ON records (collection, id);
      CREATE VIRTUAL TABLE record_texts USING fts5(
        text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
      );
      CREATE TABLE stream_records (
        stream TEXT NOT NULL,
        seq INTEGER NOT NULL,
        body TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (stream, seq)
      ) STRICT;
    `);
  },
};

/**
 * Rebuilds the full text with a column of scope words, so that a search need not look at the texts of other collections and
 * namespaces. An index of the first three and four letters finds words by their beginning.
 *
 * Adds an index of records by the part of their key up to the first slash, in the order of their insertion, for lists.
 *
 * The old index has no texts to copy. Only memories were in it, and their texts are rebuilt from the records.
 */
const migration0002: Migration = {
  version: 2,
  up(database) {
    database.exec(`
      DROP TABLE record_texts;
      CREATE VIRTUAL TABLE record_texts USING fts5(
        scope, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2', prefix = '3 4'
      );
      CREATE INDEX records_scoped ON records (collection, substr(key, 1, instr(key, '/')), id);
      UPDATE records SET searchable = 0 WHERE searchable = 1 AND collection <> 'memory';
    `);
    const put = database.prepare("INSERT INTO record_texts (rowid, scope, text) VALUES (?, ?, ?)");
    const memories = database.prepare("SELECT id, collection, key, body FROM records WHERE searchable = 1");
    for (const { id, collection, key, body } of memories.iterate()) {
      const memory: { key: string; tags: string[]; value: string } = JSON.parse(String(body));
      const text = [memory.key, ...memory.tags, memory.value].join("\n").replaceAll("\0", " ");
      put.run(id ?? 0, scopeWordsOf(String(collection), String(key)).join(" "), text);
    }
  },
};

/** Fields that routes filter by in version 3: collection, name of the index, path in the body, order in the index. */
const FIELDS = [
  ["runs", "runs_by_run_status", "$.run.status", "id"],
  ["approvals", "approvals_by_status", "$.status", "id"],
  ["deliveries", "deliveries_by_status", "$.status", "id"],
  ["audit", "audit_by_type", "$.type", "key"],
  ["audit", "audit_by_tool", "$.tool", "key"],
  ["audit", "audit_by_run_id", "$.run_id", "key"],
] as const;

/**
 * Creates an index for each field that a filter may ask for. A body that is not JSON is in none of them.
 *
 * Keys without a slash leave the index of the first parts of keys: no scan asks for them there.
 */
const migration0003: Migration = {
  version: 3,
  up(database) {
    database.exec(`
      DROP INDEX records_scoped;
      CREATE INDEX records_scoped ON records (collection, substr(key, 1, instr(key, '/')), id) WHERE instr(key, '/') > 0;
    `);
    for (const [collection, index, path, order] of FIELDS) {
      database.exec(
        `CREATE INDEX ${index} ON records (CASE WHEN json_valid(body) THEN json_extract(body, '${path}') END, ${order})
         WHERE collection = '${collection}'`,
      );
    }
  },
};

/**
 * Rebuilds the full text from terms that `toIndexTerms` makes: words, stems and grams in columns of their own, so that texts of every
 * script are found, and forms and parts of words. SQLite's own tokenizer only splits the terms at their blanks.
 *
 * Rows are read in pages, so that memory stays bounded. The step is one transaction: when it is cut off, the next start does it again. A
 * memory whose body cannot be read is left out of the index, and is set aside when it is read.
 */
const migration0004: Migration = {
  version: 4,
  up(database) {
    database.exec(`
      DROP TABLE record_texts;
      CREATE VIRTUAL TABLE record_texts USING fts5(
        scope, words, stems, grams, content = '', contentless_delete = 1, tokenize = 'ascii'
      );
    `);
    const page = database.prepare(
      "SELECT id, collection, key, body FROM records WHERE searchable = 1 AND id > ? ORDER BY id LIMIT 500",
    );
    const put = database.prepare("INSERT INTO record_texts (rowid, scope, words, stems, grams) VALUES (?, ?, ?, ?, ?)");
    const unmark = database.prepare("UPDATE records SET searchable = 0 WHERE id = ?");
    for (let rows = page.all(0); rows.length > 0; rows = page.all(rows.at(-1)?.["id"] ?? 0)) {
      for (const { id = 0, collection, key, body } of rows) {
        const text = memoryTextOf(String(body));
        if (text === undefined) {
          unmark.run(id);
          continue;
        }
        put.run(id, ...toColumns({ collection: String(collection), key: String(key) }, text));
      }
    }
  },
};

/**
 * Creates the vectors of records with a text. A vector goes with the record that it is of, and when the text may have changed.
 *
 * `vector` holds `dimensions` numbers of 32 bits, in the order of bytes of the machine.
 */
const migration0005: Migration = {
  version: 5,
  up(database) {
    database.exec(`
      CREATE TABLE record_vectors (
        record_id INTEGER PRIMARY KEY,
        model TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        vector BLOB NOT NULL
      ) STRICT;
      CREATE TRIGGER record_vectors_deleted AFTER DELETE ON records WHEN OLD.searchable = 1 BEGIN
        DELETE FROM record_vectors WHERE record_id = OLD.id;
      END;
      CREATE TRIGGER record_vectors_written AFTER UPDATE OF version ON records WHEN OLD.searchable = 1 BEGIN
        DELETE FROM record_vectors WHERE record_id = OLD.id;
      END;
    `);
  },
};

/** Creates indexes of open work by the gateway that owns it. Work of nobody has the empty text. */
const migration0006: Migration = {
  version: 6,
  up(database) {
    const owned = "CASE WHEN json_valid(body) THEN coalesce(json_extract(body, '$.gateway'), '') END";
    const parent = "CASE WHEN json_valid(body) THEN json_extract(body, '$.parent_id') END";
    database.exec(`
      CREATE INDEX run_claims_by_gateway ON records (${owned}, id) WHERE collection = 'run_claims';
      CREATE INDEX run_claims_by_parent_id ON records (${parent}, id) WHERE collection = 'run_claims';
      CREATE INDEX open_sops_by_gateway ON records (${owned}, id) WHERE collection = 'open_sops';
      CREATE INDEX open_deliveries_by_gateway ON records (${owned}, id) WHERE collection = 'open_deliveries';
    `);
  },
};

/** Creates the index of open runs by their conversation, whose runs begin in the order of acceptance. */
const migration0007: Migration = {
  version: 7,
  up(database) {
    database.exec(`
      CREATE INDEX run_claims_by_conversation_id
        ON records (CASE WHEN json_valid(body) THEN json_extract(body, '$.conversation_id') END, id)
        WHERE collection = 'run_claims';
    `);
  },
};

/** Returns the text of a stored memory, version 1; undefined for a body that is none. */
function memoryTextOf(json: string): string | undefined {
  try {
    const { key, tags, value }: { key: string; tags: string[]; value: string } = JSON.parse(json);
    return [key, ...tags, value].join("\n");
  } catch {
    return undefined;
  }
}

/** Every migration, oldest first. A new one is added at the end and never changed once it was released. */
export const migrations: readonly Migration[] = [
  migration0001,
  migration0002,
  migration0003,
  migration0004,
  migration0005,
  migration0006,
  migration0007,
];
