const MAX_WORDS = 8;
const COMMON = new Set(
  ("a about after all also am an and any are as at be because been before but by can could did do does doing every find " +
    "for from get give had has have he her here him his how i if in into is it its just know list look make many me more " +
    "most my no not of on one only or other our out over please say search she should show so some tell than that the " +
    "their them then there these they thing this those to up us use used using want was we were what when where which " +
    "who why will with work would you your file files folder workspace summarize summarise explain mean means read")
    .split(
      " ",
    ),
);

/**
 * The words of a question worth searching for: in lower case, of two characters or more, without the common words of English,
 * each once, at most eight, in the order they stand. A plural's s is left out, since words are looked for by their beginning.
 */
export function significantWords(question: string): readonly string[] {
  const words = question.toLowerCase().match(/[\p{L}\p{N}_]+(?:[.-][\p{L}\p{N}_]+)*/gu) ?? [];
  const wanted = words.map(singular).filter((word) => word.length > 1 && !COMMON.has(word));
  return [...new Set(wanted)].slice(0, MAX_WORDS);
}

function singular(word: string): string {
  return word.length > 4 && /[^s]s$/.test(word) ? word.slice(0, -1) : word;
}
