import type { Exactness, LineIndex, LineShape } from "./line_index.ts";

/** Lines at which the headings of a hunk are. */
export interface HeadingPlaces {
  /** First line that the hunk's lines can begin at: the first place of the last heading */
  readonly first: number;
  /** Places of the last heading, in the sections of the headings before it where it is in any */
  readonly starts: readonly number[];
}

/**
 * Finds the headings of a hunk: each in the section of the one before where it is there, else behind it.
 * @returns `missing` with the first heading that is not in the file, or not behind the one before
 */
export function findHeadings(
  anchors: readonly string[],
  index: LineIndex,
): HeadingPlaces | { readonly missing: string } {
  let starts: readonly number[] | undefined;
  for (const anchor of anchors) {
    const next = starts === undefined ? findHeading(anchor, index) : findInner(anchor, starts, index);
    if (next.length === 0) return { missing: anchor };
    starts = next;
  }
  return { first: starts?.[0] ?? 0, starts: starts ?? [] };
}

/** Returns the places of a heading in the sections of the outer ones, or else behind the first of these. */
function findInner(heading: string, outer: readonly number[], index: LineIndex): readonly number[] {
  const [first = 0] = outer;
  const indentationAt = (at: number) => index.shapeAt(at)?.indentation ?? 0;
  const least = outer.reduce((found, at) => Math.min(found, indentationAt(at)), Infinity);
  const behind = (places: readonly number[]) => {
    index.spend(places.length);
    return places.filter((at) => at > first);
  };
  for (const exactness of WHOLE) {
    const places = behind(index.find([{ text: heading, crlf: false }], { exactness }));
    const inner = possiblyWithin(places, outer, index).filter((at) => indentationAt(at) > least);
    if (inner.length > 0) return inner;
  }
  return behind(findHeading(heading, index));
}

/** From this length on, in bytes, git (80) and diff (40) may have cut a heading, at the end or inside a character. */
const CUT_BYTES = 39;
const WHOLE: readonly Exactness[] = ["text", "composed", "trimmed_end", "trimmed", "ascii"];

/** Returns the lines that a heading stands for: those that equal it most exactly, or begin with it when it may have been cut. */
export function findHeading(heading: string, index: LineIndex): readonly number[] {
  const wanted = [{ text: heading, crlf: false }];
  for (const exactness of WHOLE) {
    const places = index.find(wanted, { exactness });
    if (places.length > 0) return places;
  }
  const start = heading.replace(/\ufffd+$/, "").trim();
  if (new TextEncoder().encode(start).length < CUT_BYTES) return [];
  index.spend(index.count);
  const found: number[] = [];
  for (let at = 0; at < index.count; at++) {
    if (index.textAt(at).trimStart().startsWith(start)) found.push(at);
  }
  return found;
}

/**
 * Returns the one place that surely lies in the section of one of the lines `starts`. undefined when several may lie in it, or none does.
 *
 * No language is known here, so a section has two ends. The place must lie before the first line that may end the section, and
 * every other place behind the first line that surely does.
 */
export function solePlaceWithin(
  places: readonly number[],
  starts: readonly number[],
  index: LineIndex,
): number | undefined {
  const possible = placesWithin(places, starts, index, endsLoosely);
  if (possible.length !== 1) return undefined;
  return placesWithin(possible, starts, index, endsStrictly)[0];
}

/** Returns the places that may lie in the section of one of the lines `starts`. */
export function possiblyWithin(
  places: readonly number[],
  starts: readonly number[],
  index: LineIndex,
): readonly number[] {
  return placesWithin(places, starts, index, endsLoosely);
}

/** Tells whether a line can end a section whose heading is indented as far or farther. */
type EndsSection = (shape: LineShape) => boolean;

/** By the rule of git's headings, without labels of C and `else:` of Python */
const endsLoosely: EndsSection = ({ start }) => start === "name";
const endsStrictly: EndsSection = ({ start }) => start !== "closer";

/** @param places in order @param starts in order */
function placesWithin(
  places: readonly number[],
  starts: readonly number[],
  index: LineIndex,
  ends: EndsSection,
): readonly number[] {
  const [from, to] = [starts[0], places.at(-1)];
  if (from === undefined || to === undefined || to < from) return [];
  index.spend(to - from);
  /** Indentations of the headings whose sections go on, in order */
  const open: number[] = [];
  const found: number[] = [];
  let [nextStart, nextPlace] = [0, places.findIndex((at) => at >= from)];
  for (let at = from; at <= to; at++) {
    const isStart = starts[nextStart] === at;
    if (isStart) nextStart++;
    if (places[nextPlace] === at) {
      nextPlace++;
      if (open.length > 0 || isStart) found.push(at);
    }
    const shape = index.shapeAt(at);
    if (shape === undefined) continue;
    const { indentation } = shape;
    if (ends(shape)) { while ((open.at(-1) ?? -1) >= indentation) open.pop(); }
    if (isStart && !open.includes(indentation)) {
      open.push(indentation);
      open.sort((one, other) => one - other);
    }
  }
  return found;
}

/** Tells whether a place may lie in the section of the nearest of the lines `starts` that is above it, or is that line. */
export function isBelowNearest(place: number, starts: readonly number[], index: LineIndex): boolean {
  let [low, high] = [0, starts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((starts[middle] ?? 0) <= place) low = middle + 1;
    else high = middle;
  }
  return possiblyWithin([place], starts.slice(low - 1, low), index).length > 0;
}
