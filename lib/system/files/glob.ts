import { ToolError } from "../../base/errors.ts";

/** Tells whether a path, relative and with `/`, matches. */
export type PathMatcher = (path: string) => boolean;

const MAX_PATTERN = 1000;
const MAX_ALTERNATIVES = 256;

/**
 * Compiles a glob: `*` and `?` within a name, `**` for any number of folders, `[a-z]` and `[!a-z]`, `{a,b}`, `\` before a character taken
 * as it is. Names that start with a dot are matched like others.
 *
 * Time is bounded by the product of pattern and path length: a pattern comes from a model and a regular expression made of it
 * could be made to hang.
 * @throws {ToolError} `glob_invalid`: empty, over 1000 characters, or over 256 alternatives
 */
export function compileGlob(pattern: string): PathMatcher {
  if (pattern === "") throw new ToolError("glob_invalid", 'Cannot use the glob "": it is empty');
  if (pattern.length > MAX_PATTERN) {
    throw new ToolError(
      "glob_invalid",
      `Cannot use the glob "${pattern.slice(0, 40)}...": it is longer than ${MAX_PATTERN} characters`,
    );
  }
  const alternatives = expandBraces(pattern).map((alternative) =>
    compileSegments(alternative.replace(/^(?:\.\/+)+/, ""))
  );
  return (path) => {
    const names = path.split("/");
    return alternatives.some((segments) => matchSegments(segments, names));
  };
}

/** Part of a pattern between two slashes. `any` stands for any number of folders. */
export type Segment = "any" | readonly Token[];
/** Part of a name in a pattern. A string of one character is that character; `star` and `one`, being longer, are none. */
export type Token = string | CharacterSet;
/** Any characters of a name. */
export const STAR = "star";
/** Any one character of a name. */
export const ONE = "one";

/** Characters that a place of a name may have. */
interface CharacterSet {
  readonly negated: boolean;
  readonly ranges: readonly (readonly [string, string])[];
}

/** Compiles the parts of a pattern without braces. */
function compileSegments(pattern: string): readonly Segment[] {
  return splitUnescaped(pattern).map((segment) => (segment === "**" ? "any" : compileTokens([...segment])));
}

/** Tells whether the whole of `names` matches. */
export function matchSegments(segments: readonly Segment[], names: readonly string[]): boolean {
  return matchWild(segments.length, names.length, {
    isWild: (i) => segments[i] === "any",
    matches: (i, j) => {
      const segment = segments[i];
      return segment !== undefined && segment !== "any" && matchTokens(segment, [...names[j] ?? ""]);
    },
  });
}

/** As matchWild, written out: a hostile pattern makes it take each of its steps. */
function matchTokens(tokens: readonly Token[], characters: readonly string[]): boolean {
  const { length } = characters;
  let i = 0;
  let j = 0;
  let starAt = -1;
  let resumeAt = 0;
  while (j < length) {
    const token = tokens[i];
    if (token === characters[j]) {
      i++;
      j++;
    } else if (token === STAR) {
      starAt = i++;
      resumeAt = j;
    } else if (token !== undefined && matchesToken(token, characters[j] as string)) { // Below the length
      i++;
      j++;
    } else if (starAt >= 0) {
      i = starAt + 1;
      j = ++resumeAt;
    } else {
      return false;
    }
  }
  while (tokens[i] === STAR) i++;
  return i === tokens.length;
}

/** Greedy matching with one point to go back to: enough where everything but the wild part matches exactly one item. */
function matchWild(
  patternLength: number,
  itemCount: number,
  on: { readonly isWild: (i: number) => boolean; readonly matches: (i: number, j: number) => boolean },
): boolean {
  let i = 0;
  let j = 0;
  let wildAt = -1;
  let resumeAt = 0;
  while (j < itemCount) {
    if (i < patternLength && on.isWild(i)) {
      wildAt = i++;
      resumeAt = j;
    } else if (i < patternLength && on.matches(i, j)) {
      i++;
      j++;
    } else if (wildAt >= 0) {
      i = wildAt + 1;
      j = ++resumeAt;
    } else {
      return false;
    }
  }
  while (i < patternLength && on.isWild(i)) i++;
  return i === patternLength;
}

function matchesToken(token: Token, character: string): boolean {
  if (typeof token === "string") return token === ONE;
  return token.ranges.some(([from, to]) => character >= from && character <= to) !== token.negated;
}

