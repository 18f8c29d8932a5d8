const MAX_TERMS = 32;
const MAX_TERM_CHARACTERS = 64;
const PREFIX_FROM_CHARACTERS = 3;

/** One word to look for. `prefix`: it also finds the words that begin with it. */
export interface SearchTerm {
  readonly word: string;
  readonly prefix: boolean;
}

/**
 * The words of a query or a text: runs of letters, digits and combining marks. Everything else separates them, so no query
 * can reach the syntax of a search engine.
 */
export function wordsOf(text: string): readonly string[] {
  return text.toWellFormed().match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];
}

/** The terms of a query: its first 32 different words, of which any may match; those of three characters on match as prefixes. */
export function searchTerms(query: string): readonly SearchTerm[] {
  const words = new Set(wordsOf(query).map((word) => word.toLowerCase().slice(0, MAX_TERM_CHARACTERS).toWellFormed()));
  return [...words].slice(0, MAX_TERMS).map((word) => ({ word, prefix: word.length >= PREFIX_FROM_CHARACTERS }));
}
