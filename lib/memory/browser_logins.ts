import type { Clock } from "../base/clock.ts";
import { ConfigError, type HttpError, refuse, ToolError } from "../base/errors.ts";
import { lazily } from "../base/lazily.ts";
import { type BrowserLogin, type KeptLogin, type LoginState, parseKeptLogin } from "../base/records/browser_login.ts";
import type { KeptCookie } from "../base/records/cookie_jar.ts";
import type { Actor } from "../base/records/caller.ts";
import { scanAll } from "../storage/read_records.ts";
import { OtherKeyError, type RecordCipher, SealError, writeSealed } from "../storage/record_cipher.ts";
import type { SealedCollection } from "../storage/rekey_records.ts";
import type { Store, Stored, Write } from "../storage/store.ts";
import { bindToHosts, isLoginHost } from "../system/browser/login_hosts.ts";
import { BROWSER_LOGINS } from "./browser_records.ts";

/** Logins of all sites. */
export const MAX_LOGINS = 100;
/** Bytes of one login, as JSON. */
const MAX_LOGIN_BYTES = 2_097_152;

/** Run and call that a login is given to. */
export interface LoginUse {
  readonly runId: string;
  readonly callId: string;
  readonly requestId?: string | undefined;
  readonly conversationId: string | null;
  readonly caller: Actor;
}

/** Change or use of a login that the audit is told of. */
export type LoginEvent =
  & { readonly site: string; readonly hosts: readonly string[] }
  & (
    | { readonly action: "stored" | "removed"; readonly by: Actor }
    | { readonly action: "used"; readonly use: LoginUse }
  );

/** Logins with which people let the agent's browser in at sites, encrypted at rest. */
export interface BrowserLogins {
  /** Returns all logins by site, without their values; those that cannot be read too. */
  list(): Promise<readonly BrowserLogin[]>;
  /**
   * Keeps a login in the place of the one before.
   * @param site one of its hosts
   * @throws {HttpError} 400 `invalid_request` for a state that belongs to other hosts or is too long; 409 `conflict` when there are
   *   MAX_LOGINS others
   */
  save(site: string, state: LoginState, by: Actor): Promise<BrowserLogin>;
  /** Removes a login, one that cannot be read too. @returns false where there is none */
  remove(site: string, by: Actor): Promise<boolean>;
  /**
   * Returns the cookies and values of a login that count now, and records the use.
   * @throws {ToolError} `login_missing`, `login_expired`, `login_unreadable`
   */
  open(site: string, use: LoginUse): Promise<KeptLogin>;
}

/** Services that logins need. */
export interface BrowserLoginsOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** Returns the cipher, whose key is opened at the first use. @throws {ConfigError} a key that cannot be used */
  readonly cipher: () => Promise<RecordCipher>;
  /** Returns the newest `[browser] logins`. */
  readonly used: () => readonly string[];
  /** Records an event in one transaction with its writes. */
  readonly record: (event: LoginEvent, writes?: readonly Write[]) => Promise<unknown>;
}

/** Logins, for a change of their key. */
export const SEALED_LOGINS: SealedCollection = {
  collection: BROWSER_LOGINS.name,
  key: "browser_cookies.key",
  rewrite({ key, body }, reseal) {
    const login = BROWSER_LOGINS.parse(body);
    return { ...login, sealed: { ...login.sealed, ...reseal(login.sealed, boundTo(key)) } };
  },
};

/** Creates the logins over a store. */
export function createBrowserLogins(options: BrowserLoginsOptions): BrowserLogins {
  const { store, clock, record, used } = options;
  const cipher = lazily(options.cipher);
  const read = async (stored: Stored): Promise<KeptLogin | string> => await readLogin(stored, { store, cipher });
  const shown = (site: string, login: KeptLogin | string) => describe(site, { login, now: clock.now(), used: used() });
  return {
    async list() {
      const logins: BrowserLogin[] = [];
      for await (const stored of scanAll(store, BROWSER_LOGINS.name)) {
        logins.push(shown(stored.key, await read(stored)));
      }
      return logins;
    },
    async save(site, state, by) {
      const login = { ...checked(site, state), created_at: new Date(clock.now()).toISOString() };
      const text = JSON.stringify(login);
      if (Buffer.byteLength(text) > MAX_LOGIN_BYTES) {
        throw invalid(site, `it has ${Buffer.byteLength(text)} bytes, and a login has at most ${MAX_LOGIN_BYTES}`);
      }
      if (await BROWSER_LOGINS.versionOf(store, site) === 0 && await store.count(BROWSER_LOGINS.name) >= MAX_LOGINS) {
        throw refuse(
          "conflict",
          `Cannot keep the login of "${site}": there are ${MAX_LOGINS} logins; remove one with "postern browser logout"`,
        );
      }
      await writeSealed(await cipher(), async (writer) => {
        const body = { v: 1 as const, sealed: { ...writer.seal(text, boundTo(site)) } };
        return await record({ action: "stored", site, hosts: login.hosts, by }, [
          BROWSER_LOGINS.put(site, body),
          ...writer.also,
        ]);
      });
      return shown(site, login);
    },
    async remove(site, by) {
      const stored = await store.get(BROWSER_LOGINS.name, site);
      if (stored === undefined) return false;
      const login = await read(stored);
      const hosts = typeof login === "string" ? [] : login.hosts;
      await record({ action: "removed", site, hosts, by }, [BROWSER_LOGINS.remove(site)]);
      return true;
    },
    async open(site, use) {
      const stored = await store.get(BROWSER_LOGINS.name, site);
      if (stored === undefined) throw cannotOpen("login_missing", site, "there is no login of this site");
      const login = await read(stored);
      if (typeof login === "string") throw cannotOpen("login_unreadable", site, login);
      const now = clock.now();
      if (isExpired(login, now)) throw cannotOpen("login_expired", site, "its cookies have expired");
      await record({ action: "used", site, hosts: login.hosts, use });
      return { ...login, cookies: login.cookies.filter((cookie) => !hasEnded(cookie, now)) };
    },
  };
}

