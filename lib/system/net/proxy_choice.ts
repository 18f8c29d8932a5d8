import { isInRange, parseIp, parseRange } from "../../base/ip_range.ts";
import { withoutEnd } from "../../base/text.ts";
import { hostAndPort, isLoopbackName } from "./address.ts";

/** `[proxy]` of the configuration; an empty string is no proxy. */
export interface ProxySettings {
  /** Proxy for http: origins, such as `http://proxy.example:3128` */
  readonly http: string;
  /** Proxy for https: origins */
  readonly https: string;
  /** Hosts that are reached directly: `example.com` (that host), `.example.com` or `*.example.com` (its subdomains), `*` (all) */
  readonly no_proxy: readonly string[];
  /** Place where names are looked up: `local` gives the proxy an address that was checked, `proxy` gives it the name. Default `local` */
  readonly resolve?: "local" | "proxy" | undefined;
  /** Variables that count where `http` or `https` is empty. Default: none */
  readonly environment?: ((name: string) => string | undefined) | undefined;
}

/** Way that a request takes, and why. */
export interface ProxyChoice {
  /** Proxy with its user and password; undefined for a direct connection. */
  readonly proxy: string | undefined;
  /** Setting that decides, such as `[proxy] https`, `HTTPS_PROXY` or `NO_PROXY`; null when nothing names a proxy. */
  readonly source: string | null;
  /** Sentence part, such as `the entry ".example.com" of NO_PROXY names the host`. */
  readonly reason: string;
  /** Place where the host name is looked up. */
  readonly resolve: "local" | "proxy";
  /** Reason why the proxy cannot be used, and with it the address cannot be reached; undefined when there is none. */
  readonly problem: string | undefined;
}

/**
 * Chooses the proxy of a URL: `[proxy]`, then the environment. This machine is always reached directly.
 *
 * An entry of `[proxy] no_proxy` is one host, as an entry of an allowlist is. An entry of NO_PROXY is the host and its subdomains, as curl
 * reads it. Both take `*`, `.example.com`, `*.example.com`, addresses, CIDR ranges of addresses that a URL names, and a port.
 */
export function chooseProxy(settings: ProxySettings | undefined, url: URL): ProxyChoice {
  const { host } = hostAndPort(url);
  if (isLoopbackName(host) || host.endsWith(".localhost")) {
    return direct(null, "this machine is always reached directly");
  }
  const named = namedProxy(settings, url.protocol === "https:" ? "https" : "http");
  if (named === undefined) return direct(null, "no proxy is set");
  const lists = [
    { key: "[proxy] no_proxy", entries: settings?.no_proxy ?? [], isWide: false },
    named.noProxy,
  ];
  for (const { key, entries, isWide } of lists) {
    const entry = entries.find((one) => matches(one, url, isWide));
    if (entry !== undefined) return direct(key, `the entry "${entry.slice(0, 100)}" of ${key} names the host`);
  }
  const { proxy, source } = named;
  const resolve = settings?.resolve ?? "local";
  return { proxy, source, reason: `${source} names it`, resolve, problem: problemOf(proxy, source) };
}

function direct(source: string | null, reason: string): ProxyChoice {
  return { proxy: undefined, source, reason, resolve: "local", problem: undefined };
}

/** Returns the address of a proxy without user and password. */
export function shownProxy(proxy: string): string {
  const { protocol, host } = URL.parse(proxy) ?? {};
  return host === undefined || host === "" ? "(unreadable)" : `${protocol}//${host}`;
}

interface NoProxyList {
  readonly key: string;
  readonly entries: readonly string[];
  /** True when an entry names subdomains too. */
  readonly isWide: boolean;
}

/** Finds the proxy of a scheme, and the list of the environment that goes with a proxy of the environment. */
function namedProxy(
  settings: ProxySettings | undefined,
  scheme: "http" | "https",
): { readonly proxy: string; readonly source: string; readonly noProxy: NoProxyList } | undefined {
  const none = { key: "NO_PROXY", entries: [], isWide: true };
  const own = settings?.[scheme] ?? "";
  if (own !== "") return { proxy: own, source: `[proxy] ${scheme}`, noProxy: none };
  const read = (name: string) => {
    for (const key of [name, name.toUpperCase()]) {
      const value = settings?.environment?.(key)?.trim() ?? "";
      if (value !== "") return { key, value };
    }
    return undefined;
  };
  const found = read(`${scheme}_proxy`);
  if (found === undefined) return undefined;
  const list = read("no_proxy");
  const entries = (list?.value ?? "").split(/[\s,]+/).filter((entry) => entry !== "");
  // As curl and undici read it: the scheme may be missing
  const proxy = found.value.includes("://") ? found.value : `http://${found.value}`;
  return { proxy, source: found.key, noProxy: { key: list?.key ?? "NO_PROXY", entries, isWide: true } };
}

function problemOf(proxy: string, source: string): string | undefined {
  const url = URL.parse(proxy);
  if (url === null || url.hostname === "") return `${source} names a proxy that is no address`;
  if (url.protocol === "http:" || url.protocol === "https:") return undefined;
  return `${source} names a proxy of the kind ${url.protocol.slice(0, 20)}, and only http: and https: are known`;
}

/** Source: curl(1) NO_PROXY; undici EnvHttpProxyAgent */
function matches(entry: string, url: URL, isWide: boolean): boolean {
  const { host: named, port } = hostAndPort(url);
  const host = plain(named);
  const { name, port: wanted } = splitPort(entry.toLowerCase());
  if (name === "" || (wanted !== undefined && wanted !== port)) return false;
  if (name === "*") return true;
  const ip = parseIp(host);
  if (ip !== undefined) {
    const range = name.includes("/") ? parseRange(name) : undefined;
    if (range !== undefined) return isInRange(ip, range);
    const other = parseIp(name.replace(/^\[|\]$/g, ""));
    return other !== undefined && other.version === ip.version && other.value === ip.value;
  }
  if (name.startsWith("*.")) return host.endsWith(`.${plain(name.slice(2))}`);
  const domain = plain(name.replace(/^\./, ""));
  if (domain === "") return false;
  const isSubdomain = host.endsWith(`.${domain}`);
  if (isWide) return isSubdomain || host === domain;
  return name.startsWith(".") ? isSubdomain : host === domain;
}

/** A host name in the form of URLs, without dots at its end. */
function plain(host: string): string {
  return withoutEnd(host.toLowerCase(), ".");
}

/** Takes the port off an entry. The last part of a bare IPv6 address is none. */
function splitPort(entry: string): { readonly name: string; readonly port: number | undefined } {
  const [, name = "", port = ""] = /^([^:]*|\[[^\]]*\]):(\d{1,5})$/.exec(entry) ?? [];
  return port === "" ? { name: entry, port: undefined } : { name, port: Number(port) };
}
