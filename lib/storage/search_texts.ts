import { Buffer } from "node:buffer";

const MAX_QUERY_CHARACTERS = 8192;
const MAX_TERMS = 12;
const MAX_TERM_CHARACTERS = 64;
const PREFIX_FROM_CHARACTERS = 3;
/** Gathering all words with one beginning costs more than the word itself, and long words have fewer of them. */
const MAX_PREFIX_TERMS = 4;

/** A word to look for. With `prefix`, the words that begin with it are found too. */
export interface SearchTerm {
  readonly word: string;
  readonly prefix: boolean;
}

/**
 * Splits a query or a text into words: runs of letters, digits and combining marks. Everything else separates them, so no query
 * can reach the syntax of a search engine.
 */
export function wordsOf(text: string): readonly string[] {
  return text.toWellFormed().match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];
}

/**
 * Returns the terms of a query: the first 12 different words of its first 8,192 characters, of which any may match. The four longest,
 * where they have three characters or more, match as prefixes.
 */
export function searchTerms(query: string): readonly SearchTerm[] {
  const found = wordsOf(query.slice(0, MAX_QUERY_CHARACTERS)).map((word) =>
    word.toLowerCase().slice(0, MAX_TERM_CHARACTERS).toWellFormed()
  );
  const words = [...new Set(found)].slice(0, MAX_TERMS);
  const longest = words.filter((word) => word.length >= PREFIX_FROM_CHARACTERS)
    .sort((a, b) => b.length - a.length).slice(0, MAX_PREFIX_TERMS);
  return words.map((word) => ({ word, prefix: longest.includes(word) }));
}

/** Scope of a search: the records that it looks at, as a word of the index. */
export interface TextScope {
  readonly word: string;
  /** True when the word stands for the whole prefix. When false, keys have to be compared too */
  readonly whole: boolean;
}

/** Returns the scopes of a record as words: its collection, and the part of its key up to the first slash. */
export function scopeWordsOf(collection: string, key: string): readonly string[] {
  const end = key.indexOf("/") + 1;
  return end === 0 ? [collectionWord(collection)] : [collectionWord(collection), prefixWord(collection, key, end)];
}

/** Returns the narrowest scope that holds every key with this prefix. */
export function scopeOf(collection: string, prefix: string): TextScope {
  const end = prefix.indexOf("/") + 1;
  return end === 0
    ? { word: collectionWord(collection), whole: prefix === "" }
    : { word: prefixWord(collection, prefix, end), whole: end === prefix.length };
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
  /** Counts the texts with this term, in the scope or in all, up to `max` */
  count(term: SearchTerm, options: { readonly where: "scope" | "all"; readonly max: number }): number;
  /** Returns texts with any of the terms, best first by BM25 */
  ranked(terms: readonly SearchTerm[], limit: number): readonly T[];
  /** Returns texts with all or any of the terms, last inserted first */
  newest(terms: readonly SearchTerm[], how: "all" | "any", limit: number): readonly T[];
  idOf(item: T): number;
}

/** Texts up to which a term is rare. A more frequent term says little about any text, and ranking by it costs the most. */
const RARE_TEXTS = 4_000;
/** Texts that one search ranks, at about the most. */
const RANKED_TEXTS = 8_000;
/** Texts that are enough. A word in so many texts need not find longer words: no search returns more. */
const ENOUGH_TEXTS = 1_000;
/** Common words that are looked for together. More words are together in so few texts that the search takes long. */
const MAX_TOGETHER = 8;

/**
 * Finds the texts with any word of a query, best first. The time hardly grows with the number of texts.
 *
 * Texts with a rare word come first, by BM25. While there is room, texts with the common words together follow, then texts with any
 * of them, the newest first. Below some thousand texts every word is rare, and BM25 alone gives the order.
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

/** Splits terms into rare and common ones. A term that is in no text is in neither. */
function split(engine: TextEngine<unknown>, terms: readonly SearchTerm[], limit: number) {
  const rare: SearchTerm[] = [];
  const common: SearchTerm[] = [];
  let texts = 0;
  const counted = terms.map(({ word, prefix }) => {
    const itself = { word, prefix: false };
    const found = prefix ? engine.count(itself, { where: "scope", max: ENOUGH_TEXTS }) : 0;
    const term = found >= ENOUGH_TEXTS ? itself : { word, prefix };
    // When enough texts have the word itself, the newest of them are enough
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
