import { isIP } from "node:net";
import { isInRange, parseIp } from "../../base/ip_range.ts";
import { specialRanges } from "../../base/special_addresses.ts";
import { withoutEnd } from "../../base/text.ts";
import { addressKind, hostAndPort, isThisMachine, type OwnGateway } from "./address.ts";

/** `[url_access]`. */
export interface UrlRules {
  readonly block_private_ip: boolean;
  readonly allow_loopback: boolean;
  /** Special ranges that count as public in this network, such as `198.18.0.0/15`. */
  readonly public_ranges: readonly string[];
  readonly enforce_domain_allowlist: boolean;
  /** `example.com` is that host alone, `*.example.com` its subdomains; `example.com:8443` is that port of the host alone */
  readonly domain_allowlist: readonly string[];
  /** An entry is the host and its subdomains */
  readonly domain_blocklist: readonly string[];
}

/** Hosts that one tool may reach, beside what `[url_access]` says of all. */
export interface AllowedHosts {
  /** As `domain_allowlist`, and `*` for every host; empty refuses all */
  readonly entries: readonly string[];
  /** Where the list is in the configuration, such as `[http_request] allowed_domains` */
  readonly key: string;
}

/** Everything that the rules about one URL look at. */
export interface UrlSubject {
  readonly url: URL;
  readonly rules: UrlRules;
  /** The tool's own list of hosts. Undefined: it has none */
  readonly allowed: AllowedHosts | undefined;
  /** Method of the request; undefined for a connection of another kind, which may reach nothing of the gateway. */
  readonly method: string | undefined;
  /** This gateway; undefined while no port is open. */
  readonly own: OwnGateway | undefined;
  /** True when a proxy looks the name up: its addresses are not known here, and cannot be checked. */
  readonly isByProxy: boolean;
  /** Addresses of the host; empty when the name could not be looked up. Rules that come before the look-up get none. */
  readonly addresses: readonly string[];
}

/** Name of a rule, in the order in which rules are asked. */
export type UrlRuleName =
  | "scheme"
  | "blocklist"
  | "resolution"
  | "private_ranges"
  | "allowlist"
  | "tool_hosts"
  | "own_gateway";

/** Reason of a refusal: the code of the error, and the end of its sentence. */
export interface UrlProblem {
  readonly code: string;
  readonly reason: string;
}

/** Check of a URL. */
export interface UrlRule {
  readonly name: UrlRuleName;
  /** True when the rule looks at the addresses. */
  readonly needsAddresses: boolean;
  /** Returns why the rule refuses; undefined when it does not. */
  readonly problem: (subject: UrlSubject) => UrlProblem | undefined;
  /** Says why the rule does not refuse, in a sentence part. */
  readonly passed: (subject: UrlSubject) => string;
}

/** Every check of a URL, in order. Whoever asks whether a URL may be reached goes through this list. */
export const URL_RULES: readonly UrlRule[] = [
  {
    name: "scheme",
    needsAddresses: false,
    problem: ({ url: { protocol } }) =>
      isWeb(protocol) ? undefined : {
        code: "url_scheme",
        reason: `its scheme is "${protocol.slice(0, 40)}", and only http: and https: are allowed`,
      },
    passed: ({ url }) => `${url.protocol} is allowed`,
  },
  {
    name: "blocklist",
    needsAddresses: false,
    problem({ url, rules }) {
      const { host } = placeOf(url);
      const entry = rules.domain_blocklist.find((one) => isWithinDomain(host, one));
      if (entry === undefined) return undefined;
      return { code: "url_blocked", reason: `[url_access] domain_blocklist names "${entry}"` };
    },
    passed: () => "no entry of [url_access] domain_blocklist names the host",
  },
  {
    name: "resolution",
    needsAddresses: true,
    problem: ({ addresses, isByProxy }) =>
      addresses.length > 0 || isByProxy
        ? undefined
        : { code: "url_unresolved", reason: "the host name could not be looked up" },
    passed({ url, addresses, isByProxy }) {
      if (isIP(placeOf(url).host) !== 0) return "the host is an address";
      if (isByProxy) return 'the proxy looks the name up ([proxy] resolve = "proxy")';
      return `the name has ${countOf(addresses, "address", "addresses")}`;
    },
  },
  {
    name: "private_ranges",
    needsAddresses: true,
    problem: ({ addresses, rules }) =>
      addresses.map((address) => addressProblem(address, rules)).find((found) => found !== undefined),
    passed: ({ addresses, rules }) =>
      addresses.every((address) => addressKind(address, rules.public_ranges) === "public")
        ? "every address is public"
        : "[url_access] allows the addresses that are not public",
  },
  {
    name: "allowlist",
    needsAddresses: false,
    problem({ url, rules }) {
      if (!rules.enforce_domain_allowlist || allows(rules.domain_allowlist, url)) return undefined;
      return notAllowed(url, "[url_access] domain_allowlist");
    },
    passed: ({ rules }) =>
      rules.enforce_domain_allowlist
        ? "[url_access] domain_allowlist names the host"
        : "[url_access] enforce_domain_allowlist is off",
  },
  {
    name: "tool_hosts",
    needsAddresses: false,
    problem({ url, allowed }) {
      if (allowed === undefined || allowed.entries.includes("*") || allows(allowed.entries, url)) return undefined;
      return notAllowed(url, allowed.key);
    },
    passed: ({ allowed }) => allowed === undefined ? "no tool's own list is asked" : `${allowed.key} allows the host`,
  },
  {
    name: "own_gateway",
    needsAddresses: true,
    problem(subject) {
      if (!mayBeOwn(subject) || isPublicPath(subject)) return undefined;
      const reason = "it is the gateway itself, or has its port and may lead to it, and no tool may call it";
      return { code: "url_own_gateway", reason };
    },
    passed: (subject) => mayBeOwn(subject) ? "anyone may read this path of the gateway" : "it is not this gateway",
  },
];

