import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { isOn, toInteger, valueOf, wordAttribute } from "./value_of.ts";

/** Longest chain of styles based on each other */
const MAX_CHAIN = 20;
const HEADING_LEVELS = 9;
const TITLE = /^title$/i;

/** What a paragraph gets from its style. */
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

/** The heading level that paragraph properties name; 9 and more mean text. */
export function outlineOf(properties: XmlElement | undefined): number | undefined {
  const level = toInteger(valueOf(properties, "w:outlineLvl"));
  return level === undefined || level < 0 || level >= HEADING_LEVELS ? undefined : level + 1;
}

function headingOf(name: string): number | undefined {
  if (TITLE.test(name)) return 1;
  return toInteger(/^heading ?([1-9])$/i.exec(name)?.[1]);
}
