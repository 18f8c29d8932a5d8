import * as v from "valibot";
import { textOfHtml } from "../plain_html.ts";
import { readDuckduckgo } from "./duckduckgo_page.ts";
import { failedBy, jsonOfReply, readList } from "./read_reply.ts";
import type { SearchProvider, SearchReply, SearchResult, WebAnswer } from "./search_provider.ts";

/** Characters of a page that Exa is asked for, in place of a snippet. */
const EXA_CHARACTERS = 500;
/** Tokens of each page that Perplexity is asked for. */
const PERPLEXITY_TOKENS = 256;

/** Text that may be missing, null or no text at all. */
const loose = v.optional(v.fallback(v.string(), ""), "");
const webUrl = v.pipe(v.string(), v.regex(/^https?:\/\//i));

/**
 * DuckDuckGo's page for browsers without scripts.
 *
 * Source: https://html.duckduckgo.com/html/ has no documented API: the page is read by its class names. Not tried live.
 */
const duckduckgo: SearchProvider = {
  url: "https://html.duckduckgo.com",
  keyEnv: undefined,
  maxResults: 10,
  request: ({ query }) => ({
    method: "POST",
    path: "/html/",
    headers: { "content-type": "application/x-www-form-urlencoded", accept: "text/html" },
    body: new URLSearchParams({ q: query, b: "" }).toString(),
  }),
  read: readDuckduckgo,
};

/** Source: https://api-dashboard.search.brave.com/app/documentation/web-search (request, response, error codes). Not tried live. */
const brave: SearchProvider = {
  url: "https://api.search.brave.com/res/v1",
  keyEnv: "BRAVE_API_KEY",
  maxResults: 20,
  request: ({ query, count, key }) => ({
    method: "GET",
    path: `/web/search?${new URLSearchParams({ q: query, count: String(count), text_decorations: "false" })}`,
    headers: { accept: "application/json", "x-subscription-token": key },
  }),
  read(reply) {
    const failed = failedBy(reply, { keyCodes: ["SUBSCRIPTION_TOKEN_INVALID"] });
    if (failed !== undefined) return failed;
    const body = jsonOfReply(reply, v.looseObject({ type: v.literal("search"), web: v.optional(v.unknown()) }));
    // A search without web results has no `web`
    if (body === undefined || body.web === undefined) return body === undefined ? CHANGED : NOTHING;
    const web = v.safeParse(v.looseObject({ results: v.array(v.unknown()) }), body.web);
    const entry = v.looseObject({ url: webUrl, title: loose, description: loose, page_age: loose, age: loose });
    return web.success
      ? readList(web.output.results, entry, (found) => ({
        title: textOfHtml(found.title),
        url: found.url,
        snippet: textOfHtml(found.description),
        date: found.page_age === "" ? found.age : found.page_age,
      }))
      : CHANGED;
  },
};

/** Source: https://docs.perplexity.ai/api-reference/search-post. Not tried live. */
const perplexity: SearchProvider = {
  url: "https://api.perplexity.ai",
  keyEnv: "PERPLEXITY_API_KEY",
  maxResults: 20,
  request: ({ query, count, key }) =>
    posted("/search", { query, max_results: count, max_tokens_per_page: PERPLEXITY_TOKENS }, {
      authorization: `Bearer ${key}`,
    }),
  read: (reply) =>
    listOf(reply, "results", v.looseObject({ url: webUrl, title: loose, snippet: loose, date: loose }), toResult),
};

/** Source: https://docs.exa.ai/reference/search and https://docs.exa.ai/reference/error-codes. Not tried live. */
const exa: SearchProvider = {
  url: "https://api.exa.ai",
  keyEnv: "EXA_API_KEY",
  maxResults: 100,
  request: ({ query, count, key }) =>
    posted(
      "/search",
      { query, numResults: count, type: "auto", contents: { text: { maxCharacters: EXA_CHARACTERS } } },
      {
        "x-api-key": key,
      },
    ),
  read: (reply) =>
    listOf(
      reply,
      "results",
      v.looseObject({ url: webUrl, title: loose, text: loose, publishedDate: loose }),
      ({ title, url, text, publishedDate }) => ({ title, url, snippet: text, date: publishedDate }),
    ),
};

/** Source: https://jina.ai/reader ("s.jina.ai", JSON mode without the pages' content). Not tried live. */
const jina: SearchProvider = {
  url: "https://s.jina.ai",
  keyEnv: "JINA_API_KEY",
  maxResults: 20,
  request: ({ query, count, key }) =>
    posted("/", { q: query, num: count }, { authorization: `Bearer ${key}`, "x-respond-with": "no-content" }),
  read(reply) {
    // 422 with this sentence is how it says that nothing was found
    if (reply.status === 422 && /no search results/i.test(reply.text.slice(0, 4096))) return NOTHING;
    const entry = v.looseObject({ url: webUrl, title: loose, description: loose, content: loose, date: loose });
    return listOf(reply, "data", entry, ({ title, url, description, content, date }) => ({
      title,
      url,
      snippet: description === "" ? content : description,
      date,
    }));
  },
};

/** Source: https://docs.searxng.org/dev/search_api.html; `search.formats` of settings.yml must name json. Not tried live. */
const searxng: SearchProvider = {
  url: undefined,
  keyEnv: undefined,
  maxResults: 100,
  request: ({ query }) => ({
    method: "GET",
    path: `/search?${new URLSearchParams({ q: query, format: "json" })}`,
    headers: { accept: "application/json" },
  }),
  read(reply) {
    if (reply.status === 403) return { kind: "failed", problem: "format", says: "" };
    const entry = v.looseObject({ url: webUrl, title: loose, content: loose, publishedDate: loose });
    const answer = listOf(reply, "results", entry, ({ title, url, content, publishedDate }) => ({
      title: textOfHtml(title),
      url,
      snippet: textOfHtml(content),
      date: publishedDate,
    }));
    if (answer.kind === "failed" || answer.results.length > 0) return answer;
    const silent = jsonOfReply(
      reply,
      v.looseObject({ unresponsive_engines: v.array(v.tuple([v.string(), v.string()])) }),
    );
    const engines = silent?.unresponsive_engines ?? [];
    if (engines.length === 0) return answer;
    return { kind: "failed", problem: "engines", says: engines.map(([name, why]) => `${name}: ${why}`).join(", ") };
  },
};

/** The search providers by the name that `[web_search] provider` has. */
export const SEARCH_PROVIDERS = { duckduckgo, brave, perplexity, exa, jina, searxng } as const;

const NOTHING: WebAnswer = { kind: "results", results: [] };
const CHANGED: WebAnswer = { kind: "failed", problem: "changed", says: "" };

function posted(path: string, body: unknown, headers: Readonly<Record<string, string>>) {
  return {
    method: "POST",
    path,
    headers: { accept: "application/json", "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  } as const;
}

function listOf<T>(
  reply: SearchReply,
  field: "results" | "data",
  entry: v.GenericSchema<unknown, T>,
  to: (found: T) => SearchResult,
): WebAnswer {
  const failed = failedBy(reply);
  if (failed !== undefined) return failed;
  const body = jsonOfReply(reply, v.looseObject({ [field]: v.array(v.unknown()) }));
  const list = body?.[field];
  return Array.isArray(list) ? readList(list, entry, to) : CHANGED;
}

function toResult({ title, url, snippet, date }: SearchResult): SearchResult {
  return { title, url, snippet, date };
}
