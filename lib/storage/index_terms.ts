import { isAscii } from "../base/text.ts";
import { lazily } from "../base/lazily.ts";
import { isCommonWord, stemWord } from "./word_forms.ts";

/**
 * Terms of the search index: the pieces of a text that a search can find it by. A text is split when it is written, a query when it is
 * asked, both by these functions, whatever the driver.
 *
 * The result is the same on every runtime of one Unicode version: case, composition and scripts come from the regular expressions and
 * strings of the runtime, never from `Intl`, whose dictionaries change. Characters that a later version of Unicode adds are found once
 * their text is written again.
 */

/** Terms of a text, by the column of the index that they stand in. */
export interface IndexTerms {
  /** Words, and pairs of neighbouring characters of scripts without spaces, in their order */
  readonly words: readonly string[];
  /** Stems that differ from their word, each once */
  readonly stems: readonly string[];
  /** Pieces of long words, and single characters of scripts without spaces, each once */
  readonly grams: readonly string[];
}

/** Columns of the index that a term of a query is looked for in. `forms`: words and stems. */
export type TermColumns = "words" | "forms" | "grams";

/** A term of a query. */
export interface SearchTerm {
  readonly word: string;
  readonly columns: TermColumns;
}

/** A word of a query, or a pair of characters, as the terms that it is found by. Each finds every text that the one before it finds. */
export interface SearchWord {
  readonly exact: SearchTerm;
  /** All forms of the word */
  readonly forms: SearchTerm | undefined;
  /** Parts of words that are also parts of this one */
  readonly grams: readonly SearchTerm[];
}

/** A query in terms. */
export interface SearchQuery {
  readonly words: readonly SearchWord[];
  /** Single characters of scripts without spaces */
  readonly characters: readonly SearchTerm[];
  /** Words that most texts of their language have, beside words that say more */
  readonly common: readonly SearchTerm[];
}

/**
 * Bounds of the terms of one text. A value of 64 KiB has at most 32,768 words, all of which are indexed. A whole memory has at most 67,100
 * characters. Those of a longer text, which only damage can make, are not looked at: a run of millions is too long for a pattern.
 */
export const INDEX_LIMITS = { characters: 70_000, words: 34_000, stems: 16_000, grams: 16_000 } as const;

const MAX_TERM_CHARACTERS = 64;
/** Characters of a part of a word. Parts of three are in too many words to tell texts apart. */
const GRAM_CHARACTERS = 4;
/** Characters of the beginning of a word. */
const BEGINNING_CHARACTERS = 3;
/** Begins every gram, so that no word is one. No word has this character. */
const GRAM_MARK = "\u00b7";

/** Shorter words have no forms. */
const MIN_STEM_CHARACTERS = 3;

const MAX_QUERY_CHARACTERS = 8192;
const MAX_QUERY_WORDS = 12;
const MAX_QUERY_PAIRS = 16;
const MAX_QUERY_GRAMS = 16;
const MAX_QUERY_SINGLE_CHARACTERS = 8;
/** Words of a query that are looked for by their parts: the longest ones */
const MAX_GRAM_WORDS = 4;

/** Returns the terms of a text for the index. */
export function toIndexTerms(text: string): IndexTerms {
  const words: string[] = [];
  const stems = new Set<string>();
  const grams = new Set<string>();
  for (const { kind, text: piece } of piecesOf(text.slice(0, INDEX_LIMITS.characters))) {
    if (words.length >= INDEX_LIMITS.words) break;
    if (kind === "spaceless") {
      const characters = [...piece];
      for (const pair of pairsOf(characters)) words.push(pair);
      for (const character of characters) addBounded(grams, GRAM_MARK + character, INDEX_LIMITS.grams);
      continue;
    }
    words.push(piece);
    const stem = stemWord(piece);
    if (stem !== piece) addBounded(stems, stem, INDEX_LIMITS.stems);
    for (const gram of gramsOf(piece)) addBounded(grams, gram, INDEX_LIMITS.grams);
  }
  return { words: words.slice(0, INDEX_LIMITS.words), stems: [...stems], grams: [...grams] };
}

/**
 * Returns the terms of a query: the first 12 different words of its first 8,192 characters, the four longest with 16 grams, and the first
 * 16 pairs and 8 single characters of scripts without spaces. Common words stand apart from words that say more.
 */
export function toSearchQuery(query: string): SearchQuery {
  const { words, pairs, characters, common } = queryPieces(query);
  const longest = words.toSorted((a, b) => b.length - a.length).slice(0, MAX_GRAM_WORDS);
  const toWord = (word: string): SearchWord => {
    const stem = stemWord(word);
    const grams = longest.includes(word) ? sampled(queryGramsOf(word), MAX_QUERY_GRAMS / longest.length) : [];
    return {
      exact: { word, columns: "words" },
      forms: stem.length >= MIN_STEM_CHARACTERS ? { word: stem, columns: "forms" } : undefined,
      grams: grams.map((gram) => ({ word: gram, columns: "grams" })),
    };
  };
  return {
    words: [
      ...words.map(toWord),
      ...pairs.map((word): SearchWord => ({ exact: { word, columns: "words" }, forms: undefined, grams: [] })),
    ],
    characters: characters.map((character) => ({ word: GRAM_MARK + character, columns: "grams" })),
    common: common.map((word) => ({ word, columns: "words" })),
  };
}

