import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import {
  findHeading,
  findHeadings,
  type HeadingPlaces,
  isBelowNearest,
  possiblyWithin,
  solePlaceWithin,
} from "./hunk_headings.ts";
import type { Exactness, LineIndex } from "./line_index.ts";
import type { Hunk, HunkLine, HunkNumbers } from "./parse_patch.ts";
import { ambiguousPlace, missingLines, quoted, UNDECIDED } from "./place_refusals.ts";

/** Place of one hunk in a file. */
export interface PlacedHunk {
  /** Line at which the hunk begins, counted from 0 */
  readonly at: number;
  readonly exactness: Exactness;
}

/** Returns the lines of a hunk that must be in the file. */
export function oldLinesOf(hunk: Hunk): readonly HunkLine[] {
  return hunk.lines.filter(({ kind }) => kind !== "add");
}

/**
 * Returns the place of each hunk of one update, or refuses the update.
 *
 * A wrong place is worse than a refusal, since the model reads "done" and goes on. So a place is taken only when it is the single best:
 *
 * 1. The end-of-file mark, and the lack of a newline there, leave one place: the last lines. A byte order mark leaves the first ones.
 * 2. A heading that the patch gives in a line of its own (`@@ class A`) leaves the places behind it.
 * 3. Of the places that are left, those count that equal the hunk's old lines most exactly. One such place is taken: the text decides,
 *    whatever line numbers say, because models write wrong numbers for right text.
 * 4. Of several in the file, the one is taken that alone is in the section of the heading.
 * 5. Of several, the one is taken that is exactly at the line number. The number is moved as far as the hunks are moved that rule 3
 *    placed. When the nearest of them above and below were moved differently, the numbers decide nothing, and neither do they against
 *    the heading behind them. The nearest place to a number is never taken: the lines at the number differ, so the file is
 *    not the one that the numbers were made for, and how far the place was moved is unknown.
 * 6. Hunks with the same old lines, and no line numbers, that nothing else tells apart are taken in their order when they are as many as
 *    the places in the file.
 *
 * The order of hunks decides nothing else: a patch whose hunks are out of order would change the wrong place. A hunk without old lines needs
 * line numbers, a heading or the end-of-file mark, except in an empty file. Lines that an earlier hunk adds are never looked at.
 *
 * A limit: where the text does not decide, nothing tells numbers of an older version of the file from those of this one, except the
 * hunks around them and the heading. Lines of context do.
 * @throws {ToolError} `patch_mismatch`, naming the hunk, counted from 1, the lines that come into question, and what to add
 */
export function placeHunks(hunks: readonly Hunk[], index: LineIndex, path: string): readonly PlacedHunk[] {
  const refuse = (hunk: number, reason: string): never => {
    throw new ToolError("patch_mismatch", `Cannot apply the patch to ${shown(path)}: hunk ${hunk + 1}: ${reason}`);
  };
  const sights = hunks.map((hunk, i) => {
    const sight = look(hunk, index);
    return sight.kind === "none" ? refuse(i, sight.reason) : sight;
  });
  const listed = placeListed(hunks, sights, index);
  const shifts = shiftsAround(hunks, sights);
  const placed = hunks.map((hunk, i): PlacedHunk => {
    const sight = sights[i] as Sight; // as many as hunks
    const found = decide(hunk, sight, { index, shift: shifts[i] });
    if (!("reason" in found)) return found;
    const own = listed.get(i);
    const isBelow = own !== undefined && own.at >= (sight.kind === "several" ? sight.headings?.first ?? 0 : 0);
    return isBelow ? own : refuse(i, found.reason);
  });
  let end = 0;
  for (const [i, { at }] of placed.entries()) {
    if (at < end) {
      refuse(
        i,
        `its place is line ${at + 1}, but hunk ${i} ends at line ${end}; hunks go from the top down and share no lines`,
      );
    }
    end = at + oldLinesOf(hunks[i] as Hunk).length; // as many as places
  }
  return placed;
}

/** Places that the text of a hunk, its headings and the end-of-file mark leave. */
type Sight =
  | { readonly kind: "one"; readonly at: number; readonly exactness: Exactness }
  | { readonly kind: "several"; readonly exactness: Exactness; readonly headings: HeadingPlaces | undefined }
  /** Added lines alone, with line numbers */
  | { readonly kind: "numbered" };

interface Refusal {
  readonly reason: string;
}

const LEVELS: readonly Exactness[] = ["ending", "text", "composed", "trimmed_end", "trimmed", "ascii"];

/** Returns the levels for a hunk, from the strictest. Line endings count only where the hunk has CRLF: most patches have none for any file. */
function levelsOf(old: readonly HunkLine[]): readonly Exactness[] {
  return old.some(({ crlf }) => crlf) ? LEVELS : LEVELS.slice(1);
}

