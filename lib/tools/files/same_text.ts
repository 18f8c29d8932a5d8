/** Characters that end a line. */
export type LineEnding = "\n" | "\r\n";

/** Text in composed characters (NFC) and with line feeds alone, which knows its places in the text that it was made from. */
export interface FoldedText {
  readonly text: string;
  /** Returns the index in the original text. undefined inside of what was one character or line end there, and is several here */
  at(index: number): number | undefined;
}

/** Parts of a text that a reader takes for one character: a line end, or a character with its marks. Each composes by itself */
const PART = /\r\n|[^][\p{M}\u1160-\u11ff]*/gu;
/** Parts among them that may have another form */
const FOLDABLE = /\r\n|[^][\p{M}\u1160-\u11ff]+|[^\0-\x7f]/gu;
/** Places of a table that finds what two lines share: 200 characters each */
const MAX_TABLE = 40_000;

/** Folds a text. Takes linear time. */
export function foldText(original: string): FoldedText {
  /** Parts that changed: where each begins and ends in the original, and in the folded text */
  const changes: { readonly from: number; readonly to: number; readonly start: number; readonly end: number }[] = [];
  let shift = 0;
  const text = original.replace(FOLDABLE, (part, from: number) => {
    const folded = part === "\r\n" ? "\n" : part.normalize("NFC");
    if (folded === part) return part;
    const start = from + shift;
    shift += folded.length - part.length;
    changes.push({ from, to: from + part.length, start, end: start + folded.length });
    return folded;
  });
  return {
    text,
    at(index) {
      let [low, high] = [0, changes.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if ((changes[middle]?.start ?? Infinity) <= index) low = middle + 1;
        else high = middle;
      }
      const change = changes[low - 1];
      if (change === undefined) return index;
      if (index === change.start) return change.from;
      return index < change.end ? undefined : index - change.end + change.to;
    },
  };
}

/** Texts for keepOwn. */
export interface OwnText {
  /** Text of the file */
  readonly own: string;
  /** Text that was given for it: the same but for code points, line ends, and typographic quotes, dashes and blanks */
  readonly old: string;
  /** Ending of new lines behind none of the file's. undefined: as they are */
  readonly ending?: LineEnding | undefined;
}

/** Returns a new text in which all that repeats the old one is as it is in the file. */
export function keepOwn(text: string, { own, old, ending }: OwnText): string {
  const [added, given, found] = [partsOf(text), partsOf(old), partsOf(own)];
  if (given.length !== found.length) return ending === undefined ? text : text.replaceAll(/\r?\n/g, ending);
  const least = Math.min(added.length, given.length);
  let start = 0;
  while (start < least && added[start] === given[start]) start++;
  let end = 0;
  while (end < least - start && added[added.length - 1 - end] === given[given.length - 1 - end]) end++;
  const middle = (parts: readonly string[]) => parts.slice(start, parts.length - end);
  const kept: readonly Kept[] = [
    ...found.slice(0, start).map((part) => ({ part, isOwn: true })),
    ...keepMiddle(middle(added), middle(given), middle(found)),
    ...found.slice(found.length - end).map((part) => ({ part, isOwn: true })),
  ];
  let above = ending;
  return kept.map(({ part, isOwn }) => {
    if (above === undefined || (part !== "\n" && part !== "\r\n")) return part;
    if (isOwn) above = part;
    return above;
  }).join("");
}

function partsOf(text: string): readonly string[] {
  return text.match(PART) ?? [];
}

interface Kept {
  readonly part: string;
  readonly isOwn: boolean;
}

/** Puts the file's parts in place of the longest sequence that the old and the new ones share. */
function keepMiddle(added: readonly string[], given: readonly string[], found: readonly string[]): readonly Kept[] {
  const kept: Kept[] = added.map((part) => ({ part, isOwn: false }));
  const width = added.length + 1;
  if (added.length * given.length > MAX_TABLE) return kept;
  const table = new Uint16Array((given.length + 1) * width);
  const shared = (i: number, j: number) => table[i * width + j] ?? 0;
  for (let i = given.length - 1; i >= 0; i--) {
    for (let j = added.length - 1; j >= 0; j--) {
      table[i * width + j] = given[i] === added[j]
        ? shared(i + 1, j + 1) + 1
        : Math.max(shared(i + 1, j), shared(i, j + 1));
    }
  }
  for (let i = 0, j = 0; i < given.length && j < added.length;) {
    if (given[i] === added[j]) kept[j++] = { part: found[i++] ?? "", isOwn: true };
    else if (shared(i + 1, j) >= shared(i, j + 1)) i++;
    else j++;
  }
  return kept;
}

/** Returns the line ending of a text. undefined when the text has no line ending, or both kinds. */
export function uniformEnding(text: string): LineEnding | undefined {
  const newlines = count(text, "\n");
  if (newlines === 0) return undefined;
  const returns = count(text, "\r\n");
  if (returns === newlines) return "\r\n";
  return returns === 0 ? "\n" : undefined;
}

/** Returns a text with this line ending on all its lines. */
export function withEnding(text: string, ending: LineEnding): string {
  return text.replaceAll(/\r?\n/g, ending);
}

function count(text: string, part: string): number {
  let found = 0;
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) found++;
  return found;
}
