import type { DatabaseSync, StatementSync } from "node:sqlite";
import { lazily, type Lazy } from "../../base/lazily.ts";
import { type SearchTerm, type TermColumns, toIndexTerms } from "../index_terms.ts";
import { COLUMN_WEIGHTS, scopeOf, scopeWordsOf, type TextEngine } from "../search_texts.ts";

/** A record found: its id and the columns that were asked for. */
export type FoundRow = NonNullable<ReturnType<StatementSync["get"]>>;

/** The place of a record in the store. */
export interface RecordPlace {
  readonly collection: string;
  readonly key: string;
}

/**
 * Texts of a scope up to which FTS5 looks for the scope itself. It counts all texts of a scope for each ranked search, which costs more
 * than looking at the keys of the records found.
 */
const SMALL_SCOPE_TEXTS = 5_000;

/** The full text of records, in FTS5. A row has the id of its record. */
export class TextIndex {
  readonly #statements: Lazy<ReturnType<typeof prepareTexts>>;

  /** @param columns of `records` that a record found has beside its id; `key` is among them */
  constructor(database: DatabaseSync, columns: string) {
    // Not at the start, which reads and writes no text: FTS5 opens five tables for the first statement
    this.#statements = lazily(() => prepareTexts((text) => database.prepare(text), columns));
  }

  put(id: number | bigint, place: RecordPlace, text: string): void {
    this.#statements().put.run(id, ...toColumns(place, text));
  }

  drop(id: number | bigint): void {
    this.#statements().drop.run(id);
  }

  /** Searches the records of a collection whose keys begin with `prefix` */
  engine(collection: string, prefix: string): TextEngine<FoundRow> {
    const { ranked, newest } = this.#statements();
    const scope = `scope : "${scopeOf(collection, prefix)}"`;
    const find = (texts: Iterable<FoundRow>, limit: number) => this.#withPrefix(texts, { collection, prefix, limit });
    return {
      hasTexts: () => this.#count(scope, 1) > 0,
      count: (term, max) => this.#count(ofTexts([term], "OR"), max),
      ranked: (terms, limit) => {
        const match = ofTexts(terms, "OR");
        const isSmall = this.#count(scope, SMALL_SCOPE_TEXTS + 1) <= SMALL_SCOPE_TEXTS;
        return find(ranked.iterate(isSmall ? `${scope} AND ${match}` : match), limit);
      },
      newest: (terms, how, limit) => {
        const match = ofTexts(terms, how === "all" ? "AND" : "OR");
        return find(newest.iterate(`${scope} AND ${match}`), limit);
      },
      idOf: (row) => Number(row["id"]),
    };
  }

  #count(match: string, max: number): number {
    return Number(this.#statements().count.get(match, max)?.["n"]);
  }

  /** Returns the first records of a collection among these texts whose keys begin with `prefix`. */
  #withPrefix(
    texts: Iterable<FoundRow>,
    { collection, prefix, limit }: { readonly collection: string; readonly prefix: string; readonly limit: number },
  ): readonly FoundRow[] {
    const rows: FoundRow[] = [];
    for (const { id = 0 } of texts) {
      const row = this.#statements().record.get(id, collection);
      if (row !== undefined && String(row["key"]).startsWith(prefix)) rows.push(row);
      if (rows.length >= limit) break;
    }
    return rows;
  }
}

/** Prepares the statements of the index. Texts are found first, and then the records of as many as are wanted. */
function prepareTexts(sql: (text: string) => StatementSync, columns: string) {
  const { words, stems, grams } = COLUMN_WEIGHTS;
  const texts = "SELECT rowid AS id FROM record_texts WHERE record_texts MATCH ?";
  return {
    put: sql("INSERT OR REPLACE INTO record_texts (rowid, scope, words, stems, grams) VALUES (?, ?, ?, ?, ?)"),
    drop: sql("DELETE FROM record_texts WHERE rowid = ?"),
    count: sql("SELECT count(*) AS n FROM (SELECT 1 FROM record_texts WHERE record_texts MATCH ? LIMIT ?)"),
    // The scope says nothing about how well a record matches
    ranked: sql(`${texts} ORDER BY bm25(record_texts, 0.0, ${words}, ${stems}, ${grams}), rowid`),
    newest: sql(`${texts} ORDER BY rowid DESC`),
    record: sql(`SELECT id, ${columns} FROM records WHERE id = ? AND collection = ?`),
  };
}

/** Returns the columns of a text in the index: the scopes of its record, words, stems and grams, each with blanks between them. */
export function toColumns({ collection, key }: RecordPlace, text: string): readonly string[] {
  const { words, stems, grams } = toIndexTerms(text);
  return [scopeWordsOf(collection, key), words, stems, grams].map((column) => column.join(" "));
}

/** Columns of the index for each kind of term. */
const COLUMNS_OF: Readonly<Record<TermColumns, string>> = { words: "words", forms: "{words stems}", grams: "grams" };

/** Terms in quotes are the only syntax of others that reaches FTS5. */
function ofTexts(terms: readonly SearchTerm[], join: "AND" | "OR"): string {
  const phrases = terms.map(({ word, columns }) => `${COLUMNS_OF[columns]} : "${word.replaceAll('"', '""')}"`);
  return `(${phrases.join(` ${join} `)})`;
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
