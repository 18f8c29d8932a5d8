/** Change of neighbouring lines between two texts, with lines of context, as diff and git write them. */
export interface DiffHunk {
  /** `@@ -line,count +line,count @@` */
  readonly numbers: string;
  /** Last line above that begins with a letter, cut like git does. Empty for none */
  readonly heading: string;
  /** Lines with their first character, and `\ No newline at end of file` */
  readonly lines: readonly string[];
  /** True when there are lines of the old text */
  readonly hasOld: boolean;
}

interface Step {
  readonly kind: " " | "-" | "+";
  readonly line: string;
}

/** Returns the hunks that make the text `after` of the text `before`. @param context lines around each change */
export function diffLines(before: string, after: string, context: number): readonly DiffHunk[] {
  const old = linesOf(before);
  const steps = stepsBetween(old, linesOf(after));
  const hunks: DiffHunk[] = [];
  let [start, seen] = [0, { old: 0, new: 0 }];
  while (start < steps.length) {
    const first = steps.findIndex(({ kind }, i) => i >= start && kind !== " ");
    if (first === -1) break;
    let last = first;
    for (let i = first; i < steps.length && i <= last + 2 * context + 1; i++) if (steps[i]?.kind !== " ") last = i;
    const [from, to] = [Math.max(start, first - context), Math.min(steps.length, last + context + 1)];
    seen = count(steps.slice(start, from), seen);
    const end = count(steps.slice(from, to), seen);
    const [oldCount, newCount] = [end.old - seen.old, end.new - seen.new];
    const range = (line: number, lines: number) => `${lines === 0 ? line : line + 1}${lines === 1 ? "" : `,${lines}`}`;
    hunks.push({
      numbers: `@@ -${range(seen.old, oldCount)} +${range(seen.new, newCount)} @@`,
      heading: (old.slice(0, seen.old).findLast((line) => /^[A-Za-z_$]/.test(line)) ?? "").slice(0, 80).trimEnd(),
      lines: steps.slice(from, to).flatMap(({ kind, line }) =>
        line.endsWith("\n") ? [kind + line.slice(0, -1)] : [kind + line, "\\ No newline at end of file"]
      ),
      hasOld: oldCount > 0,
    });
    [start, seen] = [to, end];
  }
  return hunks;
}

function linesOf(text: string): readonly string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function count(steps: readonly Step[], from: { old: number; new: number }): { old: number; new: number } {
  return {
    old: from.old + steps.filter(({ kind }) => kind !== "+").length,
    new: from.new + steps.filter(({ kind }) => kind !== "-").length,
  };
}

/** The longest common lines, by the table of their lengths. */
function stepsBetween(old: readonly string[], now: readonly string[]): readonly Step[] {
  const common = Array.from({ length: old.length + 1 }, () => new Array<number>(now.length + 1).fill(0));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      (common[i] ?? [])[j] = old[i] === now[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const steps: Step[] = [];
  for (let [i, j] = [0, 0]; i < old.length || j < now.length;) {
    const [line, next] = [old[i], now[j]];
    if (line !== undefined && line === next) [i, j] = [i + 1, j + 1, steps.push({ kind: " ", line })];
    else if (line !== undefined && (next === undefined || at(i + 1, j) >= at(i, j + 1))) {
      i++;
      steps.push({ kind: "-", line });
    } else {
      j++;
      steps.push({ kind: "+", line: next ?? "" });
    }
  }
  return steps;
}
