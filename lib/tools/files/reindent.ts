import type { HunkLine } from "./parse_patch.ts";

/** Indentation of a line in a patch, and of the line in the file that it stands for. */
export interface IndentationPair {
  readonly patch: string;
  readonly file: string;
}

/**
 * Creates the function that gives an added line of a hunk the indentation that the file has, when the hunk's old lines are indented
 * otherwise there.
 *
 * In this order: the indentation that the file has for the same one of the patch; the own one moved as all old lines are moved;
 * the own one, where the file has it at this place already; the own one in the file's unit, such as a tab for four blanks. The
 * function returns undefined when the old lines do not tell it.
 */
export function createReindent(pairs: readonly IndentationPair[]): (text: string) => string | undefined {
  const distinct = [...new Map(pairs.map((pair) => [`${pair.patch}|${pair.file}`, pair])).values()];
  const isSame = distinct.every(({ patch, file }) => patch === file);
  const known = new Map<string, string | undefined>();
  return (text) => {
    const own = indentationIn(text);
    if (isSame || own.length === text.length) return text;
    if (!known.has(own)) known.set(own, toFile(own, distinct));
    const indentation = known.get(own);
    return indentation === undefined ? undefined : indentation + text.slice(own.length);
  };
}

/** Pairs the old lines of a hunk with the lines of the file. Blank lines tell nothing. @param fileTexts as many as `old` */
export function pairIndentations(
  old: readonly HunkLine[],
  fileTexts: readonly string[],
): readonly IndentationPair[] {
  return old.flatMap(({ text }, i) =>
    text.trim() === "" ? [] : [{ patch: indentationIn(text), file: indentationIn(fileTexts[i] ?? "") }]
  );
}

function indentationIn(text: string): string {
  return text.slice(0, text.length - text.trimStart().length);
}

function toFile(own: string, pairs: readonly IndentationPair[]): string | undefined {
  const same = new Set(pairs.filter(({ patch }) => patch === own).map(({ file }) => file));
  if (same.size > 0) return same.size === 1 ? [...same][0] : undefined;
  const indentation = moved(own, pairs);
  if (indentation !== undefined) return indentation;
  return pairs.some(({ file }) => file === own) ? own : inUnitOfFile(own, pairs);
}

/** Moves an indentation by the blanks in front that all lines of the file have more, or less. */
function moved(own: string, pairs: readonly IndentationPair[]): string | undefined {
  const [first] = pairs;
  if (first === undefined) return undefined;
  const more = first.file.slice(0, Math.max(0, first.file.length - first.patch.length));
  if (more !== "" && pairs.every(({ patch, file }) => file === more + patch)) return more + own;
  const less = first.patch.slice(0, Math.max(0, first.patch.length - first.file.length));
  if (less !== "" && own.startsWith(less) && pairs.every(({ patch, file }) => patch === less + file)) {
    return own.slice(less.length);
  }
  return undefined;
}

/** Converts an indentation when each of the patch is a multiple of one of the file, made of another character or width. */
function inUnitOfFile(own: string, pairs: readonly IndentationPair[]): string | undefined {
  const indented = pairs.filter(({ patch, file }) => patch !== "" || file !== "");
  const [first] = indented;
  if (first === undefined || first.patch === "" || first.file === "") return undefined;
  const [from, to] = [first.patch.charAt(0), first.file.charAt(0)];
  const isPlain = ({ patch, file }: IndentationPair) =>
    patch === from.repeat(patch.length) && file === to.repeat(file.length) &&
    patch.length * first.file.length === file.length * first.patch.length;
  if (!indented.every(isPlain) || own !== from.repeat(own.length)) return undefined;
  const width = (own.length * first.file.length) / first.patch.length;
  return Number.isInteger(width) ? to.repeat(width) : undefined;
}
