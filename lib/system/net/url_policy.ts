import { lookup as systemLookup } from "node:dns/promises";
import { isIP } from "node:net";
import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { type AddressKind, addressKind, type OwnGateway } from "./address.ts";
import {
  addressProblem,
  type AllowedHosts,
  placeOf,
  specialRangeOf,
  URL_RULES,
  type UrlProblem,
  type UrlRule,
  type UrlRuleName,
  type UrlRules,
  type UrlSubject,
} from "./url_rules.ts";

/** An address that may be reached: connect to nothing but these addresses, for the name may lead elsewhere a moment later. */
export interface AllowedUrl {
  readonly url: URL;
  /** At least one; all of them were checked. The name itself when a proxy looks it up */
  readonly addresses: readonly string[];
}

/** Signal, method and hosts of one check. */
export interface CheckOptions {
  readonly signal: AbortSignal;
  /** Default: what `[url_access]` says is all */
  readonly allowed?: AllowedHosts | undefined;
  /** Method of the request: GET and HEAD may reach the public paths of the gateway. Default: none */
  readonly method?: string | undefined;
  /** True when a proxy looks the name up: nothing is known of its addresses then. A host that is an address is checked. Default false */
  readonly isByProxy?: boolean | undefined;
  /** Reason why `explain` may not look a name up, as a sentence part. Default: it may */
  readonly noLookup?: string | undefined;
}

/** Answer of one rule. */
export interface UrlAnswer {
  readonly rule: UrlRuleName;
  readonly answer: "passed" | "refused" | "skipped";
  /** Sentence part. */
  readonly reason: string;
}

/** Answers of all rules about a URL. */
export interface UrlVerdict {
  /** The URL as it is read, without user and password; the text as it came where it is no URL. */
  readonly url: string;
  readonly allowed: boolean;
  /** Code of the first refusal; null when there is none. */
  readonly code: string | null;
  /** In the order in which rules are asked. Empty for a text that is no URL. */
  readonly answers: readonly UrlAnswer[];
  readonly addresses: readonly CheckedAddress[];
}

/** Address of a host with its kind. */
export interface CheckedAddress {
  readonly address: string;
  readonly kind: AddressKind;
  /** Special range that it lies in, such as `10.0.0.0/8 (Private-Use)`; null where it lies in none. */
  readonly range: string | null;
  readonly allowed: boolean;
}

/** Decides which addresses the network tools may reach (docs/design/network.md "Guarded fetch"). */
export interface UrlPolicy {
  /**
   * Asks each rule of URL_RULES in order: scheme, blocklist, every address the name has, allowlists, the gateway itself. A name that an
   * allowlist refuses is not looked up: the look-up would tell the name's server of it.
   * @throws {ToolError} `url_invalid`, `url_scheme`, `url_blocked`, `url_unresolved`, `url_private`, `url_not_allowed`, `url_own_gateway`
   * @throws {CancelError} when the signal aborts
   */
  check(url: string, rules: UrlRules, options: CheckOptions): Promise<AllowedUrl>;
  /**
   * Returns what each rule answers. A name that a rule refuses anyway is not looked up, and with `noLookup` none is: it is refused with
   * that reason.
   * @throws {CancelError} when the signal aborts
   */
  explain(url: string, rules: UrlRules, options: CheckOptions): Promise<UrlVerdict>;
}

/** Services of a URL policy. */
export interface UrlPolicyOptions {
  /** All addresses of a host name. Default: the system's */
  readonly lookup?: (host: string) => Promise<readonly string[]>;
  /** This gateway, which no tool may reach; undefined while no port is open. Default: none */
  readonly own?: (() => OwnGateway | undefined) | undefined;
}

