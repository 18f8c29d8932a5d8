import { DocumentError } from "../documents/document_error.ts";
import type { WorkBudget } from "../documents/work_budget.ts";
import { decodeCharacters } from "./plain_html.ts";

/** UTF-16 units of a page that are looked at, and of the text that comes out. */
const MAX_HTML = 2_000_000;
const MAX_TEXT = 500_000;
/** Elements whose text nobody reads. They end at their closing tag, whatever is inside. */
const SILENT = /^<(script|style|noscript|template|svg|iframe|textarea|select|head)\b/i;
/** Elements that begin a line. */
const LINE =
  /^<\/?(?:address|article|aside|blockquote|br|dd|div|dl|dt|figcaption|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table|tr|ul)\b/i;
/** UTF-16 units that the name of a tag of these takes. */
const NAME_LENGTH = 12;

/**
 * Returns the text of a page without looking at its structure, for a page that is too deep or too large to be parsed. Takes time in
 * proportion to the length of the page, whatever is in it. Where the budget ends, so does the text.
 */
export function plainText(html: string, budget: WorkBudget): string {
  const parts: string[] = [];
  try {
    collectText(html.slice(0, MAX_HTML), parts, budget);
  } catch (error) {
    if (!(error instanceof DocumentError)) throw error;
  }
  const lines = decodeCharacters(parts.join("")).split("\n").map((line) => line.replace(/\s+/g, " ").trim());
  return lines.filter((line) => line !== "").join("\n").slice(0, MAX_TEXT);
}

function collectText(page: string, parts: string[], budget: WorkBudget): void {
  const find = createFinder(page);
  let length = 0;
  for (let at = 0; at < page.length && length < MAX_TEXT;) {
    budget.step(16);
    const tag = find("<", at);
    const text = page.slice(at, tag);
    parts.push(text);
    length += text.length;
    at = afterMarkup(page, { tag, find, parts });
  }
}

/** Returns the next place of a text from a place on; the end of the page where there is none. */
type Finder = (text: string, from: number) => number;

/** A place that was found once is not looked for again, so that all searches together go through the page once for each text. */
function createFinder(page: string): Finder {
  const places = new Map<string, number>();
  return (text, from) => {
    const known = places.get(text) ?? -1;
    if (known >= from) return known;
    const found = page.indexOf(text, from);
    const place = found === -1 ? page.length : found;
    places.set(text, place);
    return place;
  };
}

function afterMarkup(
  page: string,
  { tag, find, parts }: { readonly tag: number; readonly find: Finder; readonly parts: string[] },
): number {
  const start = page.slice(tag, tag + NAME_LENGTH);
  if (start.startsWith("<!--")) return find("-->", tag + 4) + 3;
  if (!/^<[a-z/!?]/i.test(start)) {
    if (start !== "") parts.push("<");
    return tag + 1;
  }
  if (LINE.test(start)) parts.push("\n");
  const end = find(">", tag) + 1;
  const silent = SILENT.exec(start)?.[1];
  if (silent === undefined) return end;
  // Another spelling than all small or all capitals is rare, and then costs text that nobody reads
  const closing = Math.min(find(`</${silent.toLowerCase()}`, end), find(`</${silent.toUpperCase()}`, end));
  return closing === page.length ? end : find(">", closing) + 1;
}
