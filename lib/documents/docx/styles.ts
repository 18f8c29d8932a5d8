import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { isOn, toInteger, valueOf, wordAttribute } from "./open_docx.ts";

/** Longest chain of styles based on each other */
const MAX_CHAIN = 20;
const HEADING_LEVELS = 9;
const TITLE = /^title$/i;

/** The properties that a paragraph takes from its style. */
export interface ParagraphStyle {
  /** 1 to 9; undefined for no heading */
  readonly heading: number | undefined;
  readonly numberingId: string | undefined;
  readonly numberingLevel: number | undefined;
  readonly hidden: boolean;
}

const PLAIN: ParagraphStyle = { heading: undefined, numberingId: undefined, numberingLevel: undefined, hidden: false };

/** Finds a style by its id, with what it takes from the styles it is based on. */
export function readStyles(root: XmlElement | undefined): (id: string | undefined) => ParagraphStyle {
  const elements = new Map<string, XmlElement>();
  for (const element of root === undefined ? [] : elementsOf(root)) {
    const id = element.name === "w:style" ? wordAttribute(element, "styleId") : undefined;
    if (id !== undefined) elements.set(id, element);
  }
  const known = new Map<string, ParagraphStyle>();
  const find = (id: string, depth: number): ParagraphStyle => {
    const element = elements.get(id);
    // Without a styles part the ids that Word itself writes still tell the headings
    if (element === undefined) return { ...PLAIN, heading: headingOf(id) };
    const basedOn = valueOf(element, "w:basedOn");
    const base = basedOn === undefined || depth >= MAX_CHAIN ? PLAIN : find(basedOn, depth + 1);
    const properties = childOf(element, "w:pPr");
    const numbering = properties === undefined ? undefined : childOf(properties, "w:numPr");
    return {
      heading: outlineOf(properties) ?? headingOf(valueOf(element, "w:name") ?? "") ??
        (isTitle(elements, basedOn) ? undefined : base.heading),
      numberingId: valueOf(numbering, "w:numId") ?? base.numberingId,
      numberingLevel: toInteger(valueOf(numbering, "w:ilvl")) ?? base.numberingLevel,
      hidden: isOn(childOf(element, "w:rPr"), "w:vanish") || base.hidden,
    };
  };
  return (id) => {
    if (id === undefined) return PLAIN;
    const style = known.get(id) ?? find(id, 0);
    known.set(id, style);
    return style;
  };
}

/** Author and date are often based on the title, and are no headings. */
function isTitle(elements: ReadonlyMap<string, XmlElement>, id: string | undefined): boolean {
  return id !== undefined && TITLE.test(valueOf(elements.get(id), "w:name") ?? id);
}

/** Returns the heading level that paragraph properties name; 9 and more mean text. */
export function outlineOf(properties: XmlElement | undefined): number | undefined {
  const level = toInteger(valueOf(properties, "w:outlineLvl"));
  return level === undefined || level < 0 || level >= HEADING_LEVELS ? undefined : level + 1;
}

function headingOf(name: string): number | undefined {
  if (TITLE.test(name)) return 1;
  return toInteger(/^heading ?([1-9])$/i.exec(name)?.[1]);
}

const LEVELS = 9;
const MAX_LABEL = 40;

/** Counts the paragraphs of numbered lists in the order of the document. */
export interface Numbering {
  /** The label of the next paragraph of a list, `-` for a bullet; undefined when there is no such list */
  next(numberingId: string, level: number): string | undefined;
}

interface Level {
  readonly start: number;
  /** As `decimal`, `bullet` */
  readonly format: string;
  /** As `%1.%2.` */
  readonly text: string;
}

interface List {
  /** Lists of one abstract definition count on together */
  readonly abstractId: string;
  readonly levels: readonly Level[];
  /** Levels that this list starts over at its first paragraph */
  readonly restarts: ReadonlyMap<number, number>;
}

/** Reads the numbering of lists. Source: ECMA-376 part 1, section 17.9 */
export function readNumbering(root: XmlElement | undefined): Numbering {
  const lists = readLists(root);
  const counters = new Map<string, number[]>();
  const started = new Set<string>();
  return {
    next(numberingId, level) {
      const list = lists.get(numberingId);
      const at = Math.min(Math.max(level, 0), LEVELS - 1);
      const definition = list?.levels[at];
      if (list === undefined || definition === undefined) return undefined;
      const counts = counters.get(list.abstractId) ?? [];
      counters.set(list.abstractId, counts);
      if (!started.has(numberingId)) {
        started.add(numberingId);
        for (const [restarted, start] of list.restarts) counts[restarted] = start - 1;
      }
      counts[at] = (counts[at] ?? definition.start - 1) + 1;
      // A paragraph restarts the levels below it
      counts.length = at + 1;
      return labelOf(list.levels, counts, at);
    },
  };
}