function look(hunk: Hunk, index: LineIndex): Sight | ({ readonly kind: "none" } & Refusal) {
  const old = oldLinesOf(hunk);
  const headings = hunk.anchors.length === 0 ? undefined : findHeadings(hunk.anchors, index);
  if (headings !== undefined && "missing" in headings) {
    return { kind: "none", reason: missingLines([{ text: headings.missing, crlf: false }], index, "@@ ") };
  }
  if (hunk.endOfFile) return lookAtEnd(old, headings?.first ?? 0, index);
  if (hunk.startOfFile) return lookAtStart(old, index);
  if (old.length === 0) return lookForInsertion(hunk, headings, index);
  for (const exactness of levelsOf(old)) {
    const [at] = index.find(old, { exactness, from: headings?.first ?? 0, max: 1 });
    if (at === undefined) continue;
    const isOne = index.find(old, { exactness, max: 2 }).length === 1;
    return isOne ? { kind: "one", at, exactness } : { kind: "several", exactness, headings };
  }
  if (headings !== undefined && index.find(old, { exactness: "ascii", max: 1 }).length > 0) {
    return { kind: "none", reason: `${quoted(old)} is only above the @@ line; the lines of a hunk are below it` };
  }
  return { kind: "none", reason: missingLines(old, index) };
}

function lookAtEnd(
  old: readonly HunkLine[],
  first: number,
  index: LineIndex,
): Sight | ({ readonly kind: "none" } & Refusal) {
  const at = index.count - old.length;
  if (old.length === 0) return { kind: "one", at, exactness: "text" };
  const exactness = at < first ? undefined : levelsOf(old).find((level) => index.isAt(old, at, level));
  if (exactness !== undefined) return { kind: "one", at, exactness };
  const last = index.count === 0 ? "it is empty" : `line ${index.count} is ${quoted([lineAt(index, index.count - 1)])}`;
  return {
    kind: "none",
    reason: `${quoted(old)} and what follows are not the last lines of the file: ${last}; ` +
      'leave out "*** End of File" and "\\ No newline at end of file", or copy the last lines exactly',
  };
}

function lookAtStart(old: readonly HunkLine[], index: LineIndex): Sight | ({ readonly kind: "none" } & Refusal) {
  const exactness = levelsOf(old).find((level) => index.isAt(old, 0, level));
  return exactness === undefined
    ? { kind: "none", reason: missingLines(old, index) }
    : { kind: "one", at: 0, exactness };
}

function lookForInsertion(
  hunk: Hunk,
  headings: HeadingPlaces | undefined,
  index: LineIndex,
): Sight | ({ readonly kind: "none" } & Refusal) {
  if (headings !== undefined) {
    const [heading, second] = headings.starts;
    if (heading !== undefined && second === undefined) return { kind: "one", at: heading + 1, exactness: "text" };
    return { kind: "none", reason: ambiguousPlace("the @@ line", headings.starts, index) };
  }
  if (index.count === 0) return { kind: "one", at: 0, exactness: "text" };
  if (hunk.numbers?.count === 0) return { kind: "numbered" };
  return {
    kind: "none",
    reason: `it only adds lines, and nothing says where; ${UNDECIDED}, or "*** End of File" below it`,
  };
}

const lineAt = (index: LineIndex, at: number) => ({ text: index.textAt(at), crlf: false });

/** Places hunks with the same old lines and no line numbers, when they are as many as their places. */
function placeListed(
  hunks: readonly Hunk[],
  sights: readonly Sight[],
  index: LineIndex,
): ReadonlyMap<number, PlacedHunk> {
  const groups = new Map<string, number[]>();
  for (const [i, hunk] of hunks.entries()) {
    if (sights[i]?.kind !== "several" || hunk.numbers !== undefined) continue;
    const key = JSON.stringify(oldLinesOf(hunk).map(({ text, crlf }) => [text, crlf]));
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [i]);
    else group.push(i);
  }
  const listed = new Map<number, PlacedHunk>();
  for (const group of groups.values()) {
    const [first = 0] = group;
    const sight = sights[first];
    if (sight?.kind !== "several" || group.length === 1) continue;
    const { exactness } = sight;
    const places = index.find(oldLinesOf(hunks[first] as Hunk), { exactness, max: group.length + 1 }); // a number of a hunk
    if (places.length !== group.length) continue;
    for (const [n, at] of places.entries()) listed.set(group[n] ?? first, { at, exactness });
  }
  return listed;
}

/** Returns the line that the numbers of a hunk name, counted from 0. */
function namedLine({ line, count }: HunkNumbers): number {
  return count === 0 ? line : line - 1;
}

