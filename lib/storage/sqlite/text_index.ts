import type { DatabaseSync, StatementSync } from "node:sqlite";
import { scopeOf, scopeWordsOf, type SearchTerm, type TextEngine } from "../search_texts.ts";

/** A record found: its id and the columns that were asked for. */
export type FoundRow = NonNullable<ReturnType<StatementSync["get"]>>;

/** The full text of records, in FTS5. A row has the id of its record. */
export interface TextIndex {
  put(id: number | bigint, place: { readonly collection: string; readonly key: string }, text: string): void;
  drop(id: number | bigint): void;
  /** Searches the records of a collection whose keys begin with `prefix` */
  engine(collection: string, prefix: string): TextEngine<FoundRow>;
}

/** @param columns of `records`, selected beside the id */
export function createTextIndex(database: DatabaseSync, columns: string): TextIndex {
  const put = database.prepare("INSERT OR REPLACE INTO record_texts (rowid, scope, text) VALUES (?, ?, ?)");
  const drop = database.prepare("DELETE FROM record_texts WHERE rowid = ?");
  const count = database.prepare(
    "SELECT count(*) AS n FROM (SELECT 1 FROM record_texts WHERE record_texts MATCH ? LIMIT ?)",
  );
  // The index first, the records of the few best after it: the other way round each record would ask the index
  const finder = (from: string, { by, order }: { readonly by: string; readonly order: string }) =>
    database.prepare(
      `SELECT records.id AS id, ${columns} FROM (SELECT record_texts.rowid AS id, ${by} AS place FROM ${from}
       ORDER BY ${order} LIMIT ?) AS found CROSS JOIN records ON records.id = found.id ORDER BY ${order}`,
    );
  const scoped = "record_texts WHERE record_texts MATCH ?";
  const prefixed = `record_texts CROSS JOIN records AS candidates ON candidates.id = record_texts.rowid
    WHERE record_texts MATCH ? AND candidates.key >= ? AND candidates.key < ?`;
  // Only the text counts: its scope says nothing about how well a record matches
  const best = { by: "bm25(record_texts, 0.0, 1.0)", order: "place, id" };
  const newest = { by: "record_texts.rowid", order: "place DESC" };
  const find = {
    ranked: { scoped: finder(scoped, best), prefixed: finder(prefixed, best) },
    newest: { scoped: finder(scoped, newest), prefixed: finder(prefixed, newest) },
  };

  return {
    // FTS5 reads a text up to its first NUL
    put: (id, { collection, key }, text) =>
      void put.run(id, scopeWordsOf(collection, key).join(" "), text.replaceAll("\0", " ")),
    drop: (id) => void drop.run(id),
    engine(collection, prefix) {
      const scope = scopeOf(collection, prefix);
      const run = (kind: "ranked" | "newest", match: string, limit: number) =>
        scope.whole
          ? find[kind].scoped.all(match, limit)
          : find[kind].prefixed.all(match, prefix, prefixEnd(prefix), limit);
      return {
        hasTexts: () => Number(count.get(`scope : "${scope.word}"`, 1)?.["n"]) > 0,
        count: (term, { where, max }) =>
          Number(count.get(where === "all" ? ofTexts([term], "OR") : toMatch(scope.word, [term], "OR"), max)?.["n"]),
        ranked: (terms, limit) => run("ranked", toMatch(scope.word, terms, "OR"), limit),
        newest: (terms, how, limit) => run("newest", toMatch(scope.word, terms, how === "all" ? "AND" : "OR"), limit),
        idOf: (row) => Number(row["id"]),
      };
    },
  };
}

function toMatch(scope: string, terms: readonly SearchTerm[], join: "AND" | "OR"): string {
  return `scope : "${scope}" AND ${ofTexts(terms, join)}`;
}

/** Words in quotes are the only syntax of others that reaches FTS5. */
function ofTexts(terms: readonly SearchTerm[], join: "AND" | "OR"): string {
  const words = terms.map(({ word, prefix }) => `"${word.replaceAll('"', '""')}"${prefix ? "*" : ""}`);
  return `text : (${words.join(` ${join} `)})`;
}

/** End of a range without an end: SQLite sorts every text before a blob. */
export const NO_END = new Uint8Array([255]);

/** Returns the first text, by bytes of UTF-8, after all texts that begin with `prefix`. */
export function prefixEnd(prefix: string): string | Uint8Array {
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
