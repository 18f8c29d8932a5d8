import type { WorkBudget } from "../documents/work_budget.ts";
import { findHiding } from "./hidden_text.ts";
import { elementsIn, htmlAttribute, type HtmlElement, isElement } from "./parse_html.ts";

/** The part of a page that its readers come for. */
export interface MainContent {
  readonly root: HtmlElement;
  /** Elements inside the root that are left out: menus, advertisements, and what the page hides. */
  readonly dropped: ReadonlySet<HtmlElement>;
  /** Characters inside the root that the page hides from its readers, and that are left out */
  readonly hiddenCharacters: number;
}

/** Elements whose text nobody reads as part of the page. */
const SILENT = words(
  "script style noscript template svg iframe object embed canvas audio video map button select textarea input datalist dialog head " +
    "frameset applet",
);
const AROUND_ROLES = words(
  "navigation banner contentinfo complementary search menu menubar toolbar dialog alertdialog",
);
/** Elements that are left out for a word in their class. A word on an inline element says how it looks. */
const BLOCKS = words("div section table td ul ol dl p header form center fieldset article a figure");
/** Elements that the content can be, when no landmark says what it is. */
const CONTAINERS = words("body div section article main td table tbody tr form center blockquote font span");
/** Words in the class of what surrounds the content. */
const AROUND = new RegExp(
  `(?:^|[-_ \\d])(?:${
    ("nav nav(?:bar|igation|igate|header|footer|box|links|panel|menu|frame) menu(?:bar)? submenu mainmenu side-?bar breadcrumbs? " +
      "crumbs? footer masthead topbar toolbar skip(?:link|nav)? share sharing social related recommend(?:ed|ations)? newsletter " +
      "subscribe promo sponsor(?:ed)? advert(?:isement)?s? ads? banner cookies? consent popup modal comments? disqus pagination pager " +
      "prevnext tags? widget searchbox search toc tocframe most-?(?:read|popular) trending signup login print editsection headerlink " +
      "spirit-nav nosearch outbrain taboola").replaceAll(" ", "|")
  })(?:$|[-_ \\d])`,
  "i",
);
/** An id is often made of a heading, so that only its last word counts. */
const AROUND_ID = new RegExp(
  `^(?:.*[-_])?(?:${
    ("nav(?:bar|igation|header|footer)? menu submenu sidebar breadcrumbs? footer masthead topbar toolbar share sharing social related " +
      "newsletter cookies? comments? disqus pagination search toc tocframe").replaceAll(" ", "|")
  })\\d{0,9}$`,
  "i",
);
/** Words that say that it is the content all the same. */
const CONTENT =
  /(?:^|[-_ ])(?:article|body|content|main|entry|post|story|page|text|document|column|wrapper|container)(?:$|[-_ ])/i;
/** UTF-16 units of a class or an id that are looked at. */
const MAX_NAME = 200;

/** Share of the page's text that an element which is left out for its class has at most. */
const MAX_AROUND_SHARE = 0.4;
/** Share of a text in links from which the text is a list of links. */
const LIST_OF_LINKS = 0.5;
/** Characters, and share of the page's text, that a landmark needs to count. */
const MIN_LENGTH = 140;
const MIN_LANDMARK_SHARE = 0.2;
/** Share of the text outside of links from which a part is the content without the rest. */
const SURE_SHARE = 0.9;
/** Share that is enough where the rest is lists of links, as from `REST_IN_LINKS` on. */
const PART_SHARE = 0.5;
const REST_IN_LINKS = 0.3;

/** Share of the page's text from which what is set aside is what a script brings into sight. */
const REVEALED_SHARE = 0.5;

/** Amounts of text. */
interface Measures {
  /** Characters, white space counted once */
  readonly text: number;
  /** Characters inside links */
  readonly linked: number;
}

/**
 * Finds the main content of a page: its landmark (`main`, `role=main`, the only `article`) where it has one, else the part that holds
 * nearly all text outside of links. Elements that are hidden, or that say that they surround the content, are left out.
 *
 * Shares and words were chosen on 240 pages of documentation, encyclopedias and news (docs/design/dependencies.md "Written by hand").
 * @throws {DocumentError} `document_too_slow`
 */
