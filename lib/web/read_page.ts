import { isShallow } from "../base/json.ts";
import { DocumentError } from "../documents/document_error.ts";
import { createWorkBudget, type WorkLimits } from "../documents/work_budget.ts";
import { charsetOf, decodePage } from "./decode_page.ts";
import { findMainContent, type MainContent } from "./main_content.ts";
import { oneLine, type PageMetadata, readMetadata } from "./page_metadata.ts";
import { elementsIn, htmlAttribute, parseHtml } from "./parse_html.ts";
import { plainText } from "./plain_text.ts";
import { type Feed, isFeed, readFeed, readJsonFeed, writeFeed } from "./read_feed.ts";
import { writeMarkdown } from "./write_markdown.ts";

/** Body of a reply, to be read as text. */
export interface PageBody {
  readonly bytes: Uint8Array;
  /** Content-Type of the reply, as it was sent. undefined: none */
  readonly contentType: string | undefined;
  /** Address that the body came from */
  readonly url: string;
}

/** Kinds of bodies that are read. */
export type PageKind = "html" | "feed" | "json" | "text" | "pdf" | "docx";

/** A page as text. */
export interface WebPage extends PageMetadata {
  readonly kind: PageKind;
  /** Markdown for `html`, `feed` and `docx` */
  readonly text: string;
  /** Sentences about what is missing, or was done in another way */
  readonly notices: readonly string[];
}

/** Bounds of HTML. The time leaves room for the plain text of a page that takes longer. */
const HTML_LIMITS: WorkLimits = { timeMs: 1100, maxParts: 200_000, maxInflatedBytes: 0 };
const PLAIN_LIMITS: WorkLimits = { timeMs: 300, maxParts: 0, maxInflatedBytes: 0 };
const DOCUMENT_LIMITS: WorkLimits = { timeMs: 20_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };
/** UTF-16 units of HTML, of JSON that is laid out, and of any text. */
const MAX_HTML = 2_000_000;
const MAX_JSON = 1_000_000;
const MAX_TEXT = 4_000_000;
/** Levels of JSON that are laid out. */
const MAX_JSON_DEPTH = 40;
const NO_METADATA: PageMetadata = { title: undefined, byline: undefined, date: undefined, canonicalUrl: undefined };

/**
 * Reads a body as text: HTML as Markdown of its main content, feeds as lists, JSON laid out, PDF and Word by their readers.
 * @param job tells whether the reader was asked to end early
 * @returns undefined for a kind that is no text, such as an image
 * @throws {DocumentError} a PDF or Word document that cannot be read. HTML that cannot is given as plain text, with a notice
 */
export async function readPage(body: PageBody, job: { stopped(): boolean }): Promise<WebPage | undefined> {
  const page = await readAs(kindOf(body), body, job);
  return page === undefined ? undefined : { ...page, text: page.text.replace(UNSEEN, "") };
}

/**
 * Characters that no reader of a page sees, and that could tell a model what its user is not told: controls, tags, zero width, turned
 * directions. White space and the joiners that scripts need stay.
 */
