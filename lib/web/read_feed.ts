import { isRecord } from "../base/json.ts";
import { attribute, childOf, elementsOf, parseXml, textIn, type XmlElement } from "../documents/parse_xml.ts";
import type { WorkBudget } from "../documents/work_budget.ts";
import { escapeText } from "./markdown_syntax.ts";
import { oneLine } from "./page_metadata.ts";
import { textOfHtml } from "./plain_html.ts";

/** Feed of news: RSS 2.0, RSS 1.0, Atom or JSON Feed. */
export interface Feed {
  readonly title: string | undefined;
  readonly items: readonly FeedItem[];
}

/** Item of a feed. Each text is one line. */
export interface FeedItem {
  readonly title: string | undefined;
  /** Absolute, http or https */
  readonly link: string | undefined;
  readonly date: string | undefined;
  readonly summary: string | undefined;
}

const MAX_ITEMS = 500;
const MAX_TITLE = 300;
const MAX_SUMMARY = 500;
/** UTF-16 units of the HTML of a summary that are looked at. */
const MAX_SUMMARY_HTML = 5000;
const MAX_URL = 2000;
const NAMESPACES = new Map([
  ["http://www.w3.org/2005/Atom", "atom"],
  ["http://purl.org/rss/1.0/", "rss"],
  ["http://www.w3.org/1999/02/22-rdf-syntax-ns#", "rdf"],
  ["http://purl.org/dc/elements/1.1/", "dc"],
  ["http://purl.org/rss/1.0/modules/content/", "content"],
]);

/** Tells whether XML looks like a feed, by its first element. */
export function isFeed(text: string): boolean {
  const start = text.slice(0, 4000).replace(/<\?[^]*?\?>|<!--[^]*?-->|<!DOCTYPE[^<>[]*>/gi, "").trimStart();
  return /^<(?:rss|(?:\w{1,20}:)?RDF|(?:\w{1,20}:)?feed)[\s>]/.test(start);
}

/**
 * Reads a feed of XML.
 * @throws {DocumentError} damaged, or over a bound
 * Source: RSS 2.0; RSS 1.0; RFC 4287
 */
export function readFeed(text: string, { baseUrl, budget }: {
  /** Address that links are relative to */
  readonly baseUrl: string;
  readonly budget: WorkBudget;
}): Feed {
  // A document type without declarations of its own, as RSS 0.91 has it, means nothing
  const root = parseXml(text.replace(/<!DOCTYPE[^<>[]*>/i, ""), { prefixes: NAMESPACES, budget });
  const channel = part(root, "channel");
  const holder = nameOf(root) === "RDF" || channel === undefined ? root : channel;
  const items = elementsOf(holder).filter((element) => /^(?:item|entry)$/.test(nameOf(element)));
  return {
    title: lineIn(part(channel ?? root, "title"), MAX_TITLE),
    items: items.slice(0, MAX_ITEMS).map((item) => toItem(item, baseUrl)),
  };
}

/** Reads a JSON Feed. undefined when the value is none. Source: https://www.jsonfeed.org/version/1.1/ */
export function readJsonFeed(value: unknown, baseUrl: string): Feed | undefined {
  if (!isRecord(value) || !String(value["version"]).startsWith("https://jsonfeed.org/version/")) return undefined;
  const { items } = value;
  if (!Array.isArray(items)) return undefined;
  return {
    title: oneLine(value["title"], MAX_TITLE),
    items: items.slice(0, MAX_ITEMS).filter(isRecord).map((item) => ({
      title: oneLine(item["title"], MAX_TITLE),
      link: absolute(item["url"] ?? item["external_url"], baseUrl),
      date: oneLine(item["date_published"] ?? item["date_modified"], 60),
      summary: summaryOf(item["summary"] ?? item["content_text"] ?? item["content_html"]),
    })),
  };
}

/** Writes the items of a feed as a numbered list of Markdown. */
export function writeFeed({ items }: Feed): string {
  if (items.length === 0) return "[The feed has no items]";
  return items.map(({ title, link, date, summary }, at) => {
    const name = escapeText(title ?? summary?.slice(0, 80) ?? link ?? "untitled");
    const shown = link === undefined ? name : `[${name}](${link})`;
    const lines = [
      date === undefined ? shown : `${shown} - ${date}`,
      ...(summary === undefined ? [] : [escapeText(summary)]),
    ];
    return `${at + 1}. ${lines.join("\n   ")}`;
  }).join("\n");
}

function toItem(item: XmlElement, baseUrl: string): FeedItem {
  const date = ["pubDate", "published", "updated", "date", "issued", "modified"].map((name) => part(item, name));
  const summary = ["description", "summary", "content", "encoded"].map((name) => part(item, name));
  return {
    title: summaryOf(textOf(part(item, "title")), MAX_TITLE),
    link: absolute(linkOf(item), baseUrl),
    date: lineIn(date.find((element) => element !== undefined), 60),
    summary: summaryOf(textOf(summary.find((element) => element !== undefined))),
  };
}

/** RSS has the address as text, Atom as `href` of the link that is the page itself. A guid may be one too. */
function linkOf(item: XmlElement): string | undefined {
  const links = elementsOf(item).filter((element) => nameOf(element) === "link");
  const page = links.find((link) => (attribute(link, "rel") ?? "alternate") === "alternate") ?? links[0];
  const written = page === undefined ? undefined : attribute(page, "href") ?? textIn(page).trim();
  if (written !== undefined && written !== "") return written;
  const guid = part(item, "guid");
  return guid !== undefined && attribute(guid, "isPermaLink") !== "false" ? textIn(guid).trim() : undefined;
}

/** Returns the first child of a name, whatever its namespace. */
function part(element: XmlElement, name: string): XmlElement | undefined {
  return childOf(element, name) ?? elementsOf(element).find((child) => nameOf(child) === name);
}

function nameOf({ name }: XmlElement): string {
  return name.slice(name.indexOf(":") + 1);
}

/** Returns all text inside an element, with that of XHTML in it. */
function textOf(element: XmlElement | undefined): string | undefined {
  if (element === undefined) return undefined;
  const parts: string[] = [];
  let room = MAX_SUMMARY_HTML;
  const visit = ({ children }: XmlElement) => {
    for (const child of children) {
      if (room <= 0) return;
      if (typeof child !== "string") visit(child);
      else {
        parts.push(child.slice(0, room));
        room -= child.length;
      }
    }
  };
  visit(element);
  return parts.join(" ");
}

function lineIn(element: XmlElement | undefined, limit: number): string | undefined {
  return oneLine(textOf(element), limit);
}

function summaryOf(html: unknown, limit: number = MAX_SUMMARY): string | undefined {
  if (typeof html !== "string") return undefined;
  return oneLine(textOfHtml(html.slice(0, MAX_SUMMARY_HTML).replace(/<(?:br|p|div|li|\/p|\/li)\b/gi, " $&")), limit);
}

function absolute(written: unknown, baseUrl: string): string | undefined {
  if (typeof written !== "string" || written.length > MAX_URL) return undefined;
  const url = URL.parse(written, baseUrl);
  return url === null || !/^https?:$/.test(url.protocol)
    ? undefined
    : url.href.replaceAll("(", "%28").replaceAll(")", "%29");
}