export function findMainContent(document: HtmlElement, budget: WorkBudget): MainContent {
  const body = elementsIn(document).find(({ tag }) => tag === "body") ?? document;
  const { silent, hidden, whole } = measureSeen(document, body, budget);
  const landmark = findLandmark(body, whole);
  const around = findAround(landmark ?? body, whole, budget);
  const dropped = new Set([...silent, ...hidden, ...around]);
  const root = landmark ?? densestPart(body, dropped, budget);
  return { root, dropped, hiddenCharacters: charactersIn(hidden, { root, around: new Set(around), budget }) };
}

/** Elements of a page that its readers do not see, and the amounts of the rest. */
interface SeenPage {
  readonly silent: ReadonlySet<HtmlElement>;
  readonly hidden: ReadonlySet<HtmlElement>;
  readonly whole: AllMeasures;
}

/** Measures what the readers of a page see. Where most of the text is set aside, a script brings it into sight, and it counts. */
function measureSeen(document: HtmlElement, body: HtmlElement, budget: WorkBudget): SeenPage {
  const hidingOf = findHiding(document, budget);
  const silent = new Set<HtmlElement>();
  const hidden = new Set<HtmlElement>();
  const aside: HtmlElement[] = [];
  const skip = (element: HtmlElement) => {
    if (SILENT.has(element.tag)) return silent.add(element) !== undefined;
    const hiding = hidingOf(element);
    if (hiding === "set_aside") aside.push(element);
    return hiding === "hidden" && hidden.add(element) !== undefined;
  };
  const whole = measure(body, { budget, skip });
  // The outer one of elements inside each other counts
  const asides = new Set(aside);
  const outer = aside.filter((element) => !isInside(element, asides));
  const text = outer.reduce((sum, element) => sum + of(whole, element).text, 0);
  if (outer.length === 0 || text > of(whole, body).text * REVEALED_SHARE) return { silent, hidden, whole };
  for (const element of outer) hidden.add(element);
  return { silent, hidden, whole: measure(body, { budget, skip: (one) => silent.has(one) || hidden.has(one) }) };
}

/** Returns the number of characters in hidden elements of the content. What holds no word is an icon or a mark. */
function charactersIn(
  hidden: ReadonlySet<HtmlElement>,
  { root, around, budget }: {
    readonly root: HtmlElement;
    readonly around: ReadonlySet<HtmlElement>;
    readonly budget: WorkBudget;
  },
): number {
  let characters = 0;
  const roots = new Set([root]);
  for (const element of hidden) {
    budget.step(MAX_DEPTH_STEPS);
    if (!isInside(element, roots) || isInside(element, around)) continue;
    const text = seenText(element);
    if (/[\p{L}\p{N}]{2}/u.test(text)) characters += lengthOf(text);
  }
  return characters;
}

function seenText({ children }: HtmlElement): string {
  return children.map((child) => isElement(child) ? (SILENT.has(child.tag) ? "" : seenText(child)) : child.text).join(
    "",
  );
}

/** Tells whether an element lies in one of others. */
function isInside(element: HtmlElement, others: ReadonlySet<HtmlElement>): boolean {
  for (let at = element.parent; at !== undefined; at = at.parent) if (others.has(at)) return true;
  return false;
}

/** Elements that a walk up through a page meets, about */
const MAX_DEPTH_STEPS = 50;

type AllMeasures = ReadonlyMap<HtmlElement, Measures>;

/** Measures an element and all elements inside it. A skipped element has no measures and counts nowhere. */
function measure(
  root: HtmlElement,
  { budget, skip }: { readonly budget: WorkBudget; readonly skip: (element: HtmlElement) => boolean },
): AllMeasures {
  const measures = new Map<HtmlElement, Measures>();
  const visit = (element: HtmlElement, inLink: boolean): Measures => {
    let text = 0;
    let linked = 0;
    budget.step(8);
    for (const child of element.children) {
      if (!isElement(child)) {
        const length = lengthOf(child.text);
        budget.step(2 + (child.text.length >> 3));
        text += length;
        if (inLink) linked += length;
      } else if (!skip(child)) {
        const inside = visit(child, inLink || (child.tag === "a" && htmlAttribute(child, "href") !== undefined));
        text += inside.text;
        linked += inside.linked;
      }
    }
    const own = { text, linked };
    measures.set(element, own);
    return own;
  };
  visit(root, false);
  return measures;
}