function compileTokens(characters: readonly string[]): readonly Token[] {
  const tokens: Token[] = [];
  for (let i = 0; i < characters.length; i++) {
    const character = characters[i] as string; // Below the length
    if (character === "*") {
      if (tokens.at(-1) !== STAR) tokens.push(STAR);
    } else if (character === "?") {
      tokens.push(ONE);
    } else if (character === "\\" && i + 1 < characters.length) {
      tokens.push(characters[++i] as string); // just compared
    } else {
      const set = character === "[" ? compileSet(characters, i) : undefined;
      tokens.push(set === undefined ? character : set.token);
      if (set !== undefined) i = set.end;
    }
  }
  return tokens;
}

/** Characters of the classes of POSIX, as ranges: `[[:alpha:]]`. */
const CLASSES: Readonly<Record<string, string>> = {
  ...{
    alnum: "09azAZ",
    alpha: "azAZ",
    blank: "  \t\t",
    cntrl: "\0\x1f\x7f\x7f",
    digit: "09",
    graph: "!~",
    lower: "az",
  },
  ...{ print: " ~", punct: "!/:@[`{~", space: "  \t\r", upper: "AZ", xdigit: "09afAF" },
};

/**
 * Compiles `[...]` from `start`, as git reads it.
 * @returns undefined when it is never closed, or names a class that is none
 */
export function compileSet(
  characters: readonly string[],
  start: number,
): { readonly token: CharacterSet; readonly end: number } | undefined {
  let i = start + 1;
  const negated = characters[i] === "!" || characters[i] === "^";
  if (negated) i++;
  const ranges: (readonly [string, string])[] = [];
  /** Character that a range may begin with */
  let before: string | undefined;
  for (let first = true; i < characters.length; first = false, i++) {
    const character = characters[i] as string; // Below the length
    if (character === "]" && !first) return { token: { negated, ranges }, end: i };
    const next = characters[i + 1];
    if (character === "-" && before !== undefined && next !== undefined && next !== "]") {
      if (next === "\\") i++;
      const to = characters[++i];
      if (to === undefined) return undefined;
      ranges.push([before, to]);
      before = undefined;
      continue;
    }
    const name = character === "[" && next === ":"
      ? /^\[:([^\]]*):\]/.exec(characters.slice(i).join(""))?.[1]
      : undefined;
    if (name !== undefined) {
      const found = Object.hasOwn(CLASSES, name) ? CLASSES[name] : undefined;
      if (found === undefined) return undefined;
      ranges.push(...(found.match(/[^][^]/g) ?? []).map((range) => [range.charAt(0), range.charAt(1)] as const));
      before = undefined;
      i += name.length + 3;
      continue;
    }
    before = character === "\\" ? characters[++i] : character;
    if (before === undefined) return undefined;
    ranges.push([before, before]);
  }
  return undefined;
}

function splitUnescaped(pattern: string): string[] {
  const parts: string[] = [];
  let part = "";
  for (let i = 0; i < pattern.length; i++) {
    if (pattern[i] === "\\" && i + 1 < pattern.length) part += `\\${pattern[++i]}`;
    else if (pattern[i] === "/") {
      parts.push(part);
      part = "";
    } else part += pattern[i];
  }
  parts.push(part);
  return parts;
}

/** `a{b,c}d` as `abd` and `acd`; braces without a comma or without an end are plain characters. */
function expandBraces(pattern: string): string[] {
  const done: string[] = [];
  const waiting = [pattern];
  for (;;) {
    const next = waiting.pop();
    if (next === undefined) return done;
    if (done.length + waiting.length >= MAX_ALTERNATIVES) {
      throw new ToolError(
        "glob_invalid",
        `Cannot use the glob "${pattern}": it has more than ${MAX_ALTERNATIVES} alternatives`,
      );
    }
    const group = findBraces(next);
    if (group === undefined) done.push(next);
    else {for (const option of group.options) {
        waiting.push(next.slice(0, group.start) + option + next.slice(group.end + 1));
      }}
  }
}

function findBraces(
  text: string,
): { readonly start: number; readonly end: number; readonly options: readonly string[] } | undefined {
  const open: { readonly start: number; readonly commas: number[] }[] = [];
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === "{") open.push({ start: i, commas: [] });
    else if (text[i] === ",") open.at(-1)?.commas.push(i);
    else if (text[i] === "}") {
      const group = open.pop();
      if (group === undefined || group.commas.length === 0) continue;
      const cuts = [group.start, ...group.commas, i];
      return {
        start: group.start,
        end: i,
        options: cuts.slice(1).map((cut, k) => text.slice((cuts[k] ?? 0) + 1, cut)),
      };
    }
  }
  return undefined;
}
