import { createHash } from "node:crypto";
import { type SearchTerm, type TermColumns, toIndexTerms, toSearchQuery } from "../index_terms.ts";
import {
  COLUMN_WEIGHTS,
  FoundTexts,
  MAX_COUNTED_TEXTS,
  planSearch,
  scopeOf,
  scopeWordsOf,
  type SearchStep,
} from "../search_texts.ts";
import type { Stored, TextSearch } from "../store.ts";
import type { PostgresRow, PostgresSession } from "./postgres_session.ts";
import { Conditions, toStoredList } from "./record_queries.ts";
import { type PostgresValue, quoteName } from "./statement_text.ts";

/** A text as the table `record_texts` keeps it. */
export interface TextRow {
  /** Each term once: its scopes, words, stems and grams, with the letter of their kind before them */
  readonly terms: readonly string[];
  /** Words that the text has more than once, with their number */
  readonly repeats: Readonly<Record<string, number>>;
  /** Length of the text in terms */
  readonly total: number;
}

/** Letters before the terms of each kind, so that a word never counts as a stem. */
const KINDS = { scope: "c", word: "w", stem: "s", gram: "g" } as const;
/** A longer scope is kept as its digest, so that the entry of the index has room. Characters */
const MAX_SCOPE_LENGTH = 200;
/** Constants of BM25, as those of the other drivers */
const K1 = 1.2;
const B = 0.75;

/** Returns the row of a text. */
export function toTextRow(text: string, place: { readonly collection: string; readonly key: string }): TextRow {
  const { words, stems, grams } = toIndexTerms(text);
  const scopes = scopeWordsOf(place.collection, place.key);
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return {
    terms: [
      ...scopes.map(scopeTerm),
      ...[...counts.keys()].map((word) => KINDS.word + word),
      ...stems.map((stem) => KINDS.stem + stem),
      ...grams.map((gram) => KINDS.gram + gram),
    ],
    repeats: Object.fromEntries([...counts].filter(([, count]) => count > 1)),
    total: words.length + stems.length + grams.length + scopes.length,
  };
}

/** The full text of records: the terms of index_terms.ts in an array with a GIN index, ranked by BM25 in SQL. */
export class TextQueries {
  readonly #session: PostgresSession;
  readonly #schema: string;

  constructor(session: PostgresSession, schema: string) {
    this.#session = session;
    this.#schema = quoteName(schema);
  }

  /** Searches as `searchTexts` does: one statement counts the terms, and each step of the plan is one more, until enough is found. */
  async search(collection: string, { query, prefix = "", limit }: TextSearch): Promise<readonly Stored[]> {
    const terms = toSearchQuery(query);
    const all = terms.words.flatMap((
      { exact, forms, grams },
    ) => [exact, ...forms === undefined ? [] : [forms], ...grams]);
    const counts = await this.#counts([...all, ...terms.characters]);
    const count = (term: SearchTerm, max: number) => Math.min(counts.get(nameOf(term)) ?? 0, max);
    const found = new FoundTexts<PostgresRow>(limit, (row) => Number(row["id"]));
    for (const step of planSearch(count, terms)) {
      if (found.wanted() === 0) break;
      const place = { collection, prefix, limit: found.wanted() };
      found.add(await (step.how === "ranked" ? this.#ranked(step, place, count) : this.#newest(step, place)));
    }
    return toStoredList(found.list());
  }

  async #counts(terms: readonly SearchTerm[]): Promise<ReadonlyMap<string, number>> {
    const named = [...new Map(terms.map((term) => [nameOf(term), term]))];
    if (named.length === 0) return new Map();
    const rows = await this.#session.query(
      named.map((_, index) =>
        `SELECT ${index} AS place, count(*) AS n FROM (SELECT FROM ${this.#schema}.record_texts
         WHERE terms && $${index + 1}::text[] LIMIT ${MAX_COUNTED_TEXTS}) t`
      ).join(" UNION ALL "),
      named.map(([, term]) => entriesOf(term)),
    );
    return new Map(rows.map((row) => [named[Number(row["place"])]?.[0] ?? "", Number(row["n"])]));
  }

