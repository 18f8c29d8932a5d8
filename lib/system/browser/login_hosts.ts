import { ToolError } from "../../base/errors.ts";
import type { StoredOrigin } from "../../base/records/browser_login.ts";
import type { KeptCookie } from "../../base/records/cookie_jar.ts";

/** Site of a login: its name, and the address that the window opens. */
export interface LoginSite {
  readonly site: string;
  readonly url: string;
}

/** Cookies and stored values that belong to some hosts, and what was left out. */
export interface SiteState {
  readonly cookies: readonly KeptCookie[];
  readonly storage: readonly StoredOrigin[];
  /** Hosts whose cookies were left out, each with their number */
  readonly others: ReadonlyMap<string, number>;
  /** Values of local storage that were left out because they are too long */
  readonly tooLong: number;
}

/** Cookies of one login. */
const MAX_COOKIES = 300;
/** Bytes of one cookie, name and value; Chromium takes no longer ones. */
const MAX_COOKIE_BYTES = 4096;
/** Bytes of all values of local storage of one login. */
export const MAX_STORAGE_BYTES = 524_288;
const LABEL = "[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?";
const HOST_NAME = new RegExp(`^(?=.{1,253}$)${LABEL}(?:\\.${LABEL})*$`);

/**
 * Reads the site that a person wants to sign in at: a host, such as `app.example.com` or `localhost:8080`, or an address.
 * @throws {ToolError} `login_host` for anything else
 */
export function parseLoginSite(text: string): LoginSite {
  const isAddress = text.includes("://");
  const plain = URL.parse(isAddress ? text : `https://${text}`);
  const problem = problemOf(plain);
  if (plain === null || problem !== undefined) throw refusedHost(text, problem ?? "it is no host");
  const site = plainHost(plain.hostname);
  // No certificate names this machine
  const isHere = site === "localhost" || site === "[::1]" || site.startsWith("127.");
  const url = isAddress || !isHere ? plain : new URL(`http://${text}`);
  return { site, url: url.href };
}

/** Reads a host that a login counts for as well. @throws {ToolError} `login_host` */
export function parseLoginHost(text: string): string {
  return parseLoginSite(text).site;
}

/** Tells whether a text is a host in the one form that records have. */
export function isLoginHost(text: string): boolean {
  const plain = URL.parse(`https://${text}`);
  return plain !== null && problemOf(plain) === undefined && plain.hostname === text && plainHost(text) === text;
}

function problemOf(url: URL | null): string | undefined {
  if (url === null) return "it is no host";
  if (url.protocol !== "https:" && url.protocol !== "http:") return "only http and https addresses have pages";
  if (url.username !== "" || url.password !== "") return "it holds a user or a password";
  const host = plainHost(url.hostname);
  return HOST_NAME.test(host) || host.startsWith("[") ? undefined : "it is no host; give one such as app.example.com";
}

function refusedHost(text: string, problem: string): ToolError {
  return new ToolError("login_host", `Cannot sign in at ${JSON.stringify(text.slice(0, 200))}: ${problem}`);
}

/** Returns a host without the dot at its end, with which browsers take it for another one. */
function plainHost(host: string): string {
  return host.endsWith(".") ? host.slice(0, -1) : host;
}

/** Tells whether other hosts can lie below a host: not below an IP address, nor below a name of one label. */
export function hasHostsBelow(host: string): boolean {
  return host.includes(".") && !host.startsWith("[") && !/\.\d+$/.test(host);
}

/** Tells whether a host is one of a login's, or lies below one. */
export function isOfLogin(host: string, hosts: readonly string[]): boolean {
  return hosts.some((one) => host === one || (hasHostsBelow(one) && host.endsWith(`.${one}`)));
}

/**
 * Returns the cookies and values that belong to some hosts.
 *
 * - A cookie of a parent domain becomes a cookie of the host itself.
 * - No cookie is sent for pages of other sites (`SameSite=None` becomes `Lax`), so that no page rides on the login.
 * - With `isSecure` no cookie is sent without TLS, where another page could make the browser show it to the network.
 */
