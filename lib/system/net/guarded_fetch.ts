import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { KeyedSemaphore } from "../../base/keyed_queues.ts";
import { lazily } from "../../base/lazily.ts";
import { withoutEnd } from "../../base/text.ts";
import { basicCredentials } from "./address.ts";
import { describeNetworkError, PinError } from "./network_error.ts";
import { isRedirect, pinnedExchange, type PinnedReply, type ReplyHead } from "./pinned_exchange.ts";
import { chooseProxy, type ProxyChoice, type ProxySettings } from "./proxy_choice.ts";
import { type BodySink, findEncodings, SinkFailure } from "./reply_body.ts";
import { type AllowedUrl, shownUrl, type UrlPolicy } from "./url_policy.ts";
import type { AllowedHosts, UrlRules } from "./url_rules.ts";

/** HTTP method that tools may use. */
export type GuardedMethod = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";

/** Rules for the addresses of one request. */
export interface UrlGuard {
  /** `[url_access]` */
  readonly rules: UrlRules;
  /** The tool's own list of hosts. Default: none */
  readonly allowed?: AllowedHosts | undefined;
  /**
   * The URL is in the operator's configuration: it may be private or on this machine, and no allowlist is asked for it. What
   * it redirects to gets no such trust. The blocklist holds for both. Such a request does not wait for others to its host. Default false
   */
  readonly fromConfig?: boolean | undefined;
}

/**
 * Answer to a redirect. `follow`: at most five are followed. `keep_method`: they are followed, but one that would turn the method into GET is
 * given back as the reply. `give_back`: each is given back as the reply. `refuse`: each is an error.
 */
export type RedirectMode = "follow" | "keep_method" | "give_back" | "refuse";