function labelOf(levels: readonly Level[], counts: readonly number[], at: number): string {
  const { format, text } = levels[at] ?? { format: "none", text: "" };
  if (format === "bullet") return "-";
  const label = text.replace(/%([1-9])/g, (_whole, digit) => {
    const index = Number(digit) - 1;
    const level = levels[index];
    return level === undefined ? "" : formatNumber(counts[index] ?? level.start, level.format);
  });
  return label.trim().slice(0, MAX_LABEL);
}

function formatNumber(value: number, format: string): string {
  switch (format) {
    case "lowerLetter":
      return letters(value);
    case "upperLetter":
      return letters(value).toUpperCase();
    case "lowerRoman":
      return roman(value);
    case "upperRoman":
      return roman(value).toUpperCase();
    case "decimalZero":
      return String(value).padStart(2, "0");
    case "none":
    case "bullet":
      return "";
    default:
      return String(value);
  }
}

/** a to z, then aa to zz, as Word counts. */
function letters(value: number): string {
  if (value < 1 || value > 780) return String(value);
  return String.fromCharCode(97 + (value - 1) % 26).repeat(Math.ceil(value / 26));
}

const ROMAN = [
  ...[["m", 1000], ["cm", 900], ["d", 500], ["cd", 400], ["c", 100], ["xc", 90], ["l", 50]] as const,
  ...[["xl", 40], ["x", 10], ["ix", 9], ["v", 5], ["iv", 4], ["i", 1]] as const,
] as const;

function roman(value: number): string {
  if (value < 1 || value > 3999) return String(value);
  let rest = value;
  let text = "";
  for (const [sign, worth] of ROMAN) {
    for (; rest >= worth; rest -= worth) text += sign;
  }
  return text;
}

function readLists(root: XmlElement | undefined): Map<string, List> {
  const elements = root === undefined ? [] : elementsOf(root);
  const abstract = new Map<string, Map<number, Level>>();
  for (const element of elements) {
    const id = element.name === "w:abstractNum" ? wordAttribute(element, "abstractNumId") : undefined;
    if (id !== undefined) abstract.set(id, readLevels(element));
  }
  const lists = new Map<string, List>();
  for (const element of elements) {
    const id = element.name === "w:num" ? wordAttribute(element, "numId") : undefined;
    const abstractId = valueOf(element, "w:abstractNumId");
    const levels = abstractId === undefined ? undefined : abstract.get(abstractId);
    if (id === undefined || abstractId === undefined || levels === undefined) continue;
    lists.set(id, toList(element, { abstractId, levels }));
  }
  return lists;
}

function toList(
  element: XmlElement,
  { abstractId, levels }: { readonly abstractId: string; readonly levels: ReadonlyMap<number, Level> },
): List {
  const own = new Map(levels);
  const restarts = new Map<number, number>();
  for (const override of elementsOf(element).filter(({ name }) => name === "w:lvlOverride")) {
    const at = toInteger(wordAttribute(override, "ilvl"));
    if (at === undefined || at < 0 || at >= LEVELS) continue;
    const replaced = childOf(override, "w:lvl");
    if (replaced !== undefined) own.set(at, toLevel(replaced));
    const start = toInteger(valueOf(override, "w:startOverride"));
    if (start !== undefined) restarts.set(at, start);
  }
  const none: Level = { start: 1, format: "none", text: "" };
  return { abstractId, restarts, levels: Array.from({ length: LEVELS }, (_, at) => own.get(at) ?? none) };
}

function readLevels(element: XmlElement): Map<number, Level> {
  const levels = new Map<number, Level>();
  for (const child of elementsOf(element)) {
    const at = child.name === "w:lvl" ? toInteger(wordAttribute(child, "ilvl")) : undefined;
    if (at !== undefined && at >= 0 && at < LEVELS) levels.set(at, toLevel(child));
  }
  return levels;
}

function toLevel(element: XmlElement): Level {
  return {
    start: toInteger(valueOf(element, "w:start")) ?? 1,
    format: valueOf(element, "w:numFmt") ?? "decimal",
    text: (valueOf(element, "w:lvlText") ?? "").slice(0, MAX_LABEL),
  };
}
