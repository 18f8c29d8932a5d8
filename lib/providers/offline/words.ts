const MAX_WORDS = 8;
const MIN_STEM = 3;
/** People write small numbers as words, and texts as digits */
const NUMBERS: ReadonlyMap<string, string> = new Map(
  ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"].map((
    word,
    digit,
  ) => [word, String(digit)]),
);
const COMMON = new Set(
  ("a about after again all also always am an and any anything are as at away back be because been before being but by can " +
    "cannot come could did do does doing done each else every everything explain file files find folder for from get gets give " +
    "given go goes got had happen happened happens has have he her here him his how i if in instead into is it its itself just know let list " +
    "look make makes many may me mean means might mine more most much must my need needs no not of off on once one only or " +
    "other our out over own please put read say says search see she should show so some something still summarize summarise " +
    "take tell than that the their them then there these they thing things this those through to too up upon us use used uses " +
    "using very want wants was way we were what when where which while who whose why will with without work works workspace " +
    "would yes you your yourself").split(" "),
);
const NAMES_THE_FOLDER = /\b(?:this|our|my|your) project\b/i;
/** Endings that leave the same word; the longest first. */
const ENDINGS = [
  "ations",
  "ation",
  "ments",
  "ment",
  "ings",
  "ing",
  "ied",
  "ies",
  "als",
  "al",
  "ers",
  "ed",
  "er",
  "es",
  "ly",
  "s",
];

/**
 * Returns the words of a question worth searching for: in lower case, of two characters or more, without the common words of English,
 * each once, at most eight, in the order in which they stand. The product's own name says where to look and is left out; so does "this
 * project", unless the question is about nothing else.
 */
export function significantWords(question: string): readonly string[] {
  const wanted = wordsOf(question).filter((word) => isWanted(word) && word !== "postern");
  const others = NAMES_THE_FOLDER.test(question) ? wanted.filter((word) => word !== "project") : wanted;
  return [...new Set(others.length > 0 ? others : wanted)].slice(0, MAX_WORDS);
}

/** Returns the stems of every word of a text, in order: "pairing" and "paired" are both "pair". Common words are left out. */
export function stemsOf(text: string): readonly string[] {
  return wordsOf(text).flatMap((word) => (isWanted(word) ? [stemOf(word)] : []));
}

function isWanted(word: string): boolean {
  return (word.length > 1 || /\d/.test(word)) && !COMMON.has(word);
}

/** Returns the beginning that a word shares with its other forms: at least three characters. Of a small number it is the digit. */
export function stemOf(word: string): string {
  const digit = NUMBERS.get(word);
  if (digit !== undefined) return digit;
  const ending = ENDINGS.find((one) => word.endsWith(one) && word.length - one.length >= MIN_STEM);
  // "class" and "bus" are no plurals, "string" and "need" no forms of a verb
  if (ending === undefined || (ending === "s" && /[su]s$/.test(word))) return withoutE(word);
  const stem = word.slice(0, -ending.length);
  if (!/[aeiouy\u00e0-\uffff]/.test(stem)) return withoutE(word);
  if (ending === "ied" || ending === "ies") return `${stem}y`;
  // "running" and "stopped", but "calling"
  return withoutE(/([bdgmnprt])\1$/.test(stem) && /^(ing|ings|ed|er|ers)$/.test(ending) ? stem.slice(0, -1) : stem);
}

function withoutE(stem: string): string {
  return stem.length > MIN_STEM && stem.endsWith("e") ? stem.slice(0, -1) : stem;
}

/** A name like `read_file` is one word and its parts; a number with a point is one. */
function wordsOf(text: string): readonly string[] {
  const words = text.toLowerCase().match(/[\p{L}\p{N}_]+(?:[.-][\p{L}\p{N}_]+)*/gu) ?? [];
  return words.flatMap((
    word,
  ) => (/[_-]/.test(word) ? [word, ...word.split(/[_-]+/).filter((part) => part !== "")] : [word]));
}
