import { ToolError } from "../../base/errors.ts";
import { withoutEnd } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import { isLoopbackName } from "../../system/net/address.ts";
import type { GuardedReply } from "../../system/net/guarded_fetch.ts";
import { withRetryAfter } from "../../system/net/retry_after.ts";
import { SEARCH_PROVIDERS } from "../../web/search/search_providers.ts";
import type { SearchProblem, SearchProvider, SearchResult } from "../../web/search/search_provider.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { refuseSecrets } from "./refuse_secrets.ts";

/** Bytes of one reply of a provider. */
const MAX_REPLY_BYTES = 4_194_304;
/** Characters of one result that are shown. */
const MAX_CHARACTERS = { title: 200, url: 2000, snippet: 600, date: 40, says: 300 };

type Settings = Config["web_search"];
type Environment = (name: string) => string | undefined;

/** The provider of a search, with the settings that it needs. */
interface ChosenProvider {
  readonly name: Settings["provider"];
  readonly provider: SearchProvider;
  /** Address of the API, without a slash at its end */
  readonly base: URL;
  /** Empty for a provider without keys */
  readonly key: string;
  /** Variable that the key comes from. Empty for a provider without keys */
  readonly keyEnv: string;
}

/**
 * Returns the configured provider with its address and key.
 * @throws {ToolError} `search_base_url_missing`, `search_key_missing`, `search_key_exposed`
 */
export function requireSettings(settings: Settings, environment: Environment): ChosenProvider {
  const name = settings.provider;
  const provider: SearchProvider = SEARCH_PROVIDERS[name];
  const address = settings.base_url === "" ? provider.url : settings.base_url;
  const base = address === undefined ? null : URL.parse(address);
  if (base === null) {
    throw failure(
      "search_base_url_missing",
      name,
      "it is self-hosted; set [web_search] base_url to the address of your instance, such as http://127.0.0.1:8888",
    );
  }
  if (provider.keyEnv === undefined) return { name, provider, base, key: "", keyEnv: "" };
  const keyEnv = settings.api_key_env === "" ? provider.keyEnv : settings.api_key_env;
  const key = environment(keyEnv)?.trim() ?? "";
  if (key === "") {
    throw failure(
      "search_key_missing",
      name,
      `it needs a key, and the environment variable "${keyEnv}" is not set; set it where the gateway starts, or name another one ` +
        "in [web_search] api_key_env",
    );
  }
  if (base.protocol !== "https:" && !isLoopbackName(base.hostname)) {
    throw failure(
      "search_key_exposed",
      name,
      `its key would go over plain http to "${base.host}"; use an https address in [web_search] base_url`,
    );
  }
  return { name, provider, base, key, keyEnv };
}

/** Searches by the configured provider. @throws {ToolError} `search_*`; what a guarded fetch refuses */
export async function searchWeb(
  { query, max_results: wanted }: { readonly query: string; readonly max_results?: number | undefined },
  context: Pick<ContextWith<"guardedFetch" | "environment" | "redactor">, "config" | "services" | "signal" | "clock">,
): Promise<ToolResult> {
  refuseSecrets({ query }, context.services.redactor);
  const settings = context.config.web_search;
  const chosen = requireSettings(settings, context.services.environment);
  const count = Math.min(wanted ?? settings.max_results, settings.max_results, chosen.provider.maxResults);
  const reply = await ask(chosen, { query, count, context });
  if (reply.truncated) {
    throw failure("search_changed", chosen.name, `its reply is longer than ${MAX_REPLY_BYTES} bytes`);
  }
  const text = new TextDecoder().decode(reply.body);
  const answer = chosen.provider.read({ status: reply.status, text });
  if (answer.kind === "failed") throw problem(answer, chosen, reply);
  const results = distinct(answer.results.map(cleaned)).slice(0, count);
  const notice = wanted !== undefined && wanted > count && results.length === count
    ? `\n\n${limitNotice(count, chosen, settings)}`
    : "";
  return {
    output: results.length === 0
      ? `${chosen.name} found nothing for this query`
      : results.map(shown).join("\n\n") + notice,
    isError: false,
    data: { provider: chosen.name, results },
  };
}

