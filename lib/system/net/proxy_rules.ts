import { isLoopbackName } from "./address.ts";

/** `[proxy]` of the configuration; an empty string is no proxy. */
export interface ProxySettings {
  /** Proxy for http: origins, as `http://proxy.example:3128` */
  readonly http: string;
  /** Proxy for https: origins */
  readonly https: string;
  /** Hosts that are reached directly: `example.com` (that host), `.example.com` or `*.example.com` (its subdomains), `*` (all) */
  readonly no_proxy: readonly string[];
}

/** Gives the proxy of an origin, undefined for a direct connection. Loopback is always direct. */
export function createProxyRules(settings: ProxySettings | undefined): (origin: string) => string | undefined {
  const rules = (settings?.no_proxy ?? []).map((rule) => rule.toLowerCase());
  return (origin) => {
    const { protocol, hostname } = new URL(origin);
    const proxy = protocol === "https:" ? settings?.https : settings?.http;
    if (proxy === undefined || proxy === "" || isLoopbackName(hostname) || hostname.endsWith(".localhost")) {
      return undefined;
    }
    return rules.some((rule) => matches(rule, hostname)) ? undefined : proxy;
  };
}

function matches(rule: string, hostname: string): boolean {
  if (rule === "*") return true;
  const suffix = rule.startsWith("*.") ? rule.slice(1) : rule;
  return suffix.startsWith(".") ? hostname.endsWith(suffix) : hostname === suffix;
}