/** Creates a URL policy that looks up host names again at each check. */
export function createUrlPolicy(options: UrlPolicyOptions = {}): UrlPolicy {
  const { lookup = lookUp, own = () => undefined } = options;
  const subjectOf = (url: URL, rules: UrlRules, { allowed, method, isByProxy = false }: CheckOptions): UrlSubject => ({
    ...{ url, rules, allowed, method, addresses: [] },
    own: own(),
    isByProxy: isByProxy && isIP(placeOf(url).host) === 0,
  });
  return {
    async check(text, rules, given) {
      let subject = subjectOf(parse(text), rules, given);
      let isResolved = false;
      for (const rule of URL_RULES) {
        if (rule.needsAddresses && !isResolved) {
          const refused = isIP(placeOf(subject.url).host) === 0 ? problemWithoutAddresses(subject) : undefined;
          if (refused !== undefined) throw refusal(subject.url, refused);
          subject = { ...subject, addresses: await resolved(subject, lookup, given.signal) };
          isResolved = true;
        }
        const problem = rule.problem(subject);
        if (problem !== undefined) throw refusal(subject.url, problem);
      }
      const { url, addresses, isByProxy } = subject;
      return { url, addresses: isByProxy ? [placeOf(url).host] : addresses };
    },
    async explain(text, rules, given) {
      const url = URL.parse(text);
      if (url === null) return { url: text, allowed: false, code: "url_invalid", answers: [], addresses: [] };
      const before = subjectOf(url, rules, given);
      const isRefused = problemWithoutAddresses(before) !== undefined;
      const unknown = before.isByProxy || isIP(placeOf(url).host) !== 0 ? undefined : given.noLookup;
      const addresses = isRefused || unknown !== undefined ? [] : await resolved(before, lookup, given.signal);
      const subject = { ...before, addresses };
      const problems = URL_RULES.map((rule) => {
        const problem = isSkipped(rule, subject, isRefused) ? undefined : rule.problem(subject);
        return problem === undefined || rule.name !== "resolution" || unknown === undefined
          ? problem
          : { ...problem, reason: unknown };
      });
      const first = problems.find((problem) => problem !== undefined);
      return {
        url: shownUrl(url),
        allowed: first === undefined,
        code: first?.code ?? null,
        answers: URL_RULES.map((rule, index) => answerOf(rule, subject, { problem: problems[index], isRefused })),
        addresses: addresses.map((address) => checkedAddress(address, rules)),
      };
    },
  };
}

/** Returns the first refusal of the rules that look at no addresses. */
function problemWithoutAddresses(subject: UrlSubject): UrlProblem | undefined {
  for (const rule of URL_RULES) {
    const problem = rule.needsAddresses ? undefined : rule.problem(subject);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Tells whether a rule cannot be asked, because there are no addresses. */
function isSkipped({ name, needsAddresses }: UrlRule, subject: UrlSubject, isRefused: boolean): boolean {
  if (!needsAddresses || isRefused) return needsAddresses;
  const needsNone = name === "resolution" || (name === "own_gateway" && subject.isByProxy);
  return subject.addresses.length === 0 && !needsNone;
}

function answerOf(
  rule: UrlRule,
  subject: UrlSubject,
  { problem, isRefused }: { readonly problem: UrlProblem | undefined; readonly isRefused: boolean },
): UrlAnswer {
  const { name } = rule;
  if (problem !== undefined) return { rule: name, answer: "refused", reason: problem.reason };
  if (!isSkipped(rule, subject, isRefused)) return { rule: name, answer: "passed", reason: rule.passed(subject) };
  const missing = subject.isByProxy ? "the addresses that the proxy will find are not known" : "there is no address";
  const reason = isRefused ? "the host was not looked up, since another rule refuses it" : missing;
  return { rule: name, answer: "skipped", reason };
}

function checkedAddress(address: string, rules: UrlRules): CheckedAddress {
  return {
    address,
    kind: addressKind(address, rules.public_ranges),
    range: specialRangeOf(address) ?? null,
    allowed: addressProblem(address, rules) === undefined,
  };
}

function parse(text: string): URL {
  const url = URL.parse(text);
  if (url !== null) return url;
  throw new ToolError(
    "url_invalid",
    "Cannot reach the address: it is no URL; give one such as https://example.com/path",
  );
}

/** Returns the addresses of a URL's host; empty when the name has none, or when a proxy looks it up. */
async function resolved(
  { url, isByProxy }: UrlSubject,
  lookup: (host: string) => Promise<readonly string[]>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { host } = placeOf(url);
  if (isIP(host) !== 0) return [host];
  if (isByProxy) return [];
  if (signal.aborted) throw cancelError(signal);
  let stop = () => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    stop = () => reject(cancelError(signal));
    signal.addEventListener("abort", stop, { once: true });
  });
  try {
    return await Promise.race([lookup(host).catch(() => []), aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

async function lookUp(host: string): Promise<readonly string[]> {
  return (await systemLookup(host, { all: true })).map(({ address }) => address);
}

/** Returns a URL without user and password. */
export function shownUrl(url: URL): string {
  const shown = new URL(url);
  shown.username = "";
  shown.password = "";
  return shown.href;
}

/** Names the host alone: user, password and query may be secret. */
function refusal(url: URL, { code, reason }: UrlProblem): ToolError {
  const shown = url.host === "" ? url.protocol : url.host;
  return new ToolError(code, `Cannot reach "${shown.slice(0, 100)}": ${reason}`);
}
