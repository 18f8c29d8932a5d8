import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { canonicalDigest, canonicalJson } from "../../base/json.ts";
import type { GuardedReply } from "../../system/net/guarded_fetch.ts";
import { withRetryAfter } from "../../system/net/retry_after.ts";
import { typeKind, type WebPage } from "../../web/read_page.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { RobotsOfCall, RobotsUnknown } from "./ask_robots.ts";
import { convertPage } from "./convert_page.ts";
import { refuseSecrets } from "./refuse_secrets.ts";
import { createSlotCache } from "./slot_cache.ts";

/** A page as the tool was asked for it. */
export interface WebFetchInput {
  readonly url: string;
  readonly start?: number | undefined;
}

type FetchContext = ContextWith<"guardedFetch" | "urls" | "workers" | "documents" | "redactor">;

/** Bytes of a reply that are taken: of a document, and of anything else. */
const MAX_DOCUMENT_BYTES = 33_554_432;
const MAX_TEXT_BYTES = 8_388_608;
/** Bytes of text in one answer, whatever `max_bytes` says: a result of a tool has 256 KiB at most. */
const MAX_ANSWER_BYTES = 261_000;
/** Places that a page leads to and asks for their robots.txt, beside its own. */
const MAX_ORIGINS = 6;

const CACHE_MS = 900_000;
const CACHE_SLOTS = 64;
const MAX_CACHED_BYTES = 1_048_576;

const text = v.nullable(v.string());
const fetchedSchema = v.object({
  status: v.number(),
  /** Where the page came from, after redirects */
  url: v.string(),
  kind: v.string(),
  title: text,
  byline: text,
  date: text,
  canonicalUrl: text,
  text: v.string(),
  notices: v.array(v.string()),
});
type FetchedPage = Readonly<v.InferOutput<typeof fetchedSchema>>;

/**
 * Fetches a page and gives the part of its text that was asked for.
 * @throws {ToolError} what a guarded fetch refuses; `robots_forbidden`, `robots_unavailable`, `page_unsupported`,
 * `page_unreadable`, `page_start`, `secret_in_request`, and the codes of DocumentError
 */
export async function fetchPage(input: WebFetchInput, context: FetchContext): Promise<ToolResult> {
  refuseSecrets({ URL: input.url }, context.services.redactor);
  const cache = pageCache(context);
  const key = keyOf(input.url, context);
  const known = await cache.get(key);
  if (known !== undefined) {
    await requireAllowed([input.url, known.url], context);
    return toResult(known, input, { context, isCached: true });
  }
  const { page, isCacheable } = await load(input.url, context);
  if (isCacheable) await cache.set(key, page, CACHE_MS);
  return toResult(page, input, { context, isCached: false });
}

function pageCache({ services: { documents }, clock, log }: FetchContext) {
  return createSlotCache({
    documents,
    clock,
    log,
    family: "pages",
    slots: CACHE_SLOTS,
    maxBytes: MAX_CACHED_BYTES,
    schema: fetchedSchema,
  });
}

/** A page is kept for its conversation, and for the rules under which it was fetched. Outside of a conversation, for its run. */
function keyOf(url: string, { conversationId, runId, config: { url_access, web_fetch, proxy } }: FetchContext): string {
  const address = URL.parse(url);
  if (address !== null) address.hash = "";
  const reader = conversationId === null ? { run: runId } : { conversation: conversationId };
  return canonicalJson([address?.href ?? url, reader, canonicalDigest({ url_access, web_fetch, proxy })]);
}

/** Asks the URL policy again: a name may have moved, and a page that was fetched may lie where nothing may be fetched now. */
async function requireAllowed(
  urls: readonly string[],
  { config, services, signal }: FetchContext,
): Promise<void> {
  for (const url of new Set(urls)) await services.urls.check(url, config.url_access, { signal });
}

async function load(
  url: string,
  context: FetchContext,
): Promise<{ readonly page: FetchedPage; readonly isCacheable: boolean }> {
  const { reply, body } = await request(url, context);
  const contentType = reply.headers["content-type"];
  const isShort = reply.truncated || body.isCut;
  if (isShort && ["pdf", "docx"].includes(typeKind(contentType) ?? "")) {
    throw new ToolError(
      "document_too_large",
      `Cannot read what "${
        URL.parse(reply.url)?.host ?? ""
      }" sent: documents are read up to ${MAX_DOCUMENT_BYTES} bytes`,
    );
  }
  const bytes = Buffer.concat(body.parts);
  const read = await convertPage({ bytes, contentType, url: reply.url }, context);
  if (read === undefined) throw unsupported(reply, bytes.length);
  const cut = isShort ? [`The reply is longer than ${bytes.length} bytes: the rest was not read`] : [];
  return { page: toFetched(read, reply, cut), isCacheable: isCacheable(url, reply) };
}

/** Body of a reply in memory. */
interface CollectedBody {
  readonly parts: Uint8Array[];
  isCut: boolean;
}

