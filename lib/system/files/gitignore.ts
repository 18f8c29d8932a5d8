import { Buffer } from "node:buffer";
import { isAscii } from "../../base/text.ts";
import { compileSet, matchSegments, ONE, type Segment, STAR, type Token } from "./glob.ts";

/** The rules of one `.gitignore`, for paths relative to the folder it lies in. */
export interface IgnoreRules {
  /** true: ignored, false: taken back by `!`, undefined: no rule says anything */
  verdict(names: readonly string[], isFolder: boolean): boolean | undefined;
}

const MAX_RULES = 2000;
const MAX_RULE = 1000;

/** Rule, in which each byte of UTF-8 is a character. */
interface Rule {
  /** Beginning of the paths that it stands for. undefined: it stands for names, at any depth */
  readonly start: string | undefined;
  /** Pattern of what comes behind the beginning. git reads it as one of its own, so that stars which begin it may stand for folders */
  readonly segments: readonly Segment[];
  readonly negated: boolean;
  readonly foldersOnly: boolean;
}

/**
 * Parses the rules of a `.gitignore` as git does, which compares bytes. Rules after the first 2000, and those over 1000 characters, are left
 * out.
 * Source: https://git-scm.com/docs/gitignore, with dir.c and wildmatch.c of git
 */
export function parseGitignore(text: string): IgnoreRules {
  const rules: Rule[] = [];
  for (const line of `${text}\n`.split(/\r?\n/)) {
    if (rules.length === MAX_RULES) break;
    const rule = line.length > MAX_RULE ? undefined : parseRule(toBytes(line));
    if (rule !== undefined) rules.push(rule);
  }
  return {
    verdict(names, isFolder) {
      const path = toBytes(names.join("/"));
      const name = [path.slice(path.lastIndexOf("/") + 1)];
      // The last rule that matches decides
      for (let i = rules.length - 1; i >= 0; i--) {
        const rule = rules[i] as Rule; // Below the length
        if ((!rule.foldersOnly || isFolder) && matches(rule, { path, name })) return !rule.negated;
      }
      return undefined;
    },
  };
}

function matches(
  { start, segments }: Rule,
  { path, name }: { readonly path: string; readonly name: readonly string[] },
): boolean {
  if (start === undefined) return matchSegments(segments, name);
  return path.startsWith(start) && matchSegments(segments, path.slice(start.length).split("/"));
}

/** Returns a text whose characters are the bytes of UTF-8. */
function toBytes(text: string): string {
  return isAscii(text) ? text : Buffer.from(text).toString("latin1");
}

function parseRule(line: string): Rule | undefined {
  // For git a NUL ends the line, as in a file of UTF-16
  const [text = ""] = line.split("\0", 1);
  let pattern = text.startsWith("#") ? "" : withoutBlanks(text);
  const negated = pattern.startsWith("!");
  if (negated) pattern = pattern.slice(1);
  const foldersOnly = pattern.endsWith("/");
  if (foldersOnly) pattern = pattern.slice(0, -1);
  const below = pattern.startsWith("/") ? pattern.slice(1) : pattern;
  const start = pattern.includes("/") ? /^[^*?[\\]*/.exec(below)?.[0] ?? "" : undefined;
  const segments = pattern === "" ? undefined : toSegments(below.slice(start?.length ?? 0));
  return segments === undefined ? undefined : { start, segments, negated, foldersOnly };
}

/** Takes the spaces at the end away that no backslash stands before. */
function withoutBlanks(line: string): string {
  let end = 0;
  for (let i = 0; i < line.length; i++) {
    const isEscaped = line[i] === "\\";
    if (isEscaped) i++;
    if (isEscaped || line[i] !== " ") end = i + 1;
  }
  return line.slice(0, end);
}

/** Returns the parts between the slashes. undefined for a pattern that matches nothing: a set without an end, a backslash at the end */
function toSegments(pattern: string): readonly Segment[] | undefined {
  const characters = [...pattern];
  const segments: Segment[] = [];
  let tokens: Token[] = [];
  for (let i = 0; i < characters.length; i++) {
    const character = characters[i] as string; // Below the length
    const escaped = character === "\\" ? characters[++i] : character;
    if (escaped === undefined) return undefined;
    const rest = character === "*" ? pattern.slice(i) : "";
    const stars = /^\**/.exec(rest)?.[0].length ?? 0;
    if (escaped === "/") {
      segments.push(tokens);
      tokens = [];
    } else if (stars > 1 && tokens.length === 0 && /^\*+(?:\\?\/|$)/.test(rest)) {
      segments.push("any");
      i += stars;
      // git lets the stars stand for no folder only where the slash is written without a backslash
      if (characters[i] === "\\") {
        segments.push([STAR]);
        i++;
      }
      // `a/**` is all that lies in `a`, and not `a` itself
      if (characters[i] === undefined) return [...segments, [STAR]];
    } else if (stars > 0) {
      tokens.push(STAR);
      i += stars - 1;
    } else if (character === "?") tokens.push(ONE);
    else if (character === "[") {
      const set = compileSet(characters, i);
      if (set === undefined) return undefined;
      tokens.push(set.token);
      i = set.end;
    } else tokens.push(escaped);
  }
  return [...segments, tokens];
}
