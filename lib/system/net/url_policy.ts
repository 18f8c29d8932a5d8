import { lookup as systemLookup } from "node:dns/promises";
import { isIP } from "node:net";
import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { addressKind, hostAndPort } from "./address.ts";

/** `[url_access]`. */
export interface UrlRules {
  readonly block_private_ip: boolean;
  readonly allow_loopback: boolean;
  /** Special ranges that count as public in this network, as `198.18.0.0/15`. */
  readonly public_ranges: readonly string[];
  readonly enforce_domain_allowlist: boolean;
  /** `example.com` is that host alone, `*.example.com` its subdomains; `example.com:8443` is that port of the host alone */
  readonly domain_allowlist: readonly string[];
  /** An entry is the host and its subdomains */
  readonly domain_blocklist: readonly string[];
}

/** An address that may be reached: connect to nothing but these addresses, for the name may lead elsewhere a moment later. */
export interface AllowedUrl {
  readonly url: URL;
  /** At least one; all of them were checked */
  readonly addresses: readonly string[];
}

/** The hosts one tool may reach, beside what `[url_access]` says of all. */
export interface AllowedHosts {
  /** As `domain_allowlist`, and `*` for every host; empty refuses all */
  readonly entries: readonly string[];
  /** Where the list stands in the configuration, as `[http_request] allowed_domains` */
  readonly key: string;
}

/** Signal and hosts of one check. */
export interface CheckOptions {
  readonly signal: AbortSignal;
  /** Default: what `[url_access]` says is all */
  readonly allowed?: AllowedHosts | undefined;
}

/** Decides which addresses the network tools may reach (docs/design/network.md "Guarded fetch"). */
export interface UrlPolicy {
  /**
   * Checks scheme, blocklist, every address the name has, and allowlists, in this order.
   * @throws {ToolError} `url_invalid`, `url_scheme`, `url_blocked`, `url_unresolved`, `url_private`, `url_not_allowed`
   * @throws {CancelError} when the signal aborts
   */
  check(url: string, rules: UrlRules, options: CheckOptions): Promise<AllowedUrl>;
}

/** Services of a URL policy. */
export interface UrlPolicyOptions {
  /** All addresses of a host name. Default: the system's */
  readonly lookup?: (host: string) => Promise<readonly string[]>;
}

/** Creates a URL policy that looks up host names anew at each check. */
export function createUrlPolicy(options: UrlPolicyOptions = {}): UrlPolicy {
  const lookup = options.lookup ?? lookUp;
  return {
    async check(text, rules, { signal, allowed }) {
      const url = parse(text);
      const { host } = placeOf(url);
      const blocked = rules.domain_blocklist.find((entry) => isWithinDomain(host, entry));
      if (blocked !== undefined) {
        throw refusal("url_blocked", url, `[url_access] domain_blocklist names "${blocked}"`);
      }
      const addresses = isIP(host) === 0 ? await resolved(url, host, { lookup, signal }) : [host];
      for (const address of addresses) requireReachable(url, address, rules);
      if (rules.enforce_domain_allowlist && !allows(rules.domain_allowlist, url)) {
        throw refusal("url_not_allowed", url, `add "${host}" to [url_access] domain_allowlist to allow it`);
      }
      if (allowed !== undefined && !allowed.entries.includes("*") && !allows(allowed.entries, url)) {
        throw refusal("url_not_allowed", url, `add "${host}" to ${allowed.key} to allow it`);
      }
      return { url, addresses };
    },
  };
}

function parse(text: string): URL {
  if (!URL.canParse(text)) {
    throw new ToolError("url_invalid", "Cannot reach the address: it is no URL; give one as https://example.com/path");
  }
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw refusal(
      "url_scheme",
      url,
      `its scheme is "${url.protocol.slice(0, 40)}", and only http: and https: are allowed`,
    );
  }
  return url;
}

async function resolved(
  url: URL,
  host: string,
  { lookup, signal }: Required<UrlPolicyOptions> & { readonly signal: AbortSignal },
): Promise<readonly string[]> {
  if (signal.aborted) throw cancelError(signal);
  let stop = () => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    stop = () => reject(cancelError(signal));
    signal.addEventListener("abort", stop, { once: true });
  });
  try {
    const addresses = await Promise.race([lookup(host).catch(() => []), aborted]);
    if (addresses.length === 0) throw refusal("url_unresolved", url, "the host name could not be looked up");
    return addresses;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

async function lookUp(host: string): Promise<readonly string[]> {
  return (await systemLookup(host, { all: true })).map(({ address }) => address);
}

function requireReachable(url: URL, address: string, rules: UrlRules): void {
  switch (addressKind(address, rules.public_ranges)) {
    case "public":
      return;
    case "loopback":
      if (rules.allow_loopback) return;
      throw refusal("url_private", url, `${address} is this machine; [url_access] allow_loopback = true allows it`);
    case "special":
      if (!rules.block_private_ip) return;
      throw refusal(
        "url_private",
        url,
        `${address} is a private or reserved address; [url_access] block_private_ip = false allows them all, public_ranges some`,
      );
  }
}

/**
 * Tells whether an allowlist has the host of a URL. An entry with a port, as `example.com:8443`, has that port alone; an entry without
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

function placeOf(url: URL): { readonly host: string; readonly port: number } {
  const { host, port } = hostAndPort(url);
  return { host: plainHost(host), port };
}

/** Returns the port that an entry names. The last part of a bare IPv6 address is none. */
function portOf(entry: string): number | undefined {
  const port = /^(?:[^:]*|\[[^\]]*\]):(\d{1,5})$/.exec(entry)?.[1];
  return port === undefined ? undefined : Number(port);
}

/** A host name as the lists have it: no dot at the end, lower case. */
function plainHost(host: string): string {
  return host.toLowerCase().replace(/\.+$/, "");
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

/** Names the host alone: user, password and query may be secret. */
function refusal(code: string, url: URL, reason: string): ToolError {
  const shown = url.host === "" ? url.protocol : url.host;
  return new ToolError(code, `Cannot reach "${shown.slice(0, 100)}": ${reason}`);
}
