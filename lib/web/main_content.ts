import type { WorkBudget } from "../documents/work_budget.ts";
import { findHiding } from "./hidden_text.ts";
import { elementsIn, htmlAttribute, type HtmlElement, type HtmlNode, isElement, isShadowRoot } from "./parse_html.ts";

/** The part of a page that its readers come for. */
export interface MainContent {
  readonly root: HtmlElement;
  /** Elements inside the root that are left out: menus, advertisements, and what the page hides. */
  readonly dropped: ReadonlySet<HtmlElement>;
  /** Characters inside the root that the page hides from its readers, and that are left out */
  readonly hiddenCharacters: number;
  /** Characters outside of links that are left out since a class, an id or `aside` says that they surround the content, or the rest has most of the text */
  readonly aroundCharacters: number;
  /** Words that said so, in the order of the page */
  readonly marks: readonly string[];
  /** The page has its text in `noscript` alone */
  readonly isWithoutScripts: boolean;
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
/** Elements whose id is the anchor of a text more often than the name of a part. */
const ANCHORS = words("a p figure dl");
/** Elements of forms. They have no text of their own, or none that counts. */
const CONTROLS = words("input select textarea button");
/** Elements that the content can be, when no landmark says what it is. */
const CONTAINERS = words("body div section article main td table tbody tr form center blockquote font span");
/** Words in the class of what surrounds the content. */
const AROUND = new RegExp(
  `(?<![^-_ \\d])(?:${
    ("nav nav(?:bar|igation|igate|header|footer|box|links|panel|path|menu|frame) menu(?:bar)? submenu mainmenu side-?bar breadcrumbs? " +
      "crumbs? footer masthead topbar toolbar skip(?:link|nav)? share sharing social related recommend(?:ed|ations)? newsletter " +
      "subscribe promo sponsor(?:ed)? advert(?:isement)?s? ads? banner cookies? consent popup modal disqus pagination pager " +
      "prevnext toc tocframe most-?(?:read|popular) trending signup editsection headerlink spirit-nav nosearch outbrain taboola " +
      "tags? widget searchbox search login print").replaceAll(" ", "|")
  })(?![^-_ \\d])`,
  "gi",
);
/** Words of these that are in the classes of content as well. They count for what is a list of links or a form only. */
const WEAK = /^(?:tags?|widget|searchbox|search|login|print)$/;
/** An id is often made of a heading, so that only its last word counts. */
const AROUND_ID = new RegExp(
  `^(?:.*[-_])?(${
    ("nav(?:bar|igation|header|footer)? menu submenu sidebar breadcrumbs? footer masthead topbar toolbar share sharing social related " +
      "newsletter cookies? disqus pagination search toc tocframe").replaceAll(" ", "|")
  })\\d{0,9}$`,
  "i",
);
/** Words in the class of a note in the middle of the content, which some pages write as `aside`. */
const NOTE =
  /(?:^|[-_ ])(?:notes?|footnotes?|endnotes?|admonition|callout|tip|warning|caution|danger|important|hint|topic|starlight-aside)(?:$|[-_ ])/i;
/** Words that say that it is the content all the same. */
const CONTENT =
  /(?:^|[-_ ])(?:article|body|content|main|entry|post|story|page|text|document|column|wrapper|container)(?:$|[-_ ])/i;
/** UTF-16 units of a class or an id that are looked at. */
const MAX_NAME = 200;

/** Share of the page's text that an element which is left out for its class has at most. */
const MAX_AROUND_SHARE = 0.4;
/** Share of the text outside of links that is left out at most, for marks, and beside the part that holds the most. */
const MAX_LOST_SHARE = 0.2;
/** Looks at a page for marks. Each takes the word that has the most text off the list of marks. */
const MAX_LOOKS = 12;
/** Elements beside each other, with one class and text of their own, from which they are the content. */
const SIBLINGS = 3;
/** Share of a text in links from which the text is a list of links. */
const LIST_OF_LINKS = 0.5;
/** Characters, and share of the page's text, that a landmark needs to count. */
const MIN_LENGTH = 140;
const MIN_LANDMARK_SHARE = 0.2;
/** Share of the text outside of links from which a part is the content without the rest. */
const SURE_SHARE = 0.95;
/** Share of the rest in links from which the rest is a list of links. */
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
  const { silent, hidden, whole, isWithoutScripts } = measureSeen(document, body, budget);
  const landmark = findLandmark(body, whole);
  const found = findAround(landmark ?? body, whole, budget);
  const around = new Set(found.map(({ element }) => element));
  const dropped = new Set([...silent, ...hidden, ...around]);
  const { root, lost } = landmark === undefined ? densestPart(body, dropped, budget) : { root: landmark, lost: 0 };
  const marked = found.filter(({ element, mark }) => mark !== undefined && isInside(element, new Set([root])));
  return {
    ...{ root, dropped, isWithoutScripts },
    aroundCharacters: marked.reduce((sum, { element }) => sum + ownText(of(whole, element)), lost),
    hiddenCharacters: charactersIn(hidden, { root, around, budget }),
    marks: [...new Set(marked.map(({ mark = "" }) => mark))],
  };
}