function findLandmark(body: HtmlElement, measures: AllMeasures): HtmlElement | undefined {
  const seen = elementsIn(body).filter((element) => measures.has(element));
  const { text: all } = of(measures, body);
  const isEnough = (element: HtmlElement) => {
    const { text } = of(measures, element);
    return text >= MIN_LENGTH && text >= all * MIN_LANDMARK_SHARE;
  };
  const main = seen.find((element) =>
    (element.tag === "main" || htmlAttribute(element, "role") === "main") && isEnough(element)
  );
  if (main !== undefined) return main;
  const articles = seen.filter(({ tag }) => tag === "article");
  return articles.length === 1 ? articles.find(isEnough) : undefined;
}

/** Finds the outermost elements inside the root that surround the content. */
function findAround(root: HtmlElement, measures: AllMeasures, budget: WorkBudget): readonly HtmlElement[] {
  const found: HtmlElement[] = [];
  const { text: all } = of(measures, root);
  const visit = ({ children }: HtmlElement) => {
    for (const child of children) {
      budget.step(8);
      if (!isElement(child) || !measures.has(child)) continue;
      if (isAround(child, of(measures, child), all)) found.push(child);
      // Classes inside code are those of a highlighter
      else if (child.tag !== "pre") visit(child);
    }
  };
  visit(root);
  return found;
}

function isAround(element: HtmlElement, { text, linked }: Measures, all: number): boolean {
  const { tag } = element;
  if (tag === "nav" || tag === "aside" || tag === "footer") return true;
  if (AROUND_ROLES.has(htmlAttribute(element, "role") ?? "")) return true;
  if (tag === "header") return !elementsIn(element).some((inside) => /^h[1-3]$/.test(inside.tag));
  if (!BLOCKS.has(tag) || text > all * MAX_AROUND_SHARE) return false;
  const names = nameOf(element, "class");
  if (!AROUND.test(names) && !AROUND_ID.test(nameOf(element, "id"))) return false;
  return !CONTENT.test(names) || linked > text * LIST_OF_LINKS;
}

/** Follows the element that has nearly all of the text down from the body, until the text is spread. */
function densestPart(body: HtmlElement, dropped: ReadonlySet<HtmlElement>, budget: WorkBudget): HtmlElement {
  const measures = measure(body, { budget, skip: (element) => dropped.has(element) });
  let at = body;
  for (let next: HtmlElement | undefined = body; next !== undefined; next = heaviestPart(at, measures)) at = next;
  return at;
}

function heaviestPart(element: HtmlElement, measures: AllMeasures): HtmlElement | undefined {
  let part: HtmlElement | undefined;
  let most = 0;
  for (const child of element.children) {
    if (!isElement(child)) continue;
    const { text, linked } = of(measures, child);
    if (text - linked > most) [part, most] = [child, text - linked];
  }
  if (part === undefined || most < MIN_LENGTH || !CONTAINERS.has(part.tag)) return undefined;
  const whole = of(measures, element);
  const share = most / (whole.text - whole.linked);
  if (share >= SURE_SHARE) return part;
  const inside = of(measures, part);
  const restInLinks = (whole.linked - inside.linked) / (whole.text - inside.text);
  return share >= PART_SHARE && restInLinks > REST_IN_LINKS ? part : undefined;
}

function of(measures: AllMeasures, element: HtmlElement): Measures {
  return measures.get(element) ?? { text: 0, linked: 0 };
}

/** Returns the number of characters, with runs of white space counted as one and none at the ends. */
function lengthOf(text: string): number {
  return text.replace(/\s+/g, " ").trim().length;
}

function nameOf(element: HtmlElement, attribute: "class" | "id"): string {
  return (htmlAttribute(element, attribute) ?? "").slice(0, MAX_NAME);
}

function words(text: string): ReadonlySet<string> {
  return new Set(text.split(" "));
}