/** Splits a query into its words, its pairs of characters and its single characters that say something alone, each once. */
function queryPieces(query: string) {
  const pieces = piecesOf(query.slice(0, MAX_QUERY_CHARACTERS));
  const words = [...new Set(pieces.filter(({ kind }) => kind === "word").map(({ text }) => text))];
  const runs = pieces.filter(({ kind }) => kind === "spaceless").map(({ text }) => [...text]);
  const pairs = [...new Set(runs.flatMap(pairsOf))];
  const characters = runs.flatMap((run) => run.filter((character) => run.length === 1 || HAN.test(character)));
  const tellingPairs = pairs.filter((pair) => !HIRAGANA.test(pair));
  const tellingWords = words.filter((word) => !isCommonWord(word));
  const saysMore = tellingWords.length + tellingPairs.length > 0;
  return {
    words: (saysMore ? tellingWords : words).slice(0, MAX_QUERY_WORDS),
    pairs: (saysMore ? tellingPairs : pairs).slice(0, MAX_QUERY_PAIRS),
    characters: [...new Set(characters)].slice(0, MAX_QUERY_SINGLE_CHARACTERS),
    common: saysMore ? words.filter(isCommonWord).slice(0, MAX_QUERY_WORDS) : [],
  };
}

interface Piece {
  readonly kind: "word" | "spaceless";
  readonly text: string;
}

/** Characters of words. */
const WORD = String.raw`[\p{L}\p{N}\p{M}]`;
/** Scripts that put no spaces between words. Hangul puts them between phrases, whose endings change. */
const SPACELESS = String
  .raw`[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\p{scx=Bopo}\p{sc=Hang}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]`;
/** A run of such a script, a word of another one, or a symbol. Slow to make, as all classes of Unicode. */
const PIECES = lazily(() =>
  new RegExp(`([${SPACELESS}&&${WORD}]+)|[${WORD}--${SPACELESS}]+|\\p{Extended_Pictographic}`, "gv")
);
const HIRAGANA = /^\p{sc=Hira}+$/u;
const HAN = /^\p{sc=Hani}$/u;

/** Splits a text into its pieces, folded. Everything else separates them, so no query can reach the syntax of a search engine. */
function piecesOf(text: string): readonly Piece[] {
  const pieces: Piece[] = [];
  for (const [piece, spaceless] of fold(text).matchAll(PIECES())) {
    if (spaceless !== undefined) pieces.push({ kind: "spaceless", text: piece });
    else pieces.push({ kind: "word", text: piece.slice(0, MAX_TERM_CHARACTERS).toWellFormed() });
  }
  return pieces;
}

/** Accents and other marks on letters. Vowel signs, as those of Thai and Devanagari, and the marks of kana are parts of the letter. */
const MARKS =
  /[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f]/g;
const LETTERS: Readonly<Record<string, string>> = {
  "ß": "ss",
  "ς": "σ",
  "ø": "o",
  "ł": "l",
  "đ": "d",
  "æ": "ae",
  "œ": "oe",
};

/** Folds width, case and accents: "ＦＵẞ", "Fuß" and "fuss" are one. */
function fold(text: string): string {
  if (isAscii(text)) return text.toLowerCase();
  return text.toWellFormed().normalize("NFKC").toUpperCase().toLowerCase().normalize("NFKD").replace(MARKS, "")
    .normalize("NFC").replace(/[ßςøłđæœ]/g, (letter) => LETTERS[letter] ?? letter);
}

function pairsOf(characters: readonly string[]): readonly string[] {
  return characters.slice(1).map((character, index) => `${characters[index]}${character}`);
}

/** Returns the grams of a word that is indexed: its beginning, and its parts unless it is a part itself. */
function gramsOf(word: string): readonly string[] {
  if (word.length <= BEGINNING_CHARACTERS || SURROGATE.test(word)) return [];
  const beginning = GRAM_MARK + word.slice(0, BEGINNING_CHARACTERS);
  return word.length > GRAM_CHARACTERS ? [beginning, ...partsOf(word)] : [beginning];
}

/** Returns the grams that find words with this beginning, or with a part of this word. */
function queryGramsOf(word: string): readonly string[] {
  if (SURROGATE.test(word)) return [];
  return word.length === BEGINNING_CHARACTERS ? [GRAM_MARK + word] : partsOf(word);
}

/** Half of a character of two code units. A word with such characters, as Gothic has them, has no parts. */
const SURROGATE = /[\ud800-\udfff]/;

function partsOf(word: string): readonly string[] {
  const parts: string[] = [];
  for (let end = GRAM_CHARACTERS; end <= word.length; end++) {
    parts.push(GRAM_MARK + word.slice(end - GRAM_CHARACTERS, end));
  }
  return parts;
}

/** Returns at most `count` items, the first and the last and evenly those between. */
function sampled<T>(items: readonly T[], count: number): readonly T[] {
  if (items.length <= count) return items;
  const step = (items.length - 1) / Math.max(1, Math.floor(count) - 1);
  return items.filter((_, index) => Math.floor(index / step) !== Math.floor((index - 1) / step));
}

function addBounded(set: Set<string>, item: string, max: number): void {
  if (set.size < max) set.add(item);
}