export function bindToHosts(
  given: { readonly cookies: readonly KeptCookie[]; readonly storage: readonly StoredOrigin[] },
  { hosts, isSecure }: { readonly hosts: readonly string[]; readonly isSecure: boolean },
): SiteState {
  const others = new Map<string, number>();
  const kept = new Map<string, KeptCookie>();
  const narrowed: KeptCookie[] = [];
  const put = (cookie: KeptCookie) => {
    const key = JSON.stringify([cookie.name, cookie.domain, cookie.path, cookie.partitionKey ?? null]);
    if (!kept.has(key)) kept.set(key, guarded(cookie, isSecure));
  };
  for (const cookie of given.cookies) {
    const bound = narrow(cookie, hosts);
    const host = bareDomain(cookie.domain);
    if (bound.length === 0) others.set(host, (others.get(host) ?? 0) + 1);
    else if (isOfLogin(host, hosts)) put(cookie);
    else narrowed.push(...bound);
  }
  // The site's own cookie goes before one of the same name that its parent domain has set
  narrowed.forEach(put);
  const cookies = [...kept.values()].slice(0, MAX_COOKIES);
  return { cookies, others, ...bindStorage(given.storage, { hosts, isSecure }) };
}

/** Tells whether the browser sends a cookie to a host of a login. */
export function reachesLogin(cookie: KeptCookie, hosts: readonly string[]): boolean {
  const domain = bareDomain(cookie.domain);
  return isOfLogin(domain, hosts) ||
    (cookie.domain.startsWith(".") && hosts.some((host) => host.endsWith(`.${domain}`)));
}

/** Returns a cookie as each of the hosts gets it; none where it belongs to none of them. */
function narrow(cookie: KeptCookie, hosts: readonly string[]): readonly KeptCookie[] {
  if (cookie.partitionKey !== undefined && !isPartOf(cookie.partitionKey, hosts)) return [];
  if (Buffer.byteLength(cookie.name + cookie.value) > MAX_COOKIE_BYTES) return [];
  const domain = bareDomain(cookie.domain);
  if (isOfLogin(domain, hosts)) return [cookie];
  if (!cookie.domain.startsWith(".")) return [];
  return hosts.filter((host) => hasHostsBelow(host) && host.endsWith(`.${domain}`))
    .map((host) => ({ ...cookie, domain: `.${host}` }));
}

/** Tells whether a cookie that counts below one site alone counts below the site of the login. */
function isPartOf(partitionKey: string, hosts: readonly string[]): boolean {
  const host = URL.parse(partitionKey)?.hostname;
  return host !== undefined && hosts.some((one) => one === host || one.endsWith(`.${host}`));
}

function guarded(cookie: KeptCookie, isSecure: boolean): KeptCookie {
  return {
    ...cookie,
    secure: cookie.secure || isSecure,
    sameSite: cookie.sameSite === "None" ? "Lax" : cookie.sameSite,
  };
}

function bareDomain(domain: string): string {
  return domain.startsWith(".") ? domain.slice(1) : domain;
}

/** Returns the values of the hosts' origins, the shortest first while there is room. */
function bindStorage(
  storage: readonly StoredOrigin[],
  { hosts, isSecure }: { readonly hosts: readonly string[]; readonly isSecure: boolean },
): Pick<SiteState, "storage" | "tooLong"> {
  const own = storage.filter(({ origin }) => isOriginOfLogin(origin, { hosts, isSecure }));
  const all = own.flatMap(({ origin, items }) => items.map((item) => ({ origin, item })));
  const bytesOf = ({ item: { name, value } }: typeof all[number]) => Buffer.byteLength(name + value);
  let bytes = 0;
  const kept = all.toSorted((one, other) => bytesOf(one) - bytesOf(other))
    .filter((entry) => (bytes += bytesOf(entry)) <= MAX_STORAGE_BYTES);
  const grouped = own.map(({ origin }) => ({
    origin,
    items: kept.filter((entry) => entry.origin === origin).map(({ item }) => item),
  }));
  return { storage: grouped.filter(({ items }) => items.length > 0), tooLong: all.length - kept.length };
}

function isOriginOfLogin(
  origin: string,
  { hosts, isSecure }: { readonly hosts: readonly string[]; readonly isSecure: boolean },
): boolean {
  const url = URL.parse(origin);
  if (url === null || url.origin !== origin) return false;
  const isKind = url.protocol === "https:" || (url.protocol === "http:" && !isSecure);
  return isKind && isOfLogin(url.hostname, hosts);
}