/** Elements of a page that its readers do not see, and the amounts of the rest. */
interface SeenPage {
  readonly silent: ReadonlySet<HtmlElement>;
  readonly hidden: ReadonlySet<HtmlElement>;
  readonly whole: AllMeasures;
  readonly isWithoutScripts: boolean;
}

/**
 * Measures what the readers of a page see. Where most of the text is set aside, a script brings it into sight, and it counts. Where scripts
 * make the page, what it has in `noscript` counts.
 */
function measureSeen(document: HtmlElement, body: HtmlElement, budget: WorkBudget): SeenPage {
  const hidingOf = findHiding(document, budget);
  const isTitle = createTitleCheck();
  const look = (isWithoutScripts: boolean) => {
    const silent = new Set<HtmlElement>();
    const hidden = new Set<HtmlElement>();
    const aside: HtmlElement[] = [];
    const skip = (element: HtmlElement) => {
      const isShown = isTitle(element) || isShadowRoot(element) || (isWithoutScripts && element.tag === "noscript");
      if (SILENT.has(element.tag) && !isShown) {
        return silent.add(element) !== undefined;
      }
      const hiding = hidingOf(element);
      if (hiding === "set_aside") aside.push(element);
      return hiding === "hidden" && hidden.add(element) !== undefined;
    };
    return { silent, hidden, aside, whole: measure(body, { budget, skip }), isWithoutScripts };
  };
  let seen = look(false);
  if (of(seen.whole, body).text < MIN_LENGTH && [...seen.silent].some(({ tag }) => tag === "noscript")) {
    const more = look(true);
    if (of(more.whole, body).text >= MIN_LENGTH) seen = more;
  }
  const { silent, hidden, aside, whole } = seen;
  // The outer one of elements inside each other counts
  const asides = new Set(aside);
  const outer = aside.filter((element) => !isInside(element, asides));
  const text = outer.reduce((sum, element) => sum + of(whole, element).text, 0);
  if (outer.length === 0 || text > of(whole, body).text * REVEALED_SHARE) return seen;
  for (const element of outer) hidden.add(element);
  return { ...seen, whole: measure(body, { budget, skip: (one) => silent.has(one) || hidden.has(one) }) };
}

/** Elements above a button that are looked at for one that it is the title of */
const TITLE_LEVELS = 4;

/** Tells whether an element is a button that is all the text of a heading, as in a list of questions that open. */
function createTitleCheck(): (element: HtmlElement) => boolean {
  const known = new Map<HtmlElement, boolean>();
  return ({ tag, parent }) => {
    if (tag !== "button") return false;
    let title = parent;
    for (let level = 1; level < TITLE_LEVELS && title !== undefined && !TITLE.test(title.tag); level++) {
      title = title.parent;
    }
    if (title === undefined || !TITLE.test(title.tag)) return false;
    const isAll = known.get(title) ?? !/[\p{L}\p{N}]/u.test(seenText(title));
    known.set(title, isAll);
    return isAll;
  };
}

const HEADING = /^h[1-6]$/;
const TITLE = /^(?:h[1-6]|dt|summary|legend)$/;

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

/** Element that surrounds the content. */
interface Around {
  readonly element: HtmlElement;
  /** Word that says so, where the element does not say it by its nature, such as `nav` */
  readonly mark: string | undefined;
}