function isWeb(protocol: string): boolean {
  return protocol === "http:" || protocol === "https:";
}

function countOf(list: readonly unknown[], one: string, many: string): string {
  return `${list.length} ${list.length === 1 ? one : many}`;
}

/** Returns why an address may not be reached; undefined when it may. */
export function addressProblem(address: string, rules: UrlRules): UrlProblem | undefined {
  const code = "url_private";
  switch (addressKind(address, rules.public_ranges)) {
    case "public":
      return undefined;
    case "loopback":
      if (rules.allow_loopback) return undefined;
      return { code, reason: `${address} is this machine; [url_access] allow_loopback = true allows it` };
    case "special": {
      if (!rules.block_private_ip) return undefined;
      const way = "[url_access] block_private_ip = false allows them all, public_ranges some";
      return { code, reason: `${address} is a private or reserved address; ${way}` };
    }
  }
}

/** Returns the special range that an address lies in, with its name, such as `10.0.0.0/8 (Private-Use)`; undefined where it is in none. */
export function specialRangeOf(address: string): string | undefined {
  const ip = parseIp(address);
  const entry = ip && specialRanges().find(({ parsed }) => isInRange(ip, parsed));
  return entry && `${entry.range} (${entry.name})`;
}

function notAllowed(url: URL, key: string): UrlProblem {
  return { code: "url_not_allowed", reason: `add "${placeOf(url).host}" to ${key} to allow it` };
}

/** Tells whether a request may lead to the gateway itself. A name in a public range, or one that a proxy looks up, may mean this machine. */
function mayBeOwn({ url, own, addresses, rules, isByProxy }: UrlSubject): boolean {
  if (own === undefined || hostAndPort(url).port !== own.port) return false;
  if (isByProxy) return true;
  const isMapped = (address: string) =>
    addressKind(address) === "special" && addressKind(address, rules.public_ranges) === "public";
  return addresses.some((address) => isThisMachine(address) || isMapped(address));
}

function isPublicPath({ url, own, method }: UrlSubject): boolean {
  return (method === "GET" || method === "HEAD") && own !== undefined && own.publicPaths.includes(url.pathname);
}

/**
 * Tells whether an allowlist has the host of a URL. An entry with a port, such as `example.com:8443`, has that port alone; an entry without
 * one has every port.
 */
export function allows(entries: readonly string[], url: URL): boolean {
  const { host, port } = placeOf(url);
  return entries.some((entry) => matchesHost(host, entry) && (portOf(entry) ?? port) === port);
}

/** Tells whether an entry of an allowlist names both the host and the port of a URL. */
export function namesPort(entries: readonly string[], url: URL): boolean {
  return allows(entries.filter((entry) => portOf(entry) !== undefined), url);
}

/** Returns host and port of a URL, the host as the lists have it. */
export function placeOf(url: URL): { readonly host: string; readonly port: number } {
  const { host, port } = hostAndPort(url);
  return { host: plainHost(host), port };
}

/** Returns the port that an entry names. The last part of a bare IPv6 address is none. */
function portOf(entry: string): number | undefined {
  const port = /^(?:[^:]*|\[[^\]]*\]):(\d{1,5})$/.exec(entry)?.[1];
  return port === undefined ? undefined : Number(port);
}

/** A host name as the lists have it: no dot at the end, lower case, an IPv6 address without the brackets that URLs have. */
function plainHost(host: string): string {
  return withoutEnd(host.toLowerCase().replace(/^\[(.*)\]$/, "$1"), ".");
}

/** Tells whether a host is named by a list such as `domain_allowlist`: `example.com` is that host alone, `*.example.com` its subdomains. */
export function isAmongHosts(host: string, entries: readonly string[]): boolean {
  const plain = plainHost(host);
  return entries.some((entry) => matchesHost(plain, entry));
}

function matchesHost(host: string, entry: string): boolean {
  const name = entryHost(entry);
  return entry.startsWith("*.") ? host.endsWith(`.${name}`) : host === name;
}

function isWithinDomain(host: string, entry: string): boolean {
  const name = entryHost(entry);
  return name !== "" && (host === name || host.endsWith(`.${name}`));
}

/** Names beyond ASCII in the form that URLs have them. */
function entryHost(entry: string): string {
  const name = entry.replace(/^\*\./, "");
  const url = URL.parse(`http://${name}`);
  return plainHost(url === null ? name : hostAndPort(url).host);
}
