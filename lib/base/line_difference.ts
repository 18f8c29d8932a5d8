import { firstBytes } from "./text.ts";

/** Bounds of a difference. */
export interface DifferenceBounds {
  /** Lines around a change that are shown too. Default 3 */
  readonly context?: number | undefined;
  /** Bytes of UTF-8 of the whole difference. Default 65,536 */
  readonly maxBytes?: number | undefined;
}

/** Line of a difference. */
interface Edit {
  readonly sign: " " | "-" | "+";
  readonly line: string;
}

const MAX_BYTES = 65_536;
/** Lines that are taken away and added, up to which the shortest difference is looked for. Beyond it a part is shown as replaced whole */
const MAX_EDITS = 500;

/**
 * Returns the difference between two texts, in the unified format without a head: `@@` lines, then lines that begin with a space, `-` or
 * `+`. Empty for equal texts. A long one is cut with a line that says so.
 */
export function lineDifference(before: string, after: string, bounds: DifferenceBounds = {}): string {
  const { context = 3, maxBytes = MAX_BYTES } = bounds;
  if (before === after) return "";
  const edits = editsBetween(linesOf(before), linesOf(after));
  const text = hunksOf(edits, context).join("\n");
  const cut = firstBytes(text, maxBytes);
  return cut === text ? text : `${cut}\n... the difference goes on; ${maxBytes} bytes of it are shown`;
}

function linesOf(text: string): readonly string[] {
  return text === "" ? [] : text.split("\n");
}

/** Returns the lines of both texts in order. Lines that both begin or end with are compared once. */
function editsBetween(before: readonly string[], after: readonly string[]): readonly Edit[] {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < most - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const kept = (lines: readonly string[]): readonly Edit[] => lines.map((line) => ({ sign: " ", line }));
  return [
    ...kept(before.slice(0, head)),
    ...shortestEdits(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...kept(tail === 0 ? [] : before.slice(-tail)),
  ];
}

/** Returns the shortest edits. Source: E. W. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986) */
function shortestEdits(before: readonly string[], after: readonly string[]): readonly Edit[] {
  const rounds = roundsUntilEnd(before, after);
  if (rounds === undefined) {
    return [
      ...before.map((line) => ({ sign: "-", line } as const)),
      ...after.map((line) => ({ sign: "+", line } as const)),
    ];
  }
  const edits: Edit[] = [];
  let [x, y] = [before.length, after.length];
  for (const [count, furthest] of [...rounds.entries()].reverse()) {
    const diagonal = x - y;
    const isAdded = isFromAbove(furthest, diagonal, count);
    const startDiagonal = count === 0 ? 0 : diagonal + (isAdded ? 1 : -1);
    const startX = count === 0 ? 0 : furthest.get(startDiagonal) ?? 0;
    const startY = startX - startDiagonal;
    while (x > startX && y > startY && x > 0 && y > 0) {
      edits.push({ sign: " ", line: before[--x] ?? "" });
      y--;
    }
    if (count === 0) break;
    edits.push(isAdded ? { sign: "+", line: after[--y] ?? "" } : { sign: "-", line: before[--x] ?? "" });
  }
  return edits.reverse();
}

/** Returns, for each number of edits, how far each diagonal reached before it. Undefined beyond MAX_EDITS. */
function roundsUntilEnd(
  before: readonly string[],
  after: readonly string[],
): readonly ReadonlyMap<number, number>[] | undefined {
  const furthest = new Map<number, number>();
  const rounds: ReadonlyMap<number, number>[] = [];
  for (let count = 0; count <= Math.min(MAX_EDITS, before.length + after.length); count++) {
    rounds.push(new Map(furthest));
    for (let diagonal = -count; diagonal <= count; diagonal += 2) {
      const isAdded = isFromAbove(furthest, diagonal, count);
      let x = count === 0 ? 0 : isAdded ? furthest.get(diagonal + 1) ?? 0 : (furthest.get(diagonal - 1) ?? 0) + 1;
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x++;
      furthest.set(diagonal, x);
      if (x >= before.length && x - diagonal >= after.length) return rounds;
    }
  }
  return undefined;
}

/** Tells whether the furthest way to a diagonal adds a line. Otherwise it takes one away. */
function isFromAbove(furthest: ReadonlyMap<number, number>, diagonal: number, count: number): boolean {
  if (diagonal === -count) return true;
  return diagonal !== count && (furthest.get(diagonal - 1) ?? -1) < (furthest.get(diagonal + 1) ?? -1);
}

/** Returns the lines of the changes with the lines around them, each piece behind a line that says where it is. */
function hunksOf(edits: readonly Edit[], context: number): readonly string[] {
  const isShown = new Array<boolean>(edits.length).fill(false);
  for (const [at, { sign }] of edits.entries()) {
    if (sign !== " ") isShown.fill(true, Math.max(0, at - context), at + context + 1);
  }
  const lines: string[] = [];
  let [old, now] = [1, 1];
  for (const [at, { sign, line }] of edits.entries()) {
    if (isShown[at] === true) {
      if (isShown[at - 1] !== true) lines.push(`@@ -${old} +${now} @@`);
      lines.push(`${sign}${line}`);
    }
    if (sign !== "+") old++;
    if (sign !== "-") now++;
  }
  return lines;
}
