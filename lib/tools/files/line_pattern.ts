import { RE2JS } from "re2js";
import { ToolError } from "../../base/errors.ts";

/** A compiled pattern over single lines. */
export interface LinePattern {
  test(line: string): boolean;
  /** Where the first match starts, in UTF-16 units */
  indexIn(line: string): number;
}

/** Steps of the compiled pattern; with the longest line they bound the time of one match to a fraction of a second */
const MAX_PROGRAM = 1000;

/**
 * A regular expression on an engine whose time grows with the text alone, so that no pattern of a model can hang the gateway.
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
    test: (line) => compiled.test(line),
    indexIn(line) {
      const matcher = compiled.matcher(line);
      return matcher.find() ? matcher.start() : 0;
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