  /** Ranks texts by BM25. Of equal texts the older one comes first. */
  async #ranked(
    { terms }: SearchStep,
    place: Place,
    count: (term: SearchTerm, max: number) => number,
  ): Promise<readonly PostgresRow[]> {
    const values: PostgresValue[] = [[scopeTerm(scopeOf(place.collection, place.prefix))]];
    const add = (value: PostgresValue) => `$${values.push(value)}`;
    const hits = terms.map((term) => {
      const word = add(term.word);
      const repeats = `${COLUMN_WEIGHTS.words} * coalesce((t.repeats->>${word})::float8, 1)`;
      const weights: Readonly<Record<TermColumns, string>> = {
        words: repeats,
        forms: `CASE WHEN t.terms @> ${add([KINDS.word + term.word])}::text[] THEN ${repeats} ELSE 0 END +
          CASE WHEN t.terms @> ${add([KINDS.stem + term.word])}::text[] THEN ${COLUMN_WEIGHTS.stems} ELSE 0 END`,
        grams: String(COLUMN_WEIGHTS.grams),
      };
      return `SELECT t.record_id, t.total, (${weights[term.columns]})::float8 AS f, ${
        count(term, MAX_COUNTED_TEXTS)
      }::float8 AS having_it FROM ${this.#schema}.record_texts t WHERE t.terms @> $1::text[] AND t.terms && ${
        add(entriesOf(term))
      }::text[]`;
    });
    const conditions = new Conditions();
    conditions.values.push(...values);
    conditions.add("r.collection = ?", place.collection);
    conditions.addPrefix(place.prefix, "r.key");
    return await this.#session.query(
      `WITH totals AS (SELECT count(*)::float8 AS n, greatest(avg(total), 1)::float8 AS average FROM ${this.#schema}.record_texts),
       scores AS (
         SELECT h.record_id, sum(
           greatest(ln((a.n - h.having_it + 0.5) / (h.having_it + 0.5)), 1e-6) *
           (h.f * ${K1 + 1}) / (h.f + ${K1} * (${1 - B} + ${B} * h.total / a.average))
         ) AS score FROM (${hits.join(" UNION ALL ")}) h, totals a GROUP BY h.record_id
       )
       SELECT r.id, r.key, r.version, r.body FROM scores s JOIN ${this.#schema}.records r ON r.id = s.record_id
       WHERE ${conditions.text()} ORDER BY s.score DESC, r.id LIMIT ${place.limit}`,
      conditions.values,
    );
  }

  async #newest({ terms, how }: SearchStep, { collection, prefix, limit }: Place): Promise<readonly PostgresRow[]> {
    const conditions = new Conditions();
    conditions.add("t.terms @> ?::text[]", [scopeTerm(scopeOf(collection, prefix))]);
    const wanted = how === "all" ? terms.map(entriesOf) : [terms.flatMap(entriesOf)];
    for (const entries of wanted) conditions.add("t.terms && ?::text[]", entries);
    conditions.add("r.collection = ?", collection);
    conditions.addPrefix(prefix, "r.key");
    return await this.#session.query(
      `SELECT r.id, r.key, r.version, r.body FROM ${this.#schema}.record_texts t
       JOIN ${this.#schema}.records r ON r.id = t.record_id
       WHERE ${conditions.text()} ORDER BY t.record_id DESC LIMIT ${limit}`,
      conditions.values,
    );
  }
}

/** Where a search looks, and how many texts it wants. */
interface Place {
  readonly collection: string;
  readonly prefix: string;
  readonly limit: number;
}

function nameOf({ word, columns }: SearchTerm): string {
  return `${columns} ${word}`;
}

/** Returns the entries of the index by which a term finds texts. */
function entriesOf({ word, columns }: SearchTerm): readonly string[] {
  switch (columns) {
    case "words":
      return [KINDS.word + word];
    case "forms":
      return [KINDS.word + word, KINDS.stem + word];
    case "grams":
      return [KINDS.gram + word];
  }
}

function scopeTerm(scope: string): string {
  return KINDS.scope + (scope.length <= MAX_SCOPE_LENGTH ? scope : createHash("sha256").update(scope).digest("hex"));
}