/**
 * Finds the outermost elements inside the root that surround the content. Words in classes and ids say so only of a small part of the text:
 * as long as there is more, the word that has the most of it is no mark on this page.
 */
function findAround(root: HtmlElement, measures: AllMeasures, budget: WorkBudget): readonly Around[] {
  const noMarks = new Set<string>();
  const options = { root, measures, noMarks, budget, classes: new Map<HtmlElement, readonly string[]>() };
  for (let look = 1;; look++) {
    const known = noMarks.size;
    const found = lookAround(options);
    if (look === MAX_LOOKS) return found.filter(({ mark }) => mark === undefined);
    if (noMarks.size > known) continue;
    const amounts = new Map<string, number>();
    let rest = ownText(of(measures, root));
    let sum = 0;
    for (const { element, mark } of found) {
      const text = ownText(of(measures, element));
      if (mark === undefined) rest -= text;
      else if (text > of(measures, element).text * LIST_OF_LINKS) {
        sum += text;
        amounts.set(mark, (amounts.get(mark) ?? 0) + text);
      }
    }
    if (sum <= Math.max(rest * MAX_LOST_SHARE, MIN_LENGTH)) return found;
    const [[most = ""] = []] = [...amounts].sort(([, a], [, b]) => b - a);
    noMarks.add(most);
  }
}

interface LookOptions {
  readonly root: HtmlElement;
  readonly measures: AllMeasures;
  /** Words that are no marks on this page. Weak ones that the content has are added. */
  readonly noMarks: Set<string>;
  /** Words of `AROUND` in the classes of elements that were looked at */
  readonly classes: Map<HtmlElement, readonly string[]>;
  readonly budget: WorkBudget;
}

function lookAround(options: LookOptions): readonly Around[] {
  const { root, measures, budget } = options;
  const found: Around[] = [];
  const visit = ({ children }: HtmlElement, heading: HtmlElement | undefined) => {
    let row: ReadonlySet<HtmlElement> | undefined;
    for (const child of children) {
      budget.step(8);
      if (!isElement(child) || !measures.has(child)) continue;
      const isPart = heading === undefined || of(measures, child).text < of(measures, heading).text;
      const mark = isPart ? markOf(child, heading !== undefined, options) : undefined;
      if (isPart && heading === undefined && isAroundByNature(child, options)) {
        found.push({ element: child, mark: undefined });
      } else if (mark !== undefined && !(row ??= inRows(children, options)).has(child)) {
        found.push({ element: child, mark });
      } // Classes inside code are those of a highlighter
      else if (child.tag !== "pre") visit(child, HEADING.test(child.tag) ? child : heading);
    }
  };
  visit(root, undefined);
  return found;
}

/** Returns elements that stand in a row of one tag and class and have text of their own: parts of the content, whatever their class is. */
function inRows(children: readonly HtmlNode[], { measures, budget }: LookOptions): ReadonlySet<HtmlElement> {
  const inRow = new Set<HtmlElement>();
  let row: HtmlElement[] = [];
  const close = () => {
    const text = row.reduce((sum, element) => sum + of(measures, element).text, 0);
    const own = row.reduce((sum, element) => sum + ownText(of(measures, element)), 0);
    if (row.length >= SIBLINGS && own >= MIN_LENGTH && own > text * LIST_OF_LINKS) {
      for (const element of row) inRow.add(element);
    }
    row = [];
  };
  for (const child of children.filter(isElement)) {
    budget.step(4);
    const [first = child] = row;
    if (first.tag !== child.tag || nameOf(first, "class") !== nameOf(child, "class")) close();
    row.push(child);
  }
  close();
  return inRow;
}

function isAroundByNature(element: HtmlElement, { root, measures, budget }: LookOptions): boolean {
  const { tag } = element;
  if (tag === "nav" || tag === "footer" || AROUND_ROLES.has(htmlAttribute(element, "role") ?? "")) return true;
  if (/^(?:.* )?footer(?: .*)?$/.test(nameOf(element, "class")) || nameOf(element, "id") === "footer") {
    return BLOCKS.has(tag) && of(measures, element).text <= of(measures, root).text * MAX_AROUND_SHARE;
  }
  return tag === "header" && firstInside(element, ({ tag: inside }) => /^h[1-3]$/.test(inside), budget) === undefined;
}