const UNSEEN =
  /(?!\s)\p{Cc}|[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

async function readAs(
  kind: PageKind | undefined,
  body: PageBody,
  job: { stopped(): boolean },
): Promise<WebPage | undefined> {
  switch (kind) {
    case "pdf":
      return await pdfPage(body, job);
    case "docx":
      return await docxPage(body, job);
    case undefined:
      return undefined;
    default: {
      const { text } = decodePage(body.bytes, charsetOf(body.contentType));
      if (kind === "html") return htmlPage(text, body.url, job);
      if (kind === "json") return jsonPage(text, body.url);
      return textPage(text, body.url, job);
    }
  }
}

function htmlPage(whole: string, url: string, job: { stopped(): boolean }): WebPage {
  const html = whole.slice(0, MAX_HTML);
  const cut = whole.length > MAX_HTML ? ["The page is longer than what is read of it: its end is missing"] : [];
  try {
    const budget = createWorkBudget(HTML_LIMITS, job);
    const document = parseHtml(html, budget);
    const base = elementsIn(document).find((element) =>
      element.tag === "base" && htmlAttribute(element, "href") !== undefined
    );
    const baseUrl = base === undefined ? url : baseOf(htmlAttribute(base, "href") ?? "", url);
    const metadata = readMetadata(document, baseUrl);
    const content = findMainContent(document, budget);
    const written = writeMarkdown(content, { baseUrl, budget });
    if (written.text.trim() === "") {
      return { ...metadata, kind: "html", ...fallback(html, "it may be made by scripts, which are not run", job) };
    }
    const tooLong = written.isCut ? ["The page is longer than what is written of it: its end is missing"] : [];
    return { kind: "html", ...metadata, text: written.text, notices: [...cut, ...tooLong, ...leftOut(content)] };
  } catch (error) {
    // A stack that is too small is a page that is too deep. Whatever else fails, the page still has its text
    const reason = error instanceof DocumentError ? error.message : "its structure could not be read";
    return { kind: "html", ...NO_METADATA, title: titleOf(html), ...fallback(html, reason, job, cut) };
  }
}

/** Most words that a notice names. */
const MAX_MARKS = 5;

function leftOut({ hiddenCharacters, aroundCharacters, marks, isWithoutScripts }: MainContent): readonly string[] {
  const named = marks.length === 0 ? "" : `, as parts that it calls ${marks.slice(0, MAX_MARKS).join(", ")}`;
  return [
    ...(isWithoutScripts ? ["This is what the page has for readers without scripts"] : []),
    ...(hiddenCharacters > 0
      ? [`${hiddenCharacters} characters that the page hides from its readers were left out`]
      : []),
    ...(aroundCharacters > 0 ? [`${aroundCharacters} characters around the content were left out${named}`] : []),
  ];
}

function fallback(
  html: string,
  reason: string,
  job: { stopped(): boolean },
  cut: readonly string[] = [],
): Pick<WebPage, "text" | "notices"> {
  const text = plainText(html, createWorkBudget(PLAIN_LIMITS, job));
  if (text === "") return { text, notices: [`No text was found in the page: ${reason}`, ...cut] };
  return {
    text,
    notices: [
      `This is the plain text of the whole page, what it hides included, without structure and links: ${reason}`,
      ...cut,
    ],
  };
}

/** A base may be anything, but only an address of the web can be the base of links. */
function baseOf(href: string, url: string): string {
  const base = URL.parse(href.slice(0, 2000), url);
  return base !== null && /^https?:$/.test(base.protocol) ? base.href : url;
}

function titleOf(html: string): string | undefined {
  return oneLine(/<title[^>]{0,200}>([^<]{1,1000})/i.exec(html.slice(0, 100_000))?.[1]);
}

function jsonPage(text: string, url: string): WebPage {
  try {
    const value: unknown = JSON.parse(text);
    const feed = readJsonFeed(value, url);
    if (feed !== undefined) return feedPage(feed);
    // JSON that has lines already stays as it is, and so does JSON so deep that each line would begin with many blanks
    const isOneLine = text.length <= MAX_JSON && !text.trim().includes("\n") && isShallow(value, MAX_JSON_DEPTH);
    return { kind: "json", ...NO_METADATA, ...bounded(isOneLine ? JSON.stringify(value, null, 2) : text) };
  } catch {
    return { kind: "json", ...NO_METADATA, ...bounded(text) };
  }
}

function textPage(text: string, url: string, job: { stopped(): boolean }): WebPage {
  if (isFeed(text)) {
    try {
      return feedPage(readFeed(text.slice(0, MAX_TEXT), { baseUrl: url, budget: createWorkBudget(HTML_LIMITS, job) }));
    } catch (error) {
      const reason = error instanceof DocumentError ? error.message : "its structure could not be read";
      const { text: whole, notices } = bounded(text);
      return {
        kind: "text",
        ...NO_METADATA,
        text: whole,
        notices: [`This feed is shown as it is: ${reason}`, ...notices],
      };
    }
  }
  return { kind: "text", ...NO_METADATA, ...bounded(text) };
}

function feedPage(feed: Feed): WebPage {
  return { kind: "feed", ...NO_METADATA, title: feed.title, text: writeFeed(feed), notices: [] };
}

function bounded(text: string): Pick<WebPage, "text" | "notices"> {
  if (text.length <= MAX_TEXT) return { text, notices: [] };
  return { text: text.slice(0, MAX_TEXT), notices: ["The text is longer than what is read of it: its end is missing"] };
}

async function pdfPage({ bytes }: PageBody, job: { stopped(): boolean }): Promise<WebPage> {
  const { pdfText } = await import("../documents/pdf/pdf_text.ts");
  const read = pdfText(bytes, { start: 1, end: undefined, budget: createWorkBudget(DOCUMENT_LIMITS, job) });
  const { text, title, author, pages, lastPage, nextPage, isRepaired } = read;
  return {
    kind: "pdf",
    ...NO_METADATA,
    title: oneLine(title),
    byline: oneLine(author),
    text,
    notices: [
      ...(isRepaired ? ["The document is damaged or cut off: pages or parts of them may be missing"] : []),
      ...(nextPage === undefined ? [] : [
        `Only pages 1 to ${lastPage} of ${pages} were read: save the document with http_request and read on with pdf_read`,
      ]),
    ],
  };
}

async function docxPage({ bytes }: PageBody, job: { stopped(): boolean }): Promise<WebPage> {
  const { docxText } = await import("../documents/docx/docx_text.ts");
  const { text, title, author, truncated } = docxText(bytes, createWorkBudget(DOCUMENT_LIMITS, job));
  const notices = truncated ? ["The document is longer than what is read of it: its end is missing"] : [];
  return { kind: "docx", ...NO_METADATA, title: oneLine(title), byline: oneLine(author), text, notices };
}

const DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/** Types of a server that does not know what it sends. */
const VAGUE = new Set(
  ["", "application/octet-stream", "binary/octet-stream", "application/x-download", "application/force-download"],
);
const TEXT_TYPE =
  /^text\/|[/+]xml$|^application\/(?:(?:x-)?(?:javascript|ecmascript|yaml|toml|sh|tex|sql|ndjson|subrip)|x-www-form-urlencoded)$/;

/**
 * Returns the kind of body that a Content-Type names. `unknown`: the bytes must say; undefined: it is no text. `text` may be a feed.
 */
export function typeKind(contentType: string | undefined): PageKind | "unknown" | undefined {
  const type = (contentType ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (VAGUE.has(type)) return "unknown";
  if (type === "text/html" || type === "application/xhtml+xml") return "html";
  if (type === "application/pdf") return "pdf";
  if (type === DOCX) return "docx";
  if (/[/+]json$/.test(type)) return "json";
  return TEXT_TYPE.test(type) ? "text" : undefined;
}

function kindOf({ bytes, contentType }: PageBody): PageKind | undefined {
  if (bytes.length === 0) return "text";
  const kind = typeKind(contentType);
  if (kind === "unknown") return kindByBytes(bytes);
  // A type of text is believed only of what is text
  return kind === "text" && !isText(bytes) ? undefined : kind;
}

function kindByBytes(bytes: Uint8Array): PageKind | undefined {
  const start = new TextDecoder("windows-1252").decode(bytes.subarray(0, 1024)).trimStart();
  if (start.startsWith("%PDF-")) return "pdf";
  if (start.startsWith("PK\x03\x04") && start.includes("[Content_Types].xml")) return "docx";
  if (!isText(bytes)) return undefined;
  if (
    /^(?:<!--(?:(?!-->)[^])*-->\s*)*<(?:!doctype html|html|head|body|script|title|div|p|h1|table|a|b)[\s>]/i.test(start)
  ) {
    return "html";
  }
  return /^[[{]/.test(start) ? "json" : "text";
}

/** Tells whether bytes have none that no text has. UTF-16 says so with its mark. */
function isText(bytes: Uint8Array): boolean {
  const start = bytes.subarray(0, 4096);
  if ((start[0] === 0xff && start[1] === 0xfe) || (start[0] === 0xfe && start[1] === 0xff)) return true;
  return !start.some((byte) => byte < 0x09 || (byte > 0x0d && byte < 0x20 && byte !== 0x1b));
}
