import type { LineIndex, WantedLine } from "./line_index.ts";

/** Advice for a hunk that has no place of its own: things to add. */
export const UNDECIDED =
  'add lines of context, an @@ line with the heading above the place, or line numbers ("@@ -12,3 +12,4 @@")';

/** Characters of a line that a message repeats */
const MAX_SHOWN = 80;
/** Places that a message lists */
const MAX_PLACES = 8;
/** Lines above a place that are looked at for its heading */
const MAX_ABOVE = 2_000;

/** Returns the first line that has text, in quotes. */
export function quoted(lines: readonly WantedLine[]): string {
  return quote(lines.find(({ text }) => text.trim() !== "")?.text ?? "");
}

function quote(line: string): string {
  return JSON.stringify(line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}...` : line);
}

/**
 * Returns why none of several places was taken, with the places and what to add.
 * @param what text that is at all of them
 * @param why default: it fits them all
 */
export function ambiguousPlace(what: string, places: readonly number[], index: LineIndex, why?: string): string {
  const listed = places.slice(0, MAX_PLACES).map((at) => {
    const heading = headingAbove(at, index);
    return `${at + 1}${heading === undefined ? "" : ` (below ${quote(heading)})`}`;
  });
  const more = places.length > MAX_PLACES ? ` and ${places.length - MAX_PLACES} more` : "";
  return `${why ?? `${what} fits ${places.length} places`}: lines ${listed.join(", ")}${more}; ${UNDECIDED}`;
}

/** Returns the nearest line above that begins with a letter and is indented less. */
function headingAbove(place: number, index: LineIndex): string | undefined {
  const own = index.shapeAt(place)?.indentation ?? 0;
  for (let at = place - 1; own > 0 && at >= 0 && at >= place - MAX_ABOVE; at--) {
    const shape = index.shapeAt(at);
    if (shape?.start === "name" && shape.indentation < own) return index.textAt(at).trim();
  }
  return undefined;
}

/**
 * Returns why lines have no place: where the place is that agrees longest, and the line at which it differs.
 * @param prefix words in front of the line in the patch
 */
export function missingLines(wanted: readonly WantedLine[], index: LineIndex, prefix = ""): string {
  const text = wanted.find((line) => line.text.trim() !== "")?.text ?? "";
  const what = quote(prefix + text) + (wanted.length > 1 ? " and what follows are" : " is");
  const near = nearestPlace(wanted, index);
  if (near === undefined) return `${what} not in the file; read it and copy the lines exactly`;
  const { at, agree } = near;
  const there = at + agree < index.count
    ? `line ${at + agree + 1} is ${quote(index.textAt(at + agree))}`
    : "the file ends";
  return `${what} not in the file; the nearest place is line ${at + 1}, but there ${there} where the patch has ${
    quote(wanted[agree]?.text ?? "")
  }; read the file and copy the lines exactly`;
}

/** Lines of the start that is searched for the nearest place; what follows is compared line by line */
const MAX_SEARCHED = 200;

function nearestPlace(
  wanted: readonly WantedLine[],
  index: LineIndex,
): { readonly at: number; readonly agree: number } | undefined {
  let [low, high] = [0, Math.min(wanted.length, MAX_SEARCHED) + 1];
  let at: number | undefined;
  // The longest start of the lines that is in the file; blank lines alone are everywhere
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    const start = wanted.slice(0, middle);
    const isBlank = start.every(({ text }) => text.trim() === "");
    const [found] = isBlank ? [] : index.find(start, { exactness: "ascii", max: 1 });
    if (isBlank || found !== undefined) [low, at] = [middle, found];
    else high = middle;
  }
  if (at === undefined) return undefined;
  let agree = low;
  while (agree < wanted.length && index.isAt(wanted.slice(agree, agree + 1), at + agree, "ascii")) agree++;
  return { at, agree };
}
