import type { Migration } from "./migration.ts";

/**
 * Records by collection and key, their full text, and append-only streams. Times are milliseconds since the epoch.
 *
 * `records.id` grows with each insertion and is never used twice: it is the order `created`. The text table keeps the index
 * without the texts; its rows are the records of the same id where `searchable` is 1.
 */
export const migration0001: Migration = {
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
