import { type SearchTerm, searchTerms } from "./search_terms.ts";

/** What a driver does for a search, in the scope of that search. */
export interface TextEngine<T> {
  /** Whether the scope has any text */
  hasTexts(): boolean;
  /** Texts with this term, in the scope or in all, counted no further than `max` */
  count(term: SearchTerm, options: { readonly where: "scope" | "all"; readonly max: number }): number;
  /** Texts with any of the terms, best first by BM25 */
  ranked(terms: readonly SearchTerm[], limit: number): readonly T[];
  /** Texts with all or any of the terms, last inserted first */
  newest(terms: readonly SearchTerm[], how: "all" | "any", limit: number): readonly T[];
  idOf(item: T): number;
}

/** A term in more texts than this says little about any of them, and ranking by it costs the most. */
const RARE_TEXTS = 4_000;
/** Texts that one search ranks, about. */
const RANKED_TEXTS = 8_000;
/** A word found this often need not find those that begin with it: no search gives more. */
const ENOUGH_TEXTS = 1_000;
/** Common words that one text should have together; more of them are in so few that looking for it is long. */
const MAX_TOGETHER = 8;

/**
 * Finds the texts with any word of a query, best first, in a time that the number of texts hardly decides: those with a rare
 * word by BM25; after them, while there is room, those with the common words together, then with any of them, the newest first.
 * Below some thousand texts every word is rare, and BM25 alone gives the order.
 */
export function searchTexts<T>(engine: TextEngine<T>, query: string, limit: number): readonly T[] {
  if (!engine.hasTexts()) return [];
  const { rare, common } = split(engine, searchTerms(query), limit);
  const found = new Map<number, T>();
  const add = (items: readonly T[]) => {
    for (const item of items) {
      if (found.size < limit && !found.has(engine.idOf(item))) found.set(engine.idOf(item), item);
    }
  };
  if (rare.length > 0) add(engine.ranked(rare, limit));
  if (common.length > 1 && found.size < limit) {
    add(engine.newest(common.slice(0, MAX_TOGETHER), "all", limit + found.size));
  }
  if (common.length > 0 && found.size < limit) add(engine.newest(common, "any", limit + found.size));
  return [...found.values()];
}

/** Terms that are in no text are in neither. */
function split(engine: TextEngine<unknown>, terms: readonly SearchTerm[], limit: number) {
  const rare: SearchTerm[] = [];
  const common: SearchTerm[] = [];
  let texts = 0;
  const counted = terms.map(({ word, prefix }) => {
    const itself = { word, prefix: false };
    const found = prefix ? engine.count(itself, { where: "scope", max: ENOUGH_TEXTS }) : 0;
    const term = found >= ENOUGH_TEXTS ? itself : { word, prefix };
    // The newest of those with the word itself are enough, where they are
    const plain = found >= limit ? itself : term;
    return { term, plain, count: engine.count(term, { where: "all", max: RARE_TEXTS + 1 }) };
  });
  for (const { term, plain, count } of counted.filter(({ count }) => count > 0).sort((a, b) => a.count - b.count)) {
    if (count <= RARE_TEXTS && texts + count <= RANKED_TEXTS) rare.push(term);
    else common.push(plain);
    texts += count;
  }
  return { rare, common };
}
