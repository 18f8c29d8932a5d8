import { type SearchTerm, toIndexTerms } from "./index_terms.ts";
import { COLUMN_WEIGHTS, type TextEngine } from "./search_texts.ts";

const K1 = 1.2;
const B = 0.75;

/** A text as counts of its terms by column. */
export interface TermCounts {
  readonly words: ReadonlyMap<string, number>;
  readonly stems: ReadonlySet<string>;
  readonly grams: ReadonlySet<string>;
  readonly total: number;
}

/** Counts the terms of a text. `scopeWords` words make the text longer, as in the index on disk. */
export function countTerms(text: string, scopeWords: number): TermCounts {
  const { words, stems, grams } = toIndexTerms(text);
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  const total = words.length + stems.length + grams.length + scopeWords;
  return { words: counts, stems: new Set(stems), grams: new Set(grams), total };
}

/** A text of the index. */
export interface IndexedText {
  readonly terms: TermCounts;
  /** Order of first insertion */
  readonly order: number;
}

/**
 * Creates the search over texts in memory, by the same rules as the index on disk.
 * @param texts all indexed texts: the weight of a word and of a text's length is measured against all of them
 * @param found texts that the search may find, in order of insertion
 */
export function createTextEngine<T extends IndexedText>(texts: readonly T[], found: readonly T[]): TextEngine<T> {
  return {
    hasTexts: () => found.length > 0,
    count: (term, max) => Math.min(texts.filter((item) => weightedCount(item.terms, term) > 0).length, max),
    ranked: (terms, limit) => rank(texts, found, terms).slice(0, limit),
    newest(terms, how, limit) {
      const has = (item: T) => (term: SearchTerm) => weightedCount(item.terms, term) > 0;
      const matching = found.filter((item) => how === "all" ? terms.every(has(item)) : terms.some(has(item)));
      return matching.reverse().slice(0, limit);
    },
    idOf: (item) => item.order,
  };
}

/**
 * Ranks texts by BM25, best first. Texts without any of the terms are left out. Equal texts keep their order.
 * Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009; the constants and the arithmetic of FTS5
 */
function rank<T extends IndexedText>(texts: readonly T[], found: readonly T[], terms: readonly SearchTerm[]): T[] {
  const average = texts.reduce((sum, item) => sum + item.terms.total, 0) / Math.max(1, texts.length);
  const weights = terms.map((term) => {
    const having = texts.filter((item) => weightedCount(item.terms, term) > 0).length;
    // FTS5 keeps the weight of a word that most texts have just above zero
    const weight = Math.log((texts.length - having + 0.5) / (having + 0.5));
    return { term, weight: weight <= 0 ? 1e-6 : weight };
  });
  const scored = found.flatMap((item) => {
    const length = K1 * (1 - B + (B * item.terms.total) / average);
    let score = 0;
    for (const { term, weight } of weights) {
      const count = weightedCount(item.terms, term);
      score += weight * ((count * (K1 + 1)) / (count + length));
    }
    return score > 0 ? [{ item, score }] : [];
  });
  return scored.sort((a, b) => b.score - a.score).map(({ item }) => item);
}

/** Sums the weights of the places where a text has a term. */
function weightedCount({ words, stems, grams }: TermCounts, { word, columns }: SearchTerm): number {
  const { words: wordWeight, stems: stemWeight, grams: gramWeight } = COLUMN_WEIGHTS;
  switch (columns) {
    case "words":
      return wordWeight * (words.get(word) ?? 0);
    case "forms":
      return wordWeight * (words.get(word) ?? 0) + (stems.has(word) ? stemWeight : 0);
    case "grams":
      return grams.has(word) ? gramWeight : 0;
  }
}