/**
 * Returns for each hunk how far the hunks around it are moved from their line numbers, in lines. Only those count that their text
 * places; above the first is the start of the file, which does not move. undefined where the nearest above and below disagree.
 */
function shiftsAround(hunks: readonly Hunk[], sights: readonly Sight[]): readonly (number | undefined)[] {
  const own = hunks.map(({ numbers }, i) => {
    const sight = sights[i];
    return numbers === undefined || sight?.kind !== "one" ? undefined : sight.at - namedLine(numbers);
  });
  let above = 0;
  const before = own.map((shift) => {
    const known = above;
    above = shift ?? above;
    return known;
  });
  let below: number | undefined;
  const after = own.toReversed().map((shift) => {
    const known = below;
    below = shift ?? below;
    return known;
  }).toReversed();
  return before.map((shift, i) => after[i] === undefined || after[i] === shift ? shift : undefined);
}

interface Decision {
  readonly index: LineIndex;
  readonly shift: number | undefined;
}

function decide(hunk: Hunk, sight: Sight, { index, shift }: Decision): PlacedHunk | Refusal {
  const { numbers } = hunk;
  const named = numbers === undefined || shift === undefined ? undefined : namedLine(numbers) + shift;
  switch (sight.kind) {
    case "one":
      return named === undefined ? sight : decideOne(hunk, sight, { index, named });
    case "several":
      return decideSeveral(hunk, sight, { index, named });
    case "numbered":
      return decideInsertion(numbers as HunkNumbers, { index, named }); // such a sight has numbers
  }
}

interface NamedPlace {
  readonly index: LineIndex;
  /** Place that the line numbers name, counted from 0. undefined when there are none, or they decide nothing */
  readonly named: number | undefined;
}

/** Refuses a place when the line numbers name another one that is only less exact: two signs for two places. */
function decideOne(
  hunk: Hunk,
  sight: Extract<Sight, { kind: "one" }>,
  { index, named = sight.at }: NamedPlace,
): PlacedHunk | Refusal {
  const old = oldLinesOf(hunk);
  if (
    named === sight.at || old.length === 0 || hunk.endOfFile || hunk.startOfFile || !index.isAt(old, named, "ascii")
  ) return sight;
  return { reason: ambiguousPlace(quoted(old), [sight.at, named].sort((a, b) => a - b), index) };
}

function decideSeveral(
  hunk: Hunk,
  { exactness, headings }: Extract<Sight, { kind: "several" }>,
  { index, named }: NamedPlace,
): PlacedHunk | Refusal {
  const old = oldLinesOf(hunk);
  const from = headings?.first ?? 0;
  const isNamed = named !== undefined && named >= from && index.isAt(old, named, exactness);
  const heading = hunk.numbers?.heading ?? "";
  const starts = headings?.starts ?? (heading === "" ? [] : findHeading(heading, index));
  if (isNamed && (starts.length === 0 || isBelowNearest(named, starts, index))) return { at: named, exactness };
  const places = index.find(old, { exactness, from });
  if (isNamed) {
    const inSection = possiblyWithin(places, starts, index);
    if (inSection.length === 0 || inSection.includes(named)) return { at: named, exactness };
    return {
      reason: ambiguousPlace(quoted(old), places, index, "its line number and its heading name different places"),
    };
  }
  const at = places.length === 1 ? possiblyWithin(places, starts, index)[0] : solePlaceWithin(places, starts, index);
  if (at !== undefined) return { at, exactness };
  return { reason: ambiguousPlace(quoted(old), index.find(old, { exactness }), index) };
}

function decideInsertion({ line, heading }: HunkNumbers, { index, named }: NamedPlace): PlacedHunk | Refusal {
  if (named === undefined) {
    return { reason: `it only adds lines, and the hunks around it have moved from their line numbers; ${UNDECIDED}` };
  }
  if (named < 0 || named > index.count) {
    return { reason: `it adds lines after line ${line}, but the file has ${index.count} lines; ${UNDECIDED}` };
  }
  if (heading !== "" && !isBelowHeading(named, heading, index)) {
    const below = JSON.stringify(heading);
    return { reason: `it adds lines after line ${named}, which is not below its heading ${below}; ${UNDECIDED}` };
  }
  return { at: named, exactness: "text" };
}

/** Tells whether lines that are added at a place may stand in a section with the heading. */
function isBelowHeading(place: number, heading: string, index: LineIndex): boolean {
  const starts = findHeading(heading, index);
  index.spend(starts.length);
  const above = starts.filter((at) => at < place);
  return possiblyWithin([place], above, index).length > 0;
}
