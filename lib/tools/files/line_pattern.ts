import { RE2JS } from "re2js";
import { ToolError } from "../../base/errors.ts";
import { foldText } from "./same_text.ts";

/** Compiled pattern over single lines. */
export interface LinePattern {
  /** Literals that every matching line holds, in UTF-8. undefined when the pattern requires none */
  readonly required: RequiredBytes | undefined;
  /** UTF-16 units of one line that are searched: the more instructions the pattern has, the fewer */
  readonly maxLine: number;
  test(line: string): boolean;
  /** Returns where the first match starts, in UTF-16 units */
  indexIn(line: string): number;
}

/** Required literal, or all or any of several. A `caseless` literal is in lower case and stands for any case of A-Z. */
export type RequiredBytes =
  | { readonly kind: "literal"; readonly bytes: Uint8Array; readonly caseless: boolean }
  | { readonly kind: "all" | "any"; readonly of: readonly RequiredBytes[] };

/** Instructions of the compiled pattern */
const MAX_PROGRAM = 1000;
/** Instructions times UTF-16 units of a line: bounds the time of one match to a few seconds, and for most patterns to 0.1 s */
const MAX_STEPS = 50_000_000;
/** Pattern that stands for itself, in any case. Its time does not grow with its length */
const PLAIN = /^[^\\^$.|?*+()[\]{}]+$/;

/**
 * Compiles a regular expression for an engine whose time grows only with the text, so that no pattern of a model can hang the gateway.
 * Source: https://github.com/google/re2/wiki/Syntax
 * @throws {ToolError} `pattern_invalid`
 */
export function compileLinePattern(pattern: string, options: { readonly caseInsensitive: boolean }): LinePattern {
  const compiled = compile(pattern, options.caseInsensitive ? RE2JS.CASE_INSENSITIVE : 0);
  if (compiled.programSize() > MAX_PROGRAM) {
    throw new ToolError(
      "pattern_invalid",
      'Cannot use "pattern": it is too large once its repetitions are written out',
    );
  }
  return {
    required: requiredBy(pattern, { compiled, caseless: options.caseInsensitive }),
    maxLine: PLAIN.test(pattern) ? Infinity : Math.floor(MAX_STEPS / compiled.programSize()),
    test: (line) => compiled.test(line),
    indexIn(line) {
      const matcher = compiled.matcher(line);
      return matcher.find() ? matcher.start() : 0;
    },
  };
}

/**
 * Compiles a pattern that meets the same text in other code points: pattern and lines are composed (NFC).
 * @throws {ToolError} `pattern_invalid`
 */
export function compileComposedPattern(pattern: string, options: { readonly caseInsensitive: boolean }): LinePattern {
  const plain = compileLinePattern(pattern.normalize("NFC"), options);
  return {
    maxLine: plain.maxLine,
    required: undefined,
    test: (line) => plain.test(line.normalize("NFC")),
    indexIn(line) {
      const folded = foldText(line);
      return folded.at(plain.indexIn(folded.text)) ?? 0;
    },
  };
}

function compile(pattern: string, flags: number): RE2JS {
  try {
    return RE2JS.compile(pattern, flags);
  } catch (error) {
    const reason = error instanceof Error
      ? error.message.replace(/^error parsing regexp: /, "").slice(0, 200)
      : "it does not parse";
    throw new ToolError("pattern_invalid", `Cannot use "pattern" as a regular expression (RE2 syntax): ${reason}`, {
      cause: error,
    });
  }
}

/** Literals that the engine has found in a pattern (its src/Prefilter.js): a text, all of several, or any of several. */
interface Prefilter {
  readonly type: number;
  readonly str: string;
  readonly subs: readonly Prefilter[];
}
const EXACT = 1;
const ALL = 2;
const ANY = 3;

function requiredBy(
  pattern: string,
  { compiled, caseless }: { readonly compiled: RE2JS; readonly caseless: boolean },
): RequiredBytes | undefined {
  // The engine finds literals only in a pattern that respects case. Without case the literals are the same, in any case
  const prefilter: Prefilter | null = (caseless ? compile(pattern, 0) : compiled).re2().prefilter;
  return prefilter === null ? undefined : toRequired(prefilter, caseless);
}

function toRequired(prefilter: Prefilter, caseless: boolean): RequiredBytes | undefined {
  switch (prefilter.type) {
    case EXACT: {
      const text = caseless ? longestPlain(prefilter.str) : prefilter.str;
      return text === "" ? undefined : { kind: "literal", bytes: new TextEncoder().encode(text), caseless };
    }
    case ALL: {
      const each = prefilter.subs.flatMap((sub) => toRequired(sub, caseless) ?? []);
      return each.length === 0 ? undefined : { kind: "all", of: each };
    }
    case ANY: {
      const each = prefilter.subs.flatMap((sub) => toRequired(sub, caseless) ?? []);
      return each.length === prefilter.subs.length ? { kind: "any", of: each } : undefined;
    }
    default:
      return undefined;
  }
}

/**
 * Returns the longest part of a literal without letters that have a case outside A-Z: without case, k also matches the Kelvin sign, and
 * s the long s.
 */
function longestPlain(text: string): string {
  const parts = text.match(/[\x20-\x7e]+/g)?.flatMap((part) => part.toLowerCase().split(/[ks]/)) ?? [];
  return parts.sort((a, b) => b.length - a.length)[0] ?? "";
}
