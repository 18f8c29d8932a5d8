import { compileSegments, matchSegments, type Segment } from "./glob.ts";

/** The rules of one `.gitignore`, for paths relative to the folder it lies in. */
export interface IgnoreRules {
  /** true: ignored, false: taken back by `!`, undefined: no rule says anything */
  verdict(names: readonly string[], isFolder: boolean): boolean | undefined;
}

const MAX_RULES = 2000;
const MAX_RULE = 1000;

interface Rule {
  readonly segments: readonly Segment[];
  readonly negated: boolean;
  readonly foldersOnly: boolean;
}

/**
 * Rules after the first 2000, and those over 1000 characters, are left out.
 * Source: https://git-scm.com/docs/gitignore
 */
export function parseGitignore(text: string): IgnoreRules {
  const rules: Rule[] = [];
  for (const line of text.split(/\r?\n/)) {
    if (rules.length === MAX_RULES) break;
    const rule = line.length > MAX_RULE ? undefined : parseRule(line);
    if (rule !== undefined) rules.push(rule);
  }
  return {
    verdict(names, isFolder) {
      // The last rule that matches decides
      for (let i = rules.length - 1; i >= 0; i--) {
        const rule = rules[i] as Rule; // Below the length
        if ((!rule.foldersOnly || isFolder) && matchSegments(rule.segments, names)) return !rule.negated;
      }
      return undefined;
    },
  };
}

function parseRule(line: string): Rule | undefined {
  let pattern = line.startsWith("#") ? "" : line;
  while (pattern.endsWith(" ") && !pattern.endsWith("\\ ")) pattern = pattern.slice(0, -1);
  const negated = pattern.startsWith("!");
  if (negated) pattern = pattern.slice(1);
  const foldersOnly = pattern.endsWith("/");
  if (foldersOnly) pattern = pattern.slice(0, -1);
  if (pattern === "") return undefined;
  const anchored = pattern.includes("/");
  const segments = compileSegments(pattern.startsWith("/") ? pattern.slice(1) : pattern);
  return { segments: anchored ? segments : ["any", ...segments], negated, foldersOnly };
}
