import { ToolError } from "../../../base/errors.ts";

/** Lines of a file in which parts of a patch are looked for. */
export interface LineFinder {
  /**
   * Where `wanted` begins, from line `from` on: the first exact place; where there is none, the only place that differs in
   * trailing, then in leading white space.
   * @returns an index; undefined: nowhere; `ambiguous`: at several places but for white space
   */
  find(wanted: readonly string[], from: number): number | "ambiguous" | undefined;
  /** Whether `wanted` begins at `at`, white space at the lines' ends apart */
  isAt(wanted: readonly string[], at: number): boolean;
}

/** Comparisons of lines for one file: about two tenths of a second */
const MAX_COMPARISONS = 5_000_000;
const FORMS: readonly ((line: string) => string)[] = [
  (line) => line,
  (line) => line.trimEnd(),
  (line) => line.trim(),
];

/** @param lines without their endings */
export function createLineFinder(lines: readonly string[]): LineFinder {
  const formed: (readonly string[] | undefined)[] = [lines];
  const linesIn = (form: number) => (formed[form] ??= lines.map(FORMS[form] ?? String));
  let left = MAX_COMPARISONS;
  const matches = (form: number, wanted: readonly string[], at: number): boolean => {
    const own = linesIn(form);
    for (const [i, line] of wanted.entries()) {
      if (--left < 0) {
        throw new ToolError(
          "patch_too_costly",
          "Cannot apply the patch: its lines occur too often in the file; add @@ lines with text that occurs once",
        );
      }
      if (own[at + i] !== line) return false;
    }
    return true;
  };
  return {
    find(wanted, from) {
      for (const [form, toForm] of FORMS.entries()) {
        const own = wanted.map(toForm);
        let found: number | undefined;
        for (let at = from; at + own.length <= lines.length; at++) {
          if (!matches(form, own, at)) continue;
          if (form === 0) return at;
          if (found !== undefined) return "ambiguous";
          found = at;
        }
        if (found !== undefined) return found;
      }
      return undefined;
    },
    isAt: (wanted, at) => FORMS.some((toForm, form) => matches(form, wanted.map(toForm), at)),
  };
}
