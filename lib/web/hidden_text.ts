import type { WorkBudget } from "../documents/work_budget.ts";
import { elementsIn, htmlAttribute, type HtmlElement, textInside } from "./parse_html.ts";

/** Ways in which a page hides an element. `set_aside`: it takes room, or moves away, and a script often brings it into sight. */
export type Hiding = "hidden" | "set_aside";

/** Tells how a page hides an element; undefined for an element that it shows. */
export type HidingOf = (element: HtmlElement) => Hiding | undefined;

/** UTF-16 units of a style attribute, of the style sheets of a page, and of a rule that are looked at. */
const MAX_STYLE = 2000;
const MAX_SHEETS = 500_000;
const MAX_RULE = 4000;
/** Names that style sheets hide, of one page. */
const MAX_NAMES = 2000;

/**
 * Finds what hides elements of a page: the attributes `hidden` and `aria-hidden`, inline styles, and rules of its own style sheets for a
 * single class or id. A name that any other rule may show again hides nothing. Style sheets of other addresses are not read, and no colour
 * is compared with another.
 * @throws {DocumentError} `document_too_slow`
 */
export function findHiding(document: HtmlElement, budget: WorkBudget): HidingOf {
  const sheets = elementsIn(document).filter(counts).map(textInside).join("\n");
  budget.step(sheets.length >> 2);
  const names = hiddenNames(sheets.slice(0, MAX_SHEETS));
  return (element) => {
    if (element.attributes.length === 0) return undefined;
    budget.step(4);
    if (htmlAttribute(element, "hidden") !== undefined || htmlAttribute(element, "aria-hidden") === "true") {
      return "hidden";
    }
    const style = htmlAttribute(element, "style");
    const inline = style === undefined ? undefined : hidingOf(declarationsOf(style.slice(0, MAX_STYLE)));
    if (inline !== undefined || names.size === 0) return inline;
    return namesOf(element).map((name) => names.get(name)).find((found) => found !== undefined);
  };
}

/** Tells whether a style sheet is for screens, in a browser that runs scripts. */
function counts(element: HtmlElement): boolean {
  if (element.tag !== "style" || element.parent?.tag === "noscript") return false;
  return /^$|screen|all/i.test(htmlAttribute(element, "media")?.trim() ?? "");
}

function namesOf(element: HtmlElement): readonly string[] {
  const id = htmlAttribute(element, "id");
  const classes = (htmlAttribute(element, "class") ?? "").slice(0, MAX_STYLE).split(/\s+/);
  return [...classes.map((name) => `.${name}`), ...(id === undefined ? [] : [`#${id}`])];
}

type Declarations = ReadonlyMap<string, string>;

/** Returns properties and values in lower case; of a property that comes twice the last value counts. */
function declarationsOf(text: string): Declarations {
  const declarations = new Map<string, string>();
  for (const declaration of text.split(";")) {
    const colon = declaration.indexOf(":");
    if (colon === -1) continue;
    const value = declaration.slice(colon + 1).replace(/!\s*important/i, "").trim().toLowerCase();
    declarations.set(declaration.slice(0, colon).trim().toLowerCase(), value);
  }
  return declarations;
}

/** Pixels from which a place is off every screen. */
const FAR = 900;

function hidingOf(style: Declarations): Hiding | undefined {
  const is = (property: string, pattern: RegExp) => pattern.test(style.get(property) ?? "");
  if (is("display", /^none$/) || is("visibility", /^(?:hidden|collapse)$/)) return "hidden";
  if (
    is("font-size", /^(?:0{0,9}(?:\.\d{1,9})?|0{0,9}1(?:\.0{1,9})?)(?:px|pt)$|^0{1,9}(?:\.0{1,9})?(?:[a-z]{1,5}|%)?$/)
  ) {
    return "hidden";
  }
  if (is("opacity", /^0{0,9}\.?0{1,9}%?$/) || is("transform", /\bscale\(\s*0\s*[,)]/)) return "set_aside";
  const isMoved = is("position", /^(?:absolute|fixed)$/);
  if (isMoved && ["left", "right", "top", "bottom"].some((side) => isFar(style.get(side)))) return "set_aside";
  if (isFar(style.get("text-indent"))) return "set_aside";
  if (isMoved && (is("clip", /^rect\(\s*(?:[01](?:px)?[\s,]*){4}\)$/) || is("clip-path", /^inset\(\s*(?:50|100)%/))) {
    return "set_aside";
  }
  const isFlat = is("height", /^[01](?:px)?$/) || is("max-height", /^[01](?:px)?$/) || is("width", /^[01](?:px)?$/);
  return isFlat && is("overflow", /^(?:hidden|clip)/) ? "set_aside" : undefined;
}

function isFar(length: string | undefined): boolean {
  const [, number = "0", unit = ""] = /^-(\d{1,9})(?:\.\d{1,9})?(px|em|rem|vw|vh|%)$/.exec(length ?? "") ?? [];
  const pixels = Number(number) * (unit === "px" ? 1 : unit === "em" || unit === "rem" ? 16 : 10);
  return pixels >= FAR;
}

/** Properties by which a rule may show what another hides. */
const SHOWING =
  /^(?:display|visibility|opacity|font-size|position|left|right|top|bottom|text-indent|clip|clip-path|transform|height|max-height|width|overflow|all|animation|animation-name)$/;

/** Returns the classes and ids, such as `.name` and `#name`, that the rules of style sheets hide and that no rule shows. */
function hiddenNames(sheets: string): ReadonlyMap<string, Hiding> {
  const names = new Map<string, Hiding>();
  const shown = new Set<string>();
  for (const { selector, declarations, isNested } of rulesOf(sheets)) {
    const style = declarationsOf(declarations);
    const hiding = hidingOf(style);
    const isShowing = hiding === undefined && [...style.keys()].some((property) => SHOWING.test(property));
    if (hiding === undefined && !isShowing) continue;
    for (const one of selector.split(",")) {
      const plain = one.trim();
      if (isShowing) { for (const [name] of plain.matchAll(/[.#][\w-]{1,100}/g)) shown.add(name); }
      else if (!isNested && /^[.#][\w-]{1,100}$/.test(plain) && names.size < MAX_NAMES) {
        names.set(plain, hiding ?? "hidden");
      }
    }
  }
  for (const name of shown) names.delete(name);
  return names;
}

interface StyleRule {
  readonly selector: string;
  readonly declarations: string;
  /** True inside `@media` and its like, which may not count here */
  readonly isNested: boolean;
}

/** Goes through the innermost rules of style sheets. Takes time in proportion to their length. */
function* rulesOf(sheets: string): Iterable<StyleRule> {
  const text = sheets.replace(/\/\*[^]*?(?:\*\/|$)/g, "");
  let depth = 0;
  let selector = "";
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === "{") {
      depth++;
      selector = text.slice(Math.max(from, at - MAX_RULE), at);
      from = at + 1;
    } else if (character === "}") {
      if (selector !== "" && !selector.trim().startsWith("@")) {
        yield { selector, declarations: text.slice(from, Math.min(at, from + MAX_RULE)), isNested: depth > 1 };
      }
      depth = Math.max(0, depth - 1);
      selector = "";
      from = at + 1;
    } else if (character === ";" && selector === "") from = at + 1;
  }
}