/** Sends the request. An origin on the way whose robots.txt is not known is asked for it, and then the request starts again. */
async function request(
  url: string,
  context: FetchContext,
): Promise<{ readonly reply: GuardedReply; readonly body: CollectedBody }> {
  const { config, services, signal, clock } = context;
  const { timeout_secs, respect_robots } = config.web_fetch;
  const robots = new RobotsOfCall(context);
  const guardedFetch = withRetryAfter(await services.guardedFetch(), { clock });
  const end = clock.monotonic() + timeout_secs * 1000;
  const remainingMs = () => Math.max(1, end - clock.monotonic());
  for (let origins = 0;; origins++) {
    const body: CollectedBody = { parts: [], isCut: false };
    try {
      const reply = await guardedFetch({
        method: "GET",
        url,
        headers(address) {
          if (respect_robots) robots.check(address);
          return { accept: ACCEPT };
        },
        guard: { rules: config.url_access },
        maxBytes: MAX_DOCUMENT_BYTES,
        sink: async ({ status, headers }) => collect(body, { status, headers, url }),
        timeoutMs: remainingMs(),
        signal,
      });
      return { reply, body };
    } catch (error) {
      if (!(error instanceof RobotsUnknown) || origins > MAX_ORIGINS) throw error;
      await robots.learn(error.url, remainingMs());
    }
  }
}

const ACCEPT = "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5";

/** Opens a place in memory for a body. A body that is no text is refused by its type, before it is read. */
function collect(
  body: CollectedBody,
  head: { readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly url: string },
) {
  const kind = typeKind(head.headers["content-type"]);
  if (kind === undefined) throw unsupported(head, Number(head.headers["content-length"] ?? Number.NaN));
  const most = kind === "pdf" || kind === "docx" || kind === "unknown" ? MAX_DOCUMENT_BYTES : MAX_TEXT_BYTES;
  let bytes = 0;
  return {
    write(part: Uint8Array) {
      const fits = part.subarray(0, most - bytes);
      bytes += fits.length;
      if (fits.length > 0) body.parts.push(fits);
      if (fits.length < part.length) body.isCut = true;
    },
    close() {},
  };
}

function unsupported(
  { status, headers, url }: Pick<GuardedReply, "status" | "headers" | "url">,
  bytes: number,
): ToolError {
  const type = JSON.stringify((headers["content-type"] ?? "a type it does not name").slice(0, 100));
  const size = Number.isNaN(bytes) ? "unknown size" : `${bytes} bytes`;
  return new ToolError(
    "page_unsupported",
    `Cannot show what "${
      URL.parse(url)?.host ?? ""
    }" sent: it is ${type} (status ${status}, ${size}), which is no text; http_request with ` +
      `"save_to" stores it in the workspace`,
  );
}

function toFetched(page: WebPage, { status, url }: GuardedReply, cut: readonly string[]): FetchedPage {
  const { kind, title = null, byline = null, date = null, canonicalUrl = null, text, notices } = page;
  return { status, url, kind, title, byline, date, canonicalUrl, text, notices: [...notices, ...cut] };
}

/** Nothing that was meant for one reader: replies with credentials, cookies, or that say so. Source: RFC 9111 section 3 */
function isCacheable(url: string, { status, headers }: GuardedReply): boolean {
  const { username, password } = new URL(url);
  if (status !== 200 || username !== "" || password !== "" || headers["set-cookie"] !== undefined) return false;
  if (headers["vary"]?.includes("*")) return false;
  return !/(?:^|[,\s])(?:no-store|no-cache|private|(?:s-)?max-?age\s*=\s*"?0)(?:$|[,\s="])/i.test(
    headers["cache-control"] ?? "",
  );
}

function toResult(
  page: FetchedPage,
  { url: asked, start = 0 }: WebFetchInput,
  { context, isCached }: { readonly context: FetchContext; readonly isCached: boolean },
): ToolResult {
  const whole = Buffer.from(wholeText(page, asked));
  const most = Math.min(context.config.web_fetch.max_bytes, MAX_ANSWER_BYTES);
  const from = boundary(whole, start, 1);
  if (start > 0 && from >= whole.length) {
    throw new ToolError("page_start", `Cannot go on at byte ${start}: the page's text has ${whole.length} bytes`);
  }
  // At least one character, so that every answer goes on
  const to = Math.max(boundary(whole, from + most, -1), boundary(whole, from + 1, 1));
  const isCut = to < whole.length;
  const notices = [
    ...page.notices,
    ...(isCut ? [`Cut at byte ${to} of ${whole.length}: go on with "start": ${to}`] : []),
  ];
  const shown = whole.subarray(from, to).toString();
  const lines = [...(shown === "" ? [] : [shown]), ...notices.map((notice) => `[${notice}]`)];
  const { status, url, kind, title, byline, date, canonicalUrl } = page;
  return {
    output: `status=${status}\n${lines.join("\n\n")}`,
    isError: false,
    data: {
      ...{ status, url, kind, title, byline, date, canonical_url: canonicalUrl },
      ...{ start: from, bytes: whole.length, next_start: isCut ? to : null, cached: isCached },
    },
  };
}

/** Returns the text of a page with its metadata in front, a line each. */
function wholeText({ url, title, byline, date, canonicalUrl, text }: FetchedPage, asked: string): string {
  const isElsewhere = url !== URL.parse(asked)?.href.split("#", 1)[0];
  const lines = [
    ...(title === null ? [] : [`title: ${title}`]),
    ...(byline === null ? [] : [`byline: ${byline}`]),
    ...(date === null ? [] : [`date: ${date}`]),
    ...(isElsewhere ? [`url: ${url}`] : []),
    ...(canonicalUrl === null || canonicalUrl === url ? [] : [`canonical: ${canonicalUrl}`]),
  ];
  return lines.length === 0 ? text : `${lines.join("\n")}\n\n${text}`;
}

/** Returns the nearest place between two characters of UTF-8, in one direction. */
function boundary(bytes: Uint8Array, at: number, direction: 1 | -1): number {
  let place = Math.min(at, bytes.length);
  while (place > 0 && place < bytes.length && ((bytes[place] ?? 0) & 0xc0) === 0x80) place += direction;
  return place;
}