/** Returns a login, or the reason why it cannot be read. */
async function readLogin(
  stored: Stored,
  { store, cipher }: Pick<BrowserLoginsOptions, "store" | "cipher">,
): Promise<KeptLogin | string> {
  const found = BROWSER_LOGINS.parsed(store, stored);
  if (found === undefined) return "its record is damaged";
  try {
    return parseKeptLogin((await cipher()).open(found.value.sealed, boundTo(stored.key)));
  } catch (error) {
    if (error instanceof OtherKeyError) {
      return `${error.message}; put the right browser_cookies.key into the data directory`;
    }
    if (error instanceof SealError || error instanceof ConfigError) return error.message;
    return "its content is not that of a login";
  }
}

/** Checks that a state holds nothing of other hosts, whoever sends it. @throws {HttpError} 400 `invalid_request` */
function checked(site: string, { hosts, cookies, storage }: LoginState): LoginState {
  if (hosts[0] !== site) throw invalid(site, `the first of "hosts" must be "${site}"`);
  const wrong = hosts.find((host) => !isLoginHost(host));
  if (wrong !== undefined) throw invalid(site, 'each of "hosts" must be a host, such as app.example.com');
  const bound = bindToHosts({ cookies, storage }, { hosts, isSecure: false });
  const count = (origins: readonly LoginState["storage"][number][]) =>
    origins.reduce((sum, { items }) => sum + items.length, 0);
  if (bound.cookies.length !== cookies.length || count(bound.storage) !== count(storage)) {
    throw invalid(site, "it has cookies or values of other hosts, or too many of them");
  }
  if (cookies.length === 0 && count(storage) === 0) throw invalid(site, "it has neither cookies nor stored values");
  return { hosts: [...new Set(hosts)], cookies: [...bound.cookies], storage: [...bound.storage] };
}

function describe(
  site: string,
  { login, now, used }: { readonly login: KeptLogin | string; readonly now: number; readonly used: readonly string[] },
): BrowserLogin {
  const common = { id: site, object: "browser_login" as const, site, used_by_runs: used.includes(site) };
  if (typeof login === "string") {
    const none = { hosts: [], cookies: 0, stored_values: 0, created_at: null, expires_at: null };
    return { ...common, ...none, state: "unreadable", reason: login };
  }
  const isOver = isExpired(login, now);
  const end = endOf(login);
  return {
    ...common,
    hosts: login.hosts,
    cookies: login.cookies.length,
    stored_values: login.storage.reduce((sum, { items }) => sum + items.length, 0),
    created_at: login.created_at,
    expires_at: end === undefined ? null : new Date(end).toISOString(),
    state: isOver ? "expired" : "kept",
    reason: isOver ? "its cookies have expired" : null,
  };
}

/** Returns when the last cookie ends, in ms since the epoch. Undefined where no end is known. */
function endOf({ cookies }: KeptLogin): number | undefined {
  if (cookies.length === 0 || cookies.some(({ expires }) => expires < 0)) return undefined;
  return Math.min(8.64e15, Math.max(...cookies.map(({ expires }) => Math.floor(expires * 1000))));
}

/** Stored values have no end of their own. */
function isExpired(login: KeptLogin, now: number): boolean {
  const end = endOf(login);
  return login.storage.length === 0 && end !== undefined && end <= now;
}

function hasEnded({ expires }: KeptCookie, now: number): boolean {
  return expires >= 0 && expires * 1000 <= now;
}

function cannotOpen(code: string, site: string, reason: string): ToolError {
  return new ToolError(
    code,
    `Cannot use the login of "${site}": ${reason}; a person signs in with "postern browser login ${site}"`,
  );
}

function invalid(site: string, reason: string): HttpError {
  return refuse("invalid_request", `Cannot keep the login of ${JSON.stringify(site.slice(0, 253))}: ${reason}`);
}

/** Binds the text to its record: a login never opens under the name of another site. */
function boundTo(site: string): string {
  return JSON.stringify([BROWSER_LOGINS.name, site]);
}
