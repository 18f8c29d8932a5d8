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
  const found = new FoundTexts<T>(limit, engine.idOf);
  for (const { terms, how } of planSearch((term, max) => engine.count(term, max), toSearchQuery(query))) {
    if (found.wanted() === 0) break;
    found.add(how === "ranked" ? engine.ranked(terms, found.wanted()) : engine.newest(terms, how, found.wanted()));
  }
  return found.list();
}

/** Step of a search. `ranked`: texts with any of the terms, best first; `all` and `any`: texts with these terms, newest first. */
export interface SearchStep {
  readonly terms: readonly SearchTerm[];
  readonly how: "ranked" | "all" | "any";
}

/** Counts the texts with a term, of every scope, up to `max`. */
export type CountTexts = (term: SearchTerm, max: number) => number;

/** Most texts that a plan counts for a term. */
export const MAX_COUNTED_TEXTS: number = RARE_TEXTS + 1;

/** Plans the search for a query: the steps are taken in their order until enough texts are found. */
export function planSearch(count: CountTexts, query: SearchQuery): readonly SearchStep[] {
  const { rare, common } = split(count, query);
  const steps: SearchStep[] = [
    { terms: rare, how: "ranked" },
    { terms: common.length > 1 ? common.slice(0, MAX_TOGETHER) : [], how: "all" },
    { terms: common, how: "any" },
    { terms: query.common, how: "any" },
  ];
  return steps.filter(({ terms }) => terms.length > 0);
}

/** The texts that a search has found, each once, in the order in which they were found. */
export class FoundTexts<T> {
  readonly #limit: number;
  readonly #idOf: (item: T) => number;
  readonly #found = new Map<number, T>();

  constructor(limit: number, idOf: (item: T) => number) {
    this.#limit = limit;
    this.#idOf = idOf;
  }

  /** Returns how many texts the next step should give, with those that are found already. 0: there are enough. */
  wanted(): number {
    return this.#found.size >= this.#limit ? 0 : this.#limit + this.#found.size;
  }

  add(items: readonly T[]): void {
    for (const item of items) {
      if (this.#found.size < this.#limit && !this.#found.has(this.#idOf(item))) this.#found.set(this.#idOf(item), item);
    }
  }

  list(): readonly T[] {
    return [...this.#found.values()];
  }
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
function split(countTexts: CountTexts, query: SearchQuery) {
  const words: CountedTerm[] = [];
  const grams: CountedTerm[] = [];
  for (const { exact, forms, grams: parts } of query.words) {
    const count = countTexts(exact, RARE_TEXTS + 1);
    // The forms and parts of a common word are common too
    const isCommon = count > RARE_TEXTS;
    words.push({ term: isCommon ? forms ?? exact : exact, count });
    if (isCommon) continue;
    if (forms !== undefined) words.push({ term: forms, count: countTexts(forms, RARE_TEXTS + 1) });
    for (const term of parts) grams.push({ term, count: countTexts(term, RARE_GRAM_TEXTS + 1) });
  }
  for (const term of query.characters) grams.push({ term, count: countTexts(term, RARE_GRAM_TEXTS + 1) });
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
