import { elementsIn, htmlAttribute, type HtmlElement, textInside } from "./parse_html.ts";

/** Facts about a page, as it states them. Each is one line. */
export interface PageMetadata {
  readonly title: string | undefined;
  readonly byline: string | undefined;
  readonly date: string | undefined;
  /** The page's own address for itself, absolute */
  readonly canonicalUrl: string | undefined;
}

const MAX_CHARACTERS = 300;
const MAX_URL = 2000;
/** Characters of one script of JSON-LD that are parsed, and scripts that are looked at. */
const MAX_JSON = 100_000;
const MAX_SCRIPTS = 5;

const TITLES = ["og:title", "citation_title", "dc.title", "twitter:title"];
const AUTHORS = ["author", "article:author", "citation_author", "dc.creator", "parsely-author", "byl"];
const DATES = [
  "article:published_time",
  "citation_publication_date",
  "dc.date",
  "dc.date.issued",
  "date",
  "pubdate",
  "parsely-pub-date",
  "article:modified_time",
];

/** Reads the metadata of a page: Open Graph, Dublin Core, citation and parsely tags, JSON-LD, microdata. */
export function readMetadata(document: HtmlElement, baseUrl: string): PageMetadata {
  const elements = elementsIn(document);
  const named = metaTags(elements);
  const linked = linkedData(elements);
  const first = (names: readonly string[]) => names.map((name) => named.get(name)).find((value) => value !== undefined);
  const title = elements.find(({ tag, parent }) => tag === "title" && parent?.tag !== "svg");
  const heading = elements.find(({ tag }) => tag === "h1");
  const author = first(AUTHORS.filter((name) => !/^https?:/.test(named.get(name) ?? "")));
  return {
    title: first(TITLES) ?? lineOf(title) ?? lineOf(heading),
    byline: author ?? linked.author ?? lineOf(elements.find(isByline)),
    date: first(DATES) ?? linked.date ?? dateOf(elements),
    canonicalUrl: canonicalOf(elements, baseUrl) ?? absolute(named.get("og:url"), baseUrl),
  };
}

function metaTags(elements: readonly HtmlElement[]): ReadonlyMap<string, string> {
  const tags = new Map<string, string>();
  for (const element of elements) {
    if (element.tag !== "meta") continue;
    const name =
      (htmlAttribute(element, "property") ?? htmlAttribute(element, "name") ?? htmlAttribute(element, "itemprop") ?? "")
        .slice(0, 60).toLowerCase();
    const value = oneLine(htmlAttribute(element, "content"));
    if (value !== undefined && !tags.has(name)) tags.set(name, value);
  }
  return tags;
}

/** Author and date of the first item of JSON-LD that has one. */
function linkedData(elements: readonly HtmlElement[]) {
  const scripts = elements.filter((element) =>
    element.tag === "script" && htmlAttribute(element, "type") === "application/ld+json"
  );
  let author: string | undefined;
  let date: string | undefined;
  for (const script of scripts.slice(0, MAX_SCRIPTS)) {
    for (const item of itemsOf(textInside(script))) {
      author ??= nameOf(item["author"]);
      date ??= oneLine(item["datePublished"]);
    }
  }
  return { author, date };
}

type JsonObject = Readonly<Record<string, unknown>>;

function itemsOf(json: string): readonly JsonObject[] {
  if (json.length > MAX_JSON) return [];
  try {
    const parsed: unknown = JSON.parse(json);
    const items = Array.isArray(parsed) ? parsed : [parsed];
    return items.slice(0, 20).flatMap((item) => {
      if (!isObject(item)) return [];
      const graph = item["@graph"];
      return [item, ...(Array.isArray(graph) ? graph.slice(0, 50).filter(isObject) : [])];
    });
  } catch {
    return [];
  }
}

function nameOf(author: unknown): string | undefined {
  const authors = (Array.isArray(author) ? author : [author]).slice(0, 5);
  const names = authors.map((one) => oneLine(isObject(one) ? one["name"] : one)).filter((name) => name !== undefined);
  return names.length === 0 ? undefined : oneLine(names.join(", "));
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null;
}

function isByline(element: HtmlElement): boolean {
  if (htmlAttribute(element, "rel") === "author" || htmlAttribute(element, "itemprop") === "author") return true;
  return /(?:^|\s)(?:byline|author-name)(?:\s|$)/.test((htmlAttribute(element, "class") ?? "").slice(0, 200));
}

function dateOf(elements: readonly HtmlElement[]): string | undefined {
  const time = elements.find((element) => element.tag === "time" && htmlAttribute(element, "datetime") !== undefined);
  return time === undefined ? undefined : oneLine(htmlAttribute(time, "datetime"));
}

function canonicalOf(elements: readonly HtmlElement[], baseUrl: string): string | undefined {
  const link = elements.find((element) =>
    element.tag === "link" && htmlAttribute(element, "rel")?.toLowerCase() === "canonical"
  );
  return link === undefined ? undefined : absolute(htmlAttribute(link, "href"), baseUrl);
}

function absolute(written: string | undefined, baseUrl: string): string | undefined {
  if (written === undefined || written.length > MAX_URL) return undefined;
  const url = URL.parse(written, baseUrl);
  return url === null || !/^https?:$/.test(url.protocol) ? undefined : url.href;
}

function lineOf(element: HtmlElement | undefined): string | undefined {
  return element === undefined ? undefined : oneLine(textInside(element));
}

/** Makes one line of a text, without characters that nobody sees. undefined for what is no text, or empty. */
export function oneLine(value: unknown, limit: number = MAX_CHARACTERS): string | undefined {
  if (typeof value !== "string") return undefined;
  const line = value.slice(0, limit * 4).replace(/[\s\p{Zl}\p{Zp}\p{Zs}]+/gu, " ").replace(
    /(?![\u200c\u200d])\p{C}/gu,
    "",
  )
    .trim();
  if (line === "") return undefined;
  return line.length <= limit ? line : `${line.slice(0, limit - 3).replace(/[\ud800-\udbff]$/, "")}...`;
}