async function ask(
  { provider, base, key }: ChosenProvider,
  { query, count, context }: {
    readonly query: string;
    readonly count: number;
    readonly context: Parameters<typeof searchWeb>[1];
  },
): Promise<GuardedReply> {
  const { config, services, signal, clock } = context;
  const { method, path, headers, body } = provider.request({ query, count, key });
  const { "content-type": type, accept, ...secret } = headers;
  const plain = { accept: accept ?? "*/*", ...(type === undefined ? {} : { "content-type": type }) };
  // A search that is made twice finds the same
  const send = withRetryAfter(await services.guardedFetch(), { clock, repeatable: true });
  return await send({
    method,
    url: `${withoutEnd(base.href.split(/[?#]/)[0] ?? "", "/")}${path}`,
    // A redirect to another host gets no key
    headers: (url) => (url.origin === base.origin ? { ...plain, ...secret } : plain),
    body,
    guard: { rules: config.url_access, fromConfig: config.web_search.base_url !== "" },
    maxBytes: MAX_REPLY_BYTES,
    timeoutMs: config.web_search.timeout_secs * 1000,
    redirects: "keep_method",
    signal,
  });
}

/** Code and sentence of each problem. `{key}` is the variable of the key; a provider without keys has its own sentence for `quota`. */
const PROBLEMS: Readonly<Record<SearchProblem, readonly [code: string, sentence: string]>> = {
  key: ["search_key_refused", 'it refuses the key; check the environment variable "{key}" of [web_search] api_key_env'],
  quota: [
    "search_quota",
    "the quota is used up or too many searches were made; wait, check your plan, or change [web_search] provider",
  ],
  blocked: [
    "search_blocked",
    "it takes the gateway for a robot and refuses; wait, or set [web_search] provider to another one, as searxng or brave",
  ],
  format: [
    "search_refused",
    "the instance at [web_search] base_url refuses JSON; add json to search.formats in its settings.yml, or let its limiter pass the " +
    "gateway",
  ],
  engines: ["search_unavailable", "none of the engines of the instance answered"],
  unavailable: ["search_unavailable", "it has a failure of its own; try again later, or change [web_search] provider"],
  refused: ["search_refused", "it refuses the request; check [web_search] base_url"],
  changed: [
    "search_changed",
    "its reply has no form that this version knows; check [web_search] base_url, or change [web_search] provider",
  ],
};

function problem(
  { problem, says }: { readonly problem: SearchProblem; readonly says: string },
  { name, keyEnv }: ChosenProvider,
  { status }: GuardedReply,
): ToolError {
  const kind = problem === "key" && keyEnv === "" ? "refused" : problem;
  const [code, sentence] = PROBLEMS[kind];
  const words = says === "" ? "" : `: ${JSON.stringify(plainLine(says, MAX_CHARACTERS.says))}`;
  return failure(code, name, `${sentence.replace("{key}", keyEnv)} (status ${status}${words})`);
}

function failure(code: string, provider: string, reason: string): ToolError {
  return new ToolError(code, `Cannot search with ${provider}: ${reason}`);
}

/** Makes each text of a result one line: no text can pass for another result. */
function cleaned(result: SearchResult): SearchResult {
  return {
    title: plainLine(result.title, MAX_CHARACTERS.title),
    url: plainLine(result.url, MAX_CHARACTERS.url),
    snippet: plainLine(result.snippet, MAX_CHARACTERS.snippet),
    date: plainLine(result.date, MAX_CHARACTERS.date),
  };
}

/** Joins lines, and leaves out what nobody sees: controls, and marks that turn the direction of text. Joiners of scripts stay. */
function plainLine(text: string, limit: number): string {
  const line = text.slice(0, limit * 4).replace(/[\s\p{Zl}\p{Zp}\p{Zs}]+/gu, " ").replace(
    /(?![\u200c\u200d])\p{C}/gu,
    "",
  ).trim();
  return line.length <= limit ? line : `${line.slice(0, limit - 3).replace(/[\ud800-\udbff]$/, "").trimEnd()}...`;
}

function distinct(results: readonly SearchResult[]): readonly SearchResult[] {
  return [...new Map(results.toReversed().map((result) => [result.url, result])).values()].toReversed();
}

function shown({ title, url, snippet, date }: SearchResult, index: number): string {
  const lines = [title === "" ? url : title, url, date, snippet].filter((line, at) =>
    line !== "" && (at !== 1 || title !== "")
  );
  return `${index + 1}. ${lines.join("\n   ")}`;
}

function limitNotice(count: number, { name, provider }: ChosenProvider, settings: Settings): string {
  return count === settings.max_results
    ? `Results are limited to ${count}: that is [web_search] max_results`
    : `Results are limited to ${provider.maxResults}: ${name} gives at most that many in one reply`;
}
