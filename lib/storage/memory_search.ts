import { type SearchTerm, wordsOf } from "./search_terms.ts";

const K1 = 1.2;
const B = 0.75;

/** A text as a bag of folded words. */
export interface WordBag {
  readonly counts: ReadonlyMap<string, number>;
  readonly total: number;
}

/** Words without case and diacritics, counted. */
export function toWordBag(text: string): WordBag {
  const counts = new Map<string, number>();
  const words = wordsOf(text);
  for (const word of words) counts.set(fold(word), (counts.get(fold(word)) ?? 0) + 1);
  return { counts, total: words.length };
}

/**
 * Ranks texts by BM25, best first, leaving out those without any term; equal ones keep their order.
 * Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009; the same constants as FTS5
 */
export function rankTexts<T extends { readonly words: WordBag }>(
  items: readonly T[],
  terms: readonly SearchTerm[],
): T[] {
  const average = items.reduce((sum, item) => sum + item.words.total, 0) / Math.max(1, items.length);
  const scores = new Map<T, number>();
  for (const term of terms) {
    const found = items.map((item) => [item, occurrences(item.words, term)] as const).filter(([, count]) => count > 0);
    // FTS5 keeps the weight of a word that most texts have just above zero
    const weight = Math.max(1e-6, Math.log((items.length - found.length + 0.5) / (found.length + 0.5)));
    for (const [item, count] of found) {
      const length = 1 - B + (B * item.words.total) / average;
      scores.set(item, (scores.get(item) ?? 0) + (weight * count * (K1 + 1)) / (count + K1 * length));
    }
  }
  return items.filter((item) => scores.has(item)).sort((a, b) => (scores.get(b) ?? 0) - (scores.get(a) ?? 0));
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
