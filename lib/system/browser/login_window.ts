import type { Page } from "playwright-core";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import type { StoredOrigin } from "../../base/records/browser_login.ts";
import type { KeptCookie } from "../../base/records/cookie_jar.ts";
import {
  bindToHosts,
  hasHostsBelow,
  isOfLogin,
  type LoginSite,
  MAX_STORAGE_BYTES,
  type SiteState,
} from "./login_hosts.ts";
import type { BrowserStarter, NewBrowser, StartedBrowser } from "./start_browser.ts";

/** Window in which a person signs in. */
export interface LoginWindowOptions {
  readonly starter: BrowserStarter;
  readonly request: Omit<NewBrowser, "isVisible" | "fitsWindow">;
  readonly clock: Clock;
  readonly site: LoginSite;
  /** Hosts that the login counts for; the site's comes first */
  readonly hosts: readonly string[];
  /** Runs when the window is there */
  readonly onOpened: () => void;
  /** Receives each connection of a page that was refused, once */
  readonly onProblem: (sentence: string) => void;
  /** Resolves when the person says that they have signed in */
  readonly done: Promise<void>;
}

/** Milliseconds between looks at the cookies: a window that is closed has none to tell */
const LOOK_MS = 1000;
/** Milliseconds for the last look */
const LAST_LOOK_MS = 5000;
/** Milliseconds for one page to tell its values */
const PAGE_MS = 2000;
/** Values of one origin */
const MAX_ITEMS = 500;
const GOTO_MS = 60_000;

/**
 * Opens a browser with a window, in which a person signs in, and waits until the last window is closed or `done` resolves.
 * @returns the cookies and values of the hosts, and nothing of others
 * @throws {ToolError} `login_host` for a host that many owners share, such as co.uk; those of `BrowserStarter.start`
 * @throws {CancelError} when the signal aborts: nothing is kept
 */
export async function signInByHand(options: LoginWindowOptions): Promise<SiteState> {
  const { starter, request, hosts } = options;
  const browser = await starter.start({ ...request, isVisible: true, fitsWindow: true });
  const stop = () => void browser.close();
  request.signal.addEventListener("abort", stop, { once: true });
  try {
    await refuseSharedHosts(browser, hosts);
    return await new LoginWindow(browser, options).wait();
  } finally {
    request.signal.removeEventListener("abort", stop);
    await browser.close();
  }
}

/**
 * Refuses hosts below which anybody may have a host. The browser knows them: it takes no cookie for all that lies below one.
 * Source: https://publicsuffix.org, which Chromium carries
 */
async function refuseSharedHosts({ context }: StartedBrowser, hosts: readonly string[]): Promise<void> {
  for (const host of hosts.filter(hasHostsBelow)) {
    await context.addCookies([{ name: "postern", value: "1", domain: `.${host}`, path: "/" }]).catch(() => {});
    const [taken] = await context.cookies();
    await context.clearCookies();
    if (taken?.domain === `.${host}`) continue;
    const reason = `hosts below it belong to many owners; give the host of one site, as www.${host}`;
    throw new ToolError("login_host", `Cannot sign in at "${host}": ${reason}`);
  }
}

class LoginWindow {
  readonly #browser: StartedBrowser;
  readonly #options: LoginWindowOptions;
  readonly #pages = new Set<Page>();
  readonly #closed = Promise.withResolvers<void>();
  readonly #problems = new Set<string>();
  /** Cookies and values as the last look has found them */
  #cookies: readonly KeptCookie[] = [];
  readonly #storage = new Map<string, StoredOrigin>();

  constructor(browser: StartedBrowser, options: LoginWindowOptions) {
    this.#browser = browser;
    this.#options = options;
    browser.context.on("page", (page) => this.#add(page));
  }

  async wait(): Promise<SiteState> {
    const { clock, done, hosts, site, onOpened, request: { signal } } = this.#options;
    const page = await this.#browser.context.newPage();
    onOpened();
    // A page that does not load is shown with its reason, and the person may type another address
    page.goto(site.url, { timeout: GOTO_MS, waitUntil: "commit" }).catch(() => {});
    const poller = new Poller(async () => {
      this.#tellProblems();
      await this.#look();
    });
    poller.start(clock, LOOK_MS);
    try {
      await Promise.race([this.#closed.promise, this.#browser.ended, done]);
    } finally {
      void poller.stop();
    }
    if (signal.aborted) throw cancelError(signal);
    await withTimeout(this.#look(), { ms: LAST_LOOK_MS, clock });
    this.#tellProblems();
    if (signal.aborted) throw cancelError(signal);
    const state = { cookies: this.#cookies, storage: [...this.#storage.values()] };
    return bindToHosts(state, { hosts, isSecure: site.url.startsWith("https:") });
  }

  #add(page: Page): void {
    this.#pages.add(page);
    // Somebody who listens leaves the dialog to the person; without, the driver dismisses it
    page.on("dialog", () => {});
    page.on("close", () => {
      this.#pages.delete(page);
      if (this.#pages.size === 0) this.#closed.resolve();
    });
  }

  /** Never throws: a browser that has ended leaves what the look before has found. */
  async #look(): Promise<void> {
    const { clock } = this.#options;
    const cookies = await this.#browser.context.cookies().catch(() => undefined);
    if (cookies !== undefined) this.#cookies = cookies;
    const found = await Promise.all([...this.#pages].map(async (page) => {
      const origin = this.#ownOrigin(page);
      if (origin === undefined) return undefined;
      const items = await withTimeout(readStorage(page).catch(() => undefined), { ms: PAGE_MS, clock });
      // A page that has come meanwhile answers for its own origin alone
      return items === undefined || this.#ownOrigin(page) !== origin ? undefined : { origin, items };
    }));
    for (const stored of found) if (stored !== undefined) this.#storage.set(stored.origin, stored);
  }

  /** Returns the origin of a page that is one of the login's; undefined for others. */
  #ownOrigin(page: Page): string | undefined {
    const url = URL.parse(page.url());
    return url !== null && isOfLogin(url.hostname, this.#options.hosts) ? url.origin : undefined;
  }

  #tellProblems(): void {
    for (const problem of this.#browser.problems()) {
      if (this.#problems.has(problem)) continue;
      this.#problems.add(problem);
      this.#options.onProblem(problem);
    }
  }
}

/** Reads the local storage of a page, as much of it as one login may hold. */
function readStorage(page: Page): Promise<StoredOrigin["items"]> {
  return page.evaluate(({ maxItems, maxLength }) => {
    // The code of this function runs in the page
    const { localStorage } = globalThis as unknown as { readonly localStorage: Record<string, string> };
    return Object.entries(localStorage)
      .filter(([name, value]) => name.length + String(value).length <= maxLength)
      .slice(0, maxItems)
      .map(([name, value]) => ({ name, value: String(value) }));
  }, { maxItems: MAX_ITEMS, maxLength: MAX_STORAGE_BYTES });
}
