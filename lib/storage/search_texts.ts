import { Buffer } from "node:buffer";
import { type SearchQuery, type SearchTerm, toSearchQuery } from "./index_terms.ts";

/** Returns the scopes of a record as words: its collection, and the part of its key up to the first slash. */
export function scopeWordsOf(collection: string, key: string): readonly string[] {
  const end = key.indexOf("/") + 1;
  return end === 0 ? [collectionWord(collection)] : [collectionWord(collection), prefixWord(collection, key, end)];
}

/** Returns the word of the narrowest scope that holds every key with this prefix. */
export function scopeOf(collection: string, prefix: string): string {
  const end = prefix.indexOf("/") + 1;
  return end === 0 ? collectionWord(collection) : prefixWord(collection, prefix, end);
}

function collectionWord(collection: string): string {
  return `c${hex(collection)}`;
}

/** Returns the word of a collection and a first part of a key. "z" is no hexadecimal digit, so two different pairs make different words. */
function prefixWord(collection: string, key: string, end: number): string {
  return `${collectionWord(collection)}z${hex(key.slice(0, end))}`;
}

function hex(text: string): string {
  return Buffer.from(text).toString("hex");
}

/** A driver's part of a search, in the scope of that search. */
export interface TextEngine<T> {
  /** Returns whether the scope has any text */
  hasTexts(): boolean;
  /** Counts the texts with this term, of every scope, up to `max` */
  count(term: SearchTerm, max: number): number;
  /** Returns texts with any of the terms, best first by BM25 */
  ranked(terms: readonly SearchTerm[], limit: number): readonly T[];
  /** Returns texts with all or any of the terms, last inserted first */
  newest(terms: readonly SearchTerm[], how: "all" | "any", limit: number): readonly T[];
  idOf(item: T): number;
}

/** Weights of a match in each column of the index. Powers of two, so that their sums are the same in any order. */
export const COLUMN_WEIGHTS = { words: 1, stems: 0.5, grams: 0.25 } as const;

/** Texts up to which a term is rare. A more frequent term says little about any text, and ranking by it costs the most. */
const RARE_TEXTS = 2_000;
/** Texts up to which a gram is rare. */
const RARE_GRAM_TEXTS = 1_000;
/** Texts that one search ranks, at about the most. */
const RANKED_TEXTS = 3_000;
/** Common words that are looked for together. More words are together in so few texts that the search takes long. */
const MAX_TOGETHER = 8;

/**
 * Finds the texts with any term of a query, best first. The time hardly grows with the number of texts.
 *
 * Texts with a rare term come first, by BM25 over words, stems and grams. While there is room, texts with the common words together
 * follow, then texts with any of them, the newest first, and at last texts with words like "the". Below some thousand texts every word is rare, and BM25 alone gives the order.
 */
export function searchTexts<T>(engine: TextEngine<T>, query: string, limit: number): readonly T[] {
  if (!engine.hasTexts()) return [];
  const terms = toSearchQuery(query);
  const { rare, common } = split(engine, terms);
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
  for (const any of [common, terms.common]) {
    if (any.length > 0 && found.size < limit) add(engine.newest(any, "any", limit + found.size));
  }
  return [...found.values()];
}

/** A term with the number of texts that have it. */
interface CountedTerm {
  readonly term: SearchTerm;
  readonly count: number;
}

/**
 * Splits the terms of a query into rare and common ones. A term that is in no text is in neither. Common grams are left out, since they
 * say little, unless the query finds nothing else.
 */
function split(engine: TextEngine<unknown>, query: SearchQuery) {
  const words: CountedTerm[] = [];
  const grams: CountedTerm[] = [];
  for (const { exact, forms, grams: parts } of query.words) {
    const count = engine.count(exact, RARE_TEXTS + 1);
    // The forms and parts of a common word are common too
    const isCommon = count > RARE_TEXTS;
    words.push({ term: isCommon ? forms ?? exact : exact, count });
    if (isCommon) continue;
    if (forms !== undefined) words.push({ term: forms, count: engine.count(forms, RARE_TEXTS + 1) });
    for (const term of parts) grams.push({ term, count: engine.count(term, RARE_GRAM_TEXTS + 1) });
  }
  for (const term of query.characters) grams.push({ term, count: engine.count(term, RARE_GRAM_TEXTS + 1) });
  let room = RANKED_TEXTS;
  const divide = (terms: readonly CountedTerm[], max: number) => {
    const rare: SearchTerm[] = [];
    const common: SearchTerm[] = [];
    for (const { term, count } of terms.filter(({ count }) => count > 0).sort((a, b) => a.count - b.count)) {
      const isRare = count <= max && count <= room;
      (isRare ? rare : common).push(term);
      if (isRare) room -= count;
    }
    return { rare, common };
  };
  const [byWord, byGram] = [divide(words, RARE_TEXTS), divide(grams, RARE_GRAM_TEXTS)];
  const rare = [...byWord.rare, ...byGram.rare];
  return { rare, common: rare.length + byWord.common.length > 0 ? byWord.common : byGram.common };
}
