import { scopeWordsOf } from "../text_scope.ts";
import type { Migration } from "./migration.ts";

/**
 * The full text once more, now with a column of scope words, so that a search need not look at the texts of other collections
 * and namespaces, and with an index of the first three and four letters for words that begin with the ones asked for.
 *
 * Records by the part of their key up to the first slash, in the order of their insertion, serve the same for lists.
 *
 * The old index has no texts to copy. Only memories had one, and it is made anew from them.
 */
export const migration0002: Migration = {
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
      const memory = JSON.parse(String(body)) as { key: string; tags: string[]; value: string };
      const text = [memory.key, ...memory.tags, memory.value].join("\n").replaceAll("\0", " ");
      put.run(id ?? 0, scopeWordsOf(String(collection), String(key)).join(" "), text);
    }
  },
};
