const MAX_QUERY_CHARACTERS = 8192;
const MAX_TERMS = 12;
const MAX_TERM_CHARACTERS = 64;
const PREFIX_FROM_CHARACTERS = 3;
/** Gathering all words with one beginning costs more than the word itself, and long words have fewer of them. */
const MAX_PREFIX_TERMS = 4;

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

/**
 * The terms of a query: the first 12 different words of its first 8,192 characters, of which any may match. The four longest,
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