/** Request to the outside. */
export interface GuardedRequest {
  readonly method: GuardedMethod;
  readonly url: string;
  /** Headers for an address; each one that a redirect leads to is asked about, so that a credential goes to its own host alone. Default: none */
  readonly headers?: ((url: URL) => Readonly<Record<string, string>>) | undefined;
  readonly body?: string | Uint8Array | undefined;
  /** Check of the URL, and of each address that a redirect leads to */
  readonly guard: UrlGuard;
  /** Default `follow` */
  readonly redirects?: RedirectMode | undefined;
  /** Asks for a body that is not compressed. Default false: gzip, and br and zstd where the runtime has them */
  readonly identity?: boolean | undefined;
  /** Limit for the reply's body, decompressed. */
  readonly maxBytes: number;
  /**
   * Opens a place for the body of the last reply, whose head is given: the body then goes there piece by piece and is never whole in
   * memory. With undefined the body is kept in the reply, at most 1 MiB, as the page of an error may be. Default: kept
   */
  readonly sink?: ((head: ReplyHead) => Promise<BodySink | undefined>) | undefined;
  /** For all of it: waiting for other requests to the host, look-ups, redirects and the last byte of the reply. Milliseconds */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Reply to a request to the outside. */
export interface GuardedReply extends PinnedReply {
  /** Where the reply came from, after redirects */
  readonly url: string;
}

/**
 * Fetches from the outside: parse, scheme, blocklist, look-up, private ranges, allowlists, execute.
 *
 * Every address of the name is checked, the connection goes to a checked address and nowhere else, every redirect passes the same
 * checks, and bytes and time are bounded. Headers are asked for again at each step. What is longer than `maxBytes` is cut. At most two
 * requests of tools go to a host at once. Nothing is retried; `withRetryAfter` does so where a server asks for it.
 * Source: docs/design/network.md "Guarded fetch"
 * @throws {ToolError} what UrlPolicy refuses; `fetch_redirects`, `fetch_timeout`, `fetch_failed`
 * @throws {CancelError} when the signal aborts; whatever a sink throws
 */
export type GuardedFetch = (request: GuardedRequest) => Promise<GuardedReply>;

/** Policy and proxy of a guarded fetch. */
export interface GuardedFetchOptions {
  readonly policy: UrlPolicy;
  readonly clock: Clock;
  /** Value of User-Agent */
  readonly userAgent: string;
  /** `[proxy]` as it is now: the proxy gets the address that was checked, or the name with `resolve = "proxy"`. Default: none */
  readonly proxy?: (() => ProxySettings) | undefined;
}

const MAX_REDIRECTS = 5;
/** Requests of tools to one host at once, and those that may wait for them. */
const MAX_AT_ONCE = 2;
const MAX_WAITING = 32;
/** Headers that are the connection's, and those that would let a request be read as two. */
const OWN_HEADERS =
  /^(host|connection|content-length|transfer-encoding|upgrade|te|trailer|expect|keep-alive|proxy-.*)$/i;

/** Creates the fetch for addresses that a model or a configuration names. */
export function createGuardedFetch(options: GuardedFetchOptions): GuardedFetch {
  const machine: FetchMachine = {
    ...options,
    slots: new KeyedSemaphore(MAX_AT_ONCE),
    encodings: lazily(findEncodings),
  };
  return async (request) => {
    const timeout = options.clock.timeoutSignal(request.timeoutMs);
    const signal = AbortSignal.any([timeout.signal, request.signal]);
    try {
      return await follow({ ...request, signal }, machine);
    } catch (error) {
      if (request.signal.aborted) throw cancelError(request.signal);
      if (timeout.signal.aborted) {
        throw failure(
          "fetch_timeout",
          request.url,
          `no whole reply came within ${seconds(request.timeoutMs)} s`,
          error,
        );
      }
      if (error instanceof SinkFailure) throw error.cause;
      if (error instanceof ToolError || error instanceof CancelError) throw error;
      const reason = error instanceof PinError ? error.message : describeNetworkError(error);
      throw failure("fetch_failed", request.url, reason, error);
    } finally {
      timeout.clear();
    }
  };
}

/** Options of a guarded fetch, and what its requests share. */
interface FetchMachine extends GuardedFetchOptions {
  readonly slots: KeyedSemaphore;
  /** Encodings that this runtime reads. */
  readonly encodings: () => Promise<readonly string[]>;
}

/** Request on its way: to the address, or to one that it was redirected to. */
interface FetchStep {
  readonly url: string;
  readonly method: GuardedMethod;
  readonly body: string | Uint8Array | undefined;
  readonly isFirst: boolean;
}

async function follow(request: GuardedRequest, machine: FetchMachine): Promise<GuardedReply> {
  const { redirects: mode = "follow" } = request;
  const maxRedirects = mode === "refuse" ? 0 : MAX_REDIRECTS;
  let { method, body } = request;
  let next = request.url;
  for (let redirects = 0;; redirects++) {
    const { url, reply } = await send({ url: next, method, body, isFirst: redirects === 0 }, request, machine);
    const location = isRedirect(reply.status) ? reply.headers["location"] : undefined;
    const turnsToGet = reply.status === 303 ? method !== "HEAD" : reply.status < 303 && method === "POST";
    const isKept = mode === "give_back" || (mode === "keep_method" && turnsToGet && method !== "GET");
    if (location === undefined || isKept) {
      return { ...reply, url: shownUrl(url) };
    }
    if (redirects === maxRedirects) {
      throw failure("fetch_redirects", request.url, `it redirects more than ${maxRedirects} times`);
    }
    const target = URL.parse(location, url.href);
    if (target === null) throw failure("fetch_redirects", request.url, "it redirects to something that is no URL");
    if (turnsToGet) [method, body] = ["GET", undefined];
    if (body !== undefined && url.protocol === "https:" && target.protocol === "http:") {
      throw failure("fetch_redirects", request.url, "it redirects a request with a body from https: to http:");
    }
    next = target.href;
  }
}

async function send(
  step: FetchStep,
  request: GuardedRequest,
  machine: FetchMachine,
): Promise<{ readonly url: URL; readonly reply: PinnedReply }> {
  const { method, body } = step;
  const { signal, maxBytes, sink } = request;
  const isTrusted = step.isFirst && request.guard.fromConfig === true;
  const way = wayOf(step.url, machine);
  const { url, addresses } = await checkStep(step, request, {
    policy: machine.policy,
    isByProxy: way?.resolve === "proxy",
  });
  const encodings = await machine.encodings();
  const headers = {
    accept: "*/*",
    "user-agent": machine.userAgent,
    "accept-encoding": request.identity ? "identity" : encodings.join(", "),
    ...credentialsOf(url),
    ...checkHeaders(request.headers?.(url) ?? {}),
  };
  if (way?.problem !== undefined) throw failure("fetch_failed", step.url, way.problem);
  const proxy = way?.proxy;
  const exchange = () =>
    pinnedExchange({ url, addresses, method, headers, body, signal, maxBytes, proxy, encodings, sink });
  if (isTrusted) return { url, reply: await exchange() };
  const host = withoutEnd(url.hostname, ".");
  if (machine.slots.waiting(host) >= MAX_WAITING) {
    throw failure("fetch_failed", url.href, `${MAX_WAITING} requests to it wait already`);
  }
  return { url, reply: await machine.slots.pass(host, signal, exchange) };
}

function checkStep(
  { url, method, isFirst }: FetchStep,
  { guard: { rules, allowed, fromConfig }, signal }: GuardedRequest,
  { policy, isByProxy }: { readonly policy: UrlPolicy; readonly isByProxy: boolean },
): Promise<AllowedUrl> {
  if (!isFirst || !fromConfig) return policy.check(url, rules, { signal, allowed, method, isByProxy });
  const trusting = {
    ...rules,
    block_private_ip: false,
    allow_loopback: true,
    public_ranges: [],
    enforce_domain_allowlist: false,
  };
  return policy.check(url, trusting, { signal, method, isByProxy });
}

/** Returns the way to an address; undefined for a text that is no URL, which the policy refuses. */
function wayOf(url: string, { proxy }: FetchMachine): ProxyChoice | undefined {
  const parsed = URL.parse(url);
  return parsed === null ? undefined : chooseProxy(proxy?.(), parsed);
}

function checkHeaders(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/.test(name) || OWN_HEADERS.test(name)) {
      throw new ToolError(
        "fetch_failed",
        `Cannot send the header "${name.slice(0, 64)}": it is not one a request may set`,
      );
    }
    if (/[^\t\x20-\x7e\x80-\xff]/.test(value)) {
      throw new ToolError(
        "fetch_failed",
        `Cannot send the header "${name}": its value holds characters headers cannot have`,
      );
    }
  }
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

/** User and password of the address, as every client sends them. */
function credentialsOf(url: URL): Readonly<Record<string, string>> {
  const authorization = basicCredentials(url);
  return authorization === undefined ? {} : { authorization };
}

/** Returns seconds for people: a caller gives what is left of its time, such as 999 ms. */
function seconds(ms: number): number {
  return Math.max(0.01, Math.round(ms / 10) / 100);
}

/** Names the host alone: user, password and query may be secret. */
function failure(code: string, url: string, reason: string, cause?: unknown): ToolError {
  const host = URL.parse(url)?.host ?? "the address";
  return new ToolError(code, `Cannot fetch from "${host.slice(0, 100)}": ${reason}`, { cause });
}
