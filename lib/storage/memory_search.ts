import { type SearchTerm, type TextEngine, wordsOf } from "./search_texts.ts";

const K1 = 1.2;
const B = 0.75;

/** A text as a count of its folded words. */
export interface WordBag {
  readonly counts: ReadonlyMap<string, number>;
  readonly total: number;
}

/** Counts the words of a text without case and diacritics. `scopeWords` words make the text longer, as in the index on disk. */
export function toWordBag(text: string, scopeWords: number): WordBag {
  const counts = new Map<string, number>();
  const words = wordsOf(text);
  for (const word of words) counts.set(fold(word), (counts.get(fold(word)) ?? 0) + 1);
  return { counts, total: words.length + scopeWords };
}

/** A text of the index. */
export interface IndexedText {
  readonly words: WordBag;
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
    count(term, { where, max }) {
      const having = (where === "all" ? texts : found).filter((item) => occurrences(item.words, term) > 0);
      return Math.min(having.length, max);
    },
    ranked: (terms, limit) => rank(texts, found, terms).slice(0, limit),
    newest(terms, how, limit) {
      const has = (item: T) => (term: SearchTerm) => occurrences(item.words, term) > 0;
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
  const average = texts.reduce((sum, item) => sum + item.words.total, 0) / Math.max(1, texts.length);
  const weights = terms.map((term) => {
    const having = texts.filter((item) => occurrences(item.words, term) > 0).length;
    // FTS5 keeps the weight of a word that most texts have just above zero
    const weight = Math.log((texts.length - having + 0.5) / (having + 0.5));
    return { term, weight: weight <= 0 ? 1e-6 : weight };
  });
  const scored = found.flatMap((item) => {
    const length = K1 * (1 - B + (B * item.words.total) / average);
    let score = 0;
    for (const { term, weight } of weights) {
      const count = occurrences(item.words, term);
      score += weight * ((count * (K1 + 1)) / (count + length));
    }
    return score > 0 ? [{ item, score }] : [];
  });
  return scored.sort((a, b) => b.score - a.score).map(({ item }) => item);
}

function occurrences(bag: WordBag, term: SearchTerm): number {
  const folded = fold(term.word);
  if (!term.prefix) return bag.counts.get(folded) ?? 0;
  let sum = 0;
  for (const [word, count] of bag.counts) if (word.startsWith(folded)) sum += count;
  return sum;
}

function fold(word: string): string {
  return word.normalize("NFD").replace(/\p{M}+/gu, "").toLowerCase();
}