/** Returns the word that says that an element surrounds the content. Inside of a heading only what stands beside it does. */
function markOf(
  element: HtmlElement,
  isInHeading: boolean,
  { root, measures, noMarks, classes, budget }: LookOptions,
): string | undefined {
  const { tag } = element;
  const own = of(measures, element);
  const names = nameOf(element, "class");
  if (tag === "aside") return noMarks.has(tag) || isNote(element, names) ? undefined : tag;
  const isList = own.linked > own.text * LIST_OF_LINKS;
  const isLarge = own.text > of(measures, root).text * MAX_AROUND_SHARE;
  if (!BLOCKS.has(tag) || isLarge || (CONTENT.test(names) && !isList)) return undefined;
  const found = classes.get(element) ?? [...names.matchAll(AROUND)].map(([word]) => word.toLowerCase());
  classes.set(element, found);
  for (const word of found) {
    // Nobody comes for a list of links
    if (
      (noMarks.has(word) && (!isList || WEAK.test(word))) || (isInHeading && !/^(?:headerlink|editsection)$/.test(word))
    ) continue;
    if (!WEAK.test(word) || isList || firstInside(element, ({ tag: inside }) => CONTROLS.has(inside), budget)) {
      return word;
    }
    if (ownText(own) >= MIN_LENGTH) noMarks.add(word);
  }
  const word = AROUND_ID.exec(nameOf(element, "id"))?.[1]?.toLowerCase();
  if (word === undefined || isInHeading || ((noMarks.has(word) || ANCHORS.has(tag)) && !isList)) return undefined;
  const heading = firstInside(element, ({ tag: inside }) => HEADING.test(inside), budget);
  // The id of a section is made of its heading
  return heading !== undefined && seenText(heading).toLowerCase().includes(word) ? undefined : word;
}

function isNote(element: HtmlElement, names: string): boolean {
  return NOTE.test(names) || /^(?:note$|doc-)/.test(htmlAttribute(element, "role") ?? "");
}

/** Finds the first element inside an element, in the order of the page. */
function firstInside(
  { children }: HtmlElement,
  test: (element: HtmlElement) => boolean,
  budget: WorkBudget,
): HtmlElement | undefined {
  for (const child of children) {
    budget.step(2);
    if (!isElement(child)) continue;
    const found = test(child) ? child : firstInside(child, test, budget);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Follows the element that has nearly all of the text down from the body, until the text is spread or too much of the page would be lost. */
function densestPart(
  body: HtmlElement,
  dropped: ReadonlySet<HtmlElement>,
  budget: WorkBudget,
): { readonly root: HtmlElement; /** Characters outside of links that are beside the part */ readonly lost: number } {
  const measures = measure(body, { budget, skip: (element) => dropped.has(element) });
  const all = ownText(of(measures, body));
  let root = body;
  for (let next: HtmlElement | undefined = body; next !== undefined;) {
    root = next;
    next = heaviestPart(root, { least: all * (1 - MAX_LOST_SHARE), measures });
  }
  return { root, lost: all - ownText(of(measures, root)) };
}

function heaviestPart(
  element: HtmlElement,
  { least, measures }: { readonly least: number; readonly measures: AllMeasures },
): HtmlElement | undefined {
  let part: HtmlElement | undefined;
  let most = 0;
  for (const child of element.children) {
    if (!isElement(child)) continue;
    const own = ownText(of(measures, child));
    if (own > most) [part, most] = [child, own];
  }
  if (part === undefined || most < MIN_LENGTH || most < least || !CONTAINERS.has(part.tag)) return undefined;
  const whole = of(measures, element);
  if (most >= ownText(whole) * SURE_SHARE) return part;
  const inside = of(measures, part);
  const restInLinks = (whole.linked - inside.linked) / (whole.text - inside.text);
  return restInLinks > REST_IN_LINKS ? part : undefined;
}

function of(measures: AllMeasures, element: HtmlElement): Measures {
  return measures.get(element) ?? { text: 0, linked: 0 };
}

/** Returns the characters outside of links. */
function ownText({ text, linked }: Measures): number {
  return text - linked;
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
