import { attributeOf, hasClass, type HtmlTag, tagsOf, textOfHtml } from "../plain_html.ts";
import { failedBy } from "./read_reply.ts";
import type { SearchReply, SearchResult, WebAnswer } from "./search_provider.ts";

/** Results of a page that are looked at. */
const MAX_RESULTS = 100;
/** Status of the page that asks whether a person is searching. */
const CHALLENGE = 202;

/**
 * Reads DuckDuckGo's page of results.
 *
 * A result is a link of the class `result__a`, then perhaps a date and a link of the class `result__snippet`. A page without them means
 * "no results" only where it has the class `no-results`.
 */
export function readDuckduckgo(reply: SearchReply): WebAnswer {
  const found: FoundResult[] = [];
  let hasNone = false;
  let isChallenge = reply.status === CHALLENGE;
  let open: { readonly part: "title" | "snippet"; readonly from: number } | undefined;
  for (const tag of tagsOf(reply.text)) {
    const current = found.at(-1);
    if (open !== undefined) {
      if (tag.name !== "/a") continue;
      if (current !== undefined) current[open.part] = textOfHtml(reply.text.slice(open.from, tag.start));
      open = undefined;
    } else if (hasClass(tag, "result__a")) {
      if (found.length === MAX_RESULTS) break;
      found.push({ href: attributeOf(tag, "href") ?? "", end: tag.end, title: "", snippet: "", date: "" });
      open = { part: "title", from: tag.end };
    } else if (hasClass(tag, "result__snippet")) {
      if (current !== undefined) current.date = dateIn(reply.text.slice(current.end, tag.start));
      open = { part: "snippet", from: tag.end };
    } else {
      hasNone ||= hasClass(tag, "no-results");
      isChallenge ||= isOfChallenge(tag);
    }
  }
  const results = found.flatMap(toResult);
  if (results.length > 0) return { kind: "results", results };
  if (isChallenge) return { kind: "failed", problem: "blocked", says: "" };
  const failed = reply.status === 200 ? undefined : failedBy(reply);
  if (failed !== undefined) return failed.problem === "key" ? { ...failed, problem: "blocked" } : failed;
  return hasNone ? { kind: "results", results: [] } : { kind: "failed", problem: "changed", says: "" };
}

/** A result as far as the page was read. */
interface FoundResult {
  readonly href: string;
  /** Place behind the opening tag of its link */
  readonly end: number;
  title: string;
  snippet: string;
  date: string;
}

/** The link leads over DuckDuckGo with the target in `uddg`, or straight to it. Advertisements lead to `/y.js`. */
function toResult({ href, title, snippet, date }: FoundResult): readonly SearchResult[] {
  const link = URL.parse(href, "https://duckduckgo.com");
  if (link === null) return [];
  const isOwn = link.hostname === "duckduckgo.com" || link.hostname.endsWith(".duckduckgo.com");
  const target = isOwn && link.pathname === "/l/" ? link.searchParams.get("uddg") ?? "" : href;
  const isOutside = target !== href || !isOwn;
  return isOutside && /^https?:\/\//i.test(target) ? [{ url: target, title, snippet, date }] : [];
}

/** Returns the date between a result's link and its snippet, such as `2025-03-01`. */
function dateIn(html: string): string {
  return /\b(\d{4}-\d{2}-\d{2})T\d{2}:/.exec(html)?.[1] ?? "";
}

function isOfChallenge(tag: HtmlTag): boolean {
  return attributeOf(tag, "id") === "challenge-form" || (attributeOf(tag, "class")?.includes("anomaly-modal") ?? false);
}
