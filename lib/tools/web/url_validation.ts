import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { noLookupReason } from "../../guard/policy.ts";
import { shownProxy } from "../../system/net/proxy_choice.ts";
import type { UrlVerdict } from "../../system/net/url_policy.ts";
import { type ContextWith, defineTool } from "../runtime/define_tool.ts";
import { refuseSecrets } from "./refuse_secrets.ts";

const MAX_STEPS = 6;
const STEP_TIMEOUT_MS = 15_000;

type Context = ContextWith<"urls" | "guardedFetch" | "proxyOf" | "redactor">;

/** `url_validation`: tells whether a URL may be reached, and what each rule answers (docs/design/tools.md "Web"). */
export const urlValidation = defineTool({
  name: "url_validation",
  description:
    "Tells whether [url_access] allows a URL, with each rule's answer and the addresses. Sends no request without follow_redirects",
  access: "network",
  accessOf: ({ follow_redirects: follows }) => follows === true ? "network" : "read",
  // HEAD and GET ask for nothing but the answer
  repeatable: true,
  enabled: ({ given }) => given.includes("url_access"),
  enabledBy: "[url_access] block_private_ip = true",
  timeoutMs: () => (MAX_STEPS + 1) * STEP_TIMEOUT_MS,
  needs: ["urls", "guardedFetch", "proxyOf", "redactor"],
  input: v.strictObject({
    url: v.pipe(v.string(), v.minLength(1), v.maxLength(8192), v.description("Address to check")),
    follow_redirects: v.optional(v.pipe(v.boolean(), v.description("Also asks the server where it redirects to"))),
  }),
  textField: "url",
  effects: ({ url, follow_redirects: follows }) => follows === true ? { urls: [url] } : {},
  async run({ url, follow_redirects: follows = false }, context) {
    // The look-up of a name tells its server the name
    refuseSecrets({ URL: url }, context.services.redactor);
    const { config: { autonomy }, taint } = context;
    // A call that follows redirects was decided as one that reaches the network
    const noLookup = follows ? undefined : noLookupReason({ autonomy, taint });
    const verdict = await explain(url, context, noLookup);
    const proxy = proxyOf(verdict, context);
    const chain = follows ? await followChain(url, verdict, context) : null;
    const data = { ...verdict, proxy, chain };
    return {
      output: [...verdictLines(verdict), ...wayLines(proxy), ...chainLines(chain)].join("\n"),
      isError: false,
      data,
    };
  },
});

async function explain(
  url: string,
  { services, config, signal }: Context,
  noLookup?: string,
): Promise<UrlVerdict> {
  const target = URL.parse(url);
  const isByProxy = target !== null && services.proxyOf(target).resolve === "proxy";
  return await services.urls.explain(url, config.url_access, { signal, method: "GET", isByProxy, noLookup });
}

/** Way of the requests to an allowed address. */
interface ShownWay {
  /** Without user and password; null for a direct connection. */
  readonly proxy: string | null;
  readonly source: string | null;
  readonly reason: string;
}

function proxyOf({ url, code }: UrlVerdict, { services }: Context): ShownWay | null {
  if (code === "url_invalid" || code === "url_scheme") return null;
  const { proxy, source, reason, problem } = services.proxyOf(new URL(url));
  return { proxy: proxy === undefined ? null : shownProxy(proxy), source, reason: problem ?? reason };
}

/** Address in a chain of redirects. */
type ChainStep = {
  readonly url: string;
  readonly allowed: boolean;
  readonly code: string | null;
  /** Method that the server was asked with; null when it was not asked. */
  readonly method: "HEAD" | "GET" | null;
  readonly status: number | null;
  /** Reason of a refusal or of a failure; null when there is none. */
  readonly problem: string | null;
};

async function followChain(start: string, verdict: UrlVerdict, context: Context): Promise<readonly ChainStep[]> {
  const steps: ChainStep[] = [];
  let [url, told] = [start, verdict];
  while (steps.length < MAX_STEPS) {
    const { step, location } = await ask(url, told, context);
    steps.push(step);
    const next = location === undefined ? null : URL.parse(location, url);
    if (location === undefined) return steps;
    url = next?.href ?? location;
    told = await explain(url, context);
  }
  return [...steps, {
    url: told.url,
    allowed: told.allowed,
    code: told.code,
    method: null,
    status: null,
    problem: TOO_LONG,
  }];
}

const TOO_LONG = `not asked: the chain is longer than ${MAX_STEPS} addresses`;

async function ask(
  url: string,
  { url: shown, allowed, code, answers }: UrlVerdict,
  context: Context,
): Promise<{ readonly step: ChainStep; readonly location: string | undefined }> {
  const base = { url: shown, allowed, code };
  if (!allowed) {
    const problem = answers.find(({ answer }) => answer === "refused")?.reason ?? "it is no URL";
    return { step: { ...base, method: null, status: null, problem }, location: undefined };
  }
  let method: "HEAD" | "GET" = "HEAD";
  try {
    let reply = await send(url, method, context);
    // Many servers answer HEAD with an error
    if (reply.status >= 400) reply = await send(url, method = "GET", context);
    const isRedirect = reply.status >= 300 && reply.status < 400 && reply.status !== 304;
    const location = isRedirect ? reply.headers["location"] : undefined;
    return { step: { ...base, method, status: reply.status, problem: null }, location };
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return { step: { ...base, method, status: null, problem: error.message }, location: undefined };
  }
}

/** Asks without keeping a body. The fetch checks the address again. */
async function send(url: string, method: "HEAD" | "GET", { services, config, signal }: Context) {
  const guarded = await services.guardedFetch();
  const guard = { rules: config.url_access };
  const bounds = { maxBytes: 0, timeoutMs: STEP_TIMEOUT_MS, redirects: "give_back", identity: true } as const;
  return await guarded({ method, url, guard, signal, ...bounds });
}

function verdictLines({ url, allowed, code, answers, addresses }: UrlVerdict): readonly string[] {
  const head = allowed ? `allowed: ${url}` : `refused (${code}): ${url.slice(0, 500)}`;
  return [
    head,
    ...(code === "url_invalid" ? ["it is no URL; give one such as https://example.com/path"] : []),
    ...answers.map(({ rule, answer, reason }) => `${rule}: ${answer}, ${reason}`),
    ...addresses.map(({ address, kind, range, allowed: reachable }) =>
      `address ${address}: ${reachable ? "allowed" : "refused"}, ${kind}${range === null ? "" : `, in ${range}`}`
    ),
  ];
}

function wayLines(way: ShownWay | null): readonly string[] {
  return way === null ? [] : [`proxy: ${way.proxy ?? "none"}, ${way.reason}`];
}

function chainLines(chain: readonly ChainStep[] | null): readonly string[] {
  return (chain ?? []).map(({ url, method, status, problem }, index) => {
    const answer = status === null ? problem : `${method} ${status}`;
    return `${index + 1}. ${url.slice(0, 500)}: ${answer}`;
  });
}
