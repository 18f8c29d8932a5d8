import { Buffer } from "node:buffer";
import type { BrowserContext, Cookie, Locator, Page } from "playwright-core";
import { ToolError } from "../../base/errors.ts";
import type { LoginState } from "../../base/records/browser_login.ts";
import { type BrowserDownloads, type DownloadedFile, openAttachment } from "./browser_downloads.ts";
import { FilledSecrets, type SecretFill, type SecretGuards } from "./filled_secrets.ts";
import { reachesLogin } from "./login_hosts.ts";
import { type StepOptions, takeStep } from "./browser_step.ts";
import { visibleText, waitForText } from "./visible_text.ts";
import { BrowserWindows, type BrowserWindowsOptions, type PageState, quotedWords } from "./browser_windows.ts";

/** Way that a page is scrolled. */
export type ScrollDirection = "up" | "down" | "left" | "right";

/** Characters of a page's text or snapshot */
const MAX_TEXT = 200_000;

/** Characters of what a snapshot says of one element */
const MAX_LABEL = 300;

interface PagesOptions extends BrowserWindowsOptions {
  readonly secrets: SecretGuards;
  readonly downloads: BrowserDownloads;
}

/** Element or address that a download comes from. */
export type DownloadSource = { readonly ref: string } | { readonly url: string };

/** Pages of one run: the one that it is on, and those behind it. */
export class BrowserPages {
  readonly #context: BrowserContext;
  readonly #downloads: BrowserDownloads;
  readonly #windows: BrowserWindows;
  readonly #secrets: FilledSecrets;
  #loginHosts: readonly string[] = [];
  /** Labels that the last snapshot gave the elements, by their refs */
  #labels: ReadonlyMap<string, string> = new Map();

  /** @param context without pages */
  constructor(context: BrowserContext, { secrets, downloads, ...options }: PagesOptions) {
    this.#context = context;
    this.#downloads = downloads;
    this.#windows = new BrowserWindows(context, options);
    this.#secrets = new FilledSecrets(secrets, (sentence) => this.note(sentence));
    downloads.onRefused = (name) => this.note(`The page started a download, which was refused: ${quotedWords(name)}`);
  }

  /** Returns the cookies of all pages, those of pages that were left too. */
  cookies(): Promise<readonly Cookie[]> {
    return this.#context.cookies();
  }

  /** Gives cookies to all pages. @returns how many the browser did not take */
  async addCookies(cookies: readonly Cookie[]): Promise<number> {
    let refused = 0;
    // Each cookie goes alone: the browser refuses all cookies of a call when it refuses one
    for (const cookie of cookies) await this.#context.addCookies([cookie]).catch(() => refused++);
    return refused;
  }

  /** Hosts of the logins that the browser was given. */
  get loginHosts(): readonly string[] {
    return this.#loginHosts;
  }

  /** Gives logins to a browser that has no cookies yet; later ones go before earlier ones. @returns how many cookies it did not take */
  async addLogins(logins: readonly LoginState[]): Promise<number> {
    this.#loginHosts = [...new Set(logins.flatMap(({ hosts }) => hosts))];
    const storage = logins.flatMap((login) => login.storage);
    if (storage.length > 0) {
      const origins = storage.map(({ origin, items }) => ({ origin, localStorage: items }));
      await this.#context.setStorageState({ cookies: [], origins });
    }
    return await this.addCookies(logins.flatMap(({ cookies }) => cookies));
  }

  /** Keeps pages of other sites from using cookies that the sites of the logins have set meanwhile. */
  async guardLogins(): Promise<void> {
    if (this.#loginHosts.length === 0) return;
    const open = (await this.cookies()).filter((cookie) =>
      cookie.sameSite === "None" && reachesLogin(cookie, this.#loginHosts)
    );
    await this.addCookies(open.map((cookie) => ({ ...cookie, sameSite: "Lax" })));
  }

  /** True when a page is open. */
  get isOpen(): boolean {
    return this.#windows.last !== undefined;
  }

  /**
   * Opens an address, in a first page where there is none.
   * @returns the status of the reply; undefined where there was none
   * @throws {ToolError} `browser_timeout`, `browser_navigation`
   */
  async navigate(url: string, options: StepOptions): Promise<number | undefined> {
    const page = this.#windows.last ?? await this.#context.newPage();
    const response = await this.#load(
      page,
      "open the address",
      options,
      () => page.goto(url, { ...limits(options), waitUntil: "commit" }),
    );
    await this.#windows.settle(page, options);
    return response?.status();
  }

  /** Goes back to the page before. @throws {ToolError} `browser_no_history` where there is none */
  async back(options: StepOptions): Promise<void> {
    const page = this.#windows.current;
    const before = page.url();
    const response = await this.#load(
      page,
      "go back",
      options,
      () => page.goBack({ ...limits(options), waitUntil: "commit" }),
    );
    if (response === null && page.url() === before) {
      throw new ToolError("browser_no_history", "Cannot go back: there is no page before this one");
    }
    await this.#windows.settle(page, options);
  }

  /** Returns the accessibility tree of the page, with a `ref` for each element that can be used. */
  async snapshot(options: StepOptions): Promise<string> {
    const page = this.#windows.current;
    const shown = cut(
      await this.#load(page, "read the page", options, () => page.ariaSnapshot({ ...limits(options), mode: "ai" })),
    );
    this.#labels = labelsOf(shown);
    return shown;
  }

  /** Returns the visible text of the page and its frames. */
  async text(options: StepOptions): Promise<string> {
    const page = this.#windows.current;
    return cut(await this.#load(page, "read the page", options, () => visibleText(page, limits(options))));
  }

  async click(ref: string, options: StepOptions): Promise<void> {
    await this.#act("click", ref, (element) => element.click(limits(options)), options);
  }

  async hover(ref: string, options: StepOptions): Promise<void> {
    await this.#act("hover over", ref, (element) => element.hover(limits(options)), options);
  }

  /** Replaces the value of a field. */
  async fill(ref: string, text: string, options: StepOptions): Promise<void> {
    await this.#act("fill", ref, (element) => element.fill(text, limits(options)), options);
  }

  /** Replaces the value of a password field by a secret. @throws {ToolError} as FilledSecrets.fill */
  async fillSecret(ref: string, secret: SecretFill, options: StepOptions): Promise<void> {
    await this.#act("fill", ref, (element) => this.#secrets.fill(element, secret, options.timeoutMs), options);
  }

  /** Types into an element key by key, as a person does. */
  async type(ref: string, text: string, options: StepOptions): Promise<void> {
    await this.#act("type into", ref, (element) => element.pressSequentially(text, limits(options)), options);
  }

  /** Chooses an option by its value or its label. */
  async select(ref: string, value: string, options: StepOptions): Promise<void> {
    await this.#act(
      "select in",
      ref,
      async (element) => void await element.selectOption(value, limits(options)),
      options,
    );
  }

  /** Gives a file to a file field. */
  async upload(
    ref: string,
    { name, bytes }: { readonly name: string; readonly bytes: Uint8Array },
    options: StepOptions,
  ): Promise<void> {
    const file = { name, mimeType: "application/octet-stream", buffer: Buffer.from(bytes) };
    await this.#act("upload to", ref, (element) => element.setInputFiles(file, limits(options)), options);
  }

  /**
   * Clicks an element, or opens an address, and takes the file that the page gives then.
   * @throws {ToolError} as `BrowserDownloads.take`
   */
  async download(
    from: DownloadSource,
    options: StepOptions & { readonly maxBytes: number },
  ): Promise<DownloadedFile> {
    if ("ref" in from) {
      const element = await this.#element("download from", from.ref, options);
      const what = `download from ${JSON.stringify(from.ref)}`;
      return await this.#downloads.take(() => element.click(limits(options)), { ...options, what });
    }
    const start = async () => {
      const page = this.#windows.last ?? await this.#context.newPage();
      await openAttachment(page, from.url, limits(options));
    };
    return await this.#downloads.take(start, { ...options, what: "download the address" });
  }

  /** Presses a key, such as `Enter` or `Control+A`. */
  async press(key: string, options: StepOptions): Promise<void> {
    const page = this.#windows.current;
    await takeStep(`press ${JSON.stringify(key)}`, options, () => page.keyboard.press(key));
    await this.#windows.settle(page, options);
  }

  async scroll(direction: ScrollDirection, amount: number, options: StepOptions): Promise<void> {
    const page = this.#windows.current;
    const sign = direction === "up" || direction === "left" ? -amount : amount;
    const isSideways = direction === "left" || direction === "right";
    await takeStep("scroll", options, () => page.mouse.wheel(isSideways ? sign : 0, isSideways ? 0 : sign));
  }

  /** Waits until a text is visible, in a frame too. @throws {ToolError} `browser_timeout` */
  async waitFor(text: string, options: StepOptions): Promise<void> {
    const page = this.#windows.current;
    await takeStep(
      `find ${JSON.stringify(text)} on the page`,
      options,
      () => waitForText(page, text, limits(options)),
    );
  }

  /** Returns a picture of the visible part of the page, as PNG. */
  async screenshot(options: StepOptions): Promise<Uint8Array> {
    const page = this.#windows.current;
    return await takeStep(
      "take a picture of the page",
      options,
      () => page.screenshot({ ...limits(options), type: "png", mask: this.#secrets.masks(page) }),
    );
  }

  /** Returns a small picture of the visible part of the page, as JPEG, for people who watch. Undefined where no page is open */
  async picture(timeoutMs: number): Promise<Uint8Array | undefined> {
    const page = this.#windows.last;
    const mask = page === undefined ? [] : this.#secrets.masks(page);
    return await page?.screenshot({ timeout: timeoutMs, type: "jpeg", quality: 60, scale: "css", mask });
  }

  /** Address of the current page; empty where none is open. */
  get url(): string {
    return this.#windows.last?.url() ?? "";
  }

  /** Returns what the last snapshot said of an element, such as `button "Sign in"`; the ref itself where it had none. */
  labelOf(ref: string): string {
    return this.#labels.get(ref) ?? ref;
  }

  /** Returns address and title of the page, and forgets the sentences that it gives. */
  state(options: StepOptions): Promise<PageState> {
    return this.#windows.state(options);
  }

  /** Adds a sentence for the next answer. */
  note(sentence: string): void {
    this.#windows.note(sentence);
  }

  /**
   * Makes a step that a server can hold up: while a page waits for the next one's server, it answers nothing. When the time is over it
   * stops waiting, so that later steps find the page.
   */
  async #load<T>(page: Page, what: string, options: StepOptions, work: () => Promise<T>): Promise<T> {
    try {
      return await takeStep(what, options, work);
    } catch (error) {
      if (error instanceof ToolError && error.code === "browser_timeout") {
        await this.#windows.look(this.#stop(page), options);
      }
      throw error;
    }
  }

  async #stop(page: Page): Promise<void> {
    const session = await this.#context.newCDPSession(page);
    await session.send("Page.stopLoading");
    session.detach().catch(() => {});
  }

  async #act(
    what: string,
    ref: string,
    work: (element: Locator) => Promise<void>,
    options: StepOptions,
  ): Promise<void> {
    const page = this.#windows.current;
    const element = await this.#element(what, ref, options);
    await takeStep(`${what} ${JSON.stringify(ref)}`, options, () => work(element));
    await this.#windows.settle(page, options);
  }

  /** @throws {ToolError} `browser_unknown_ref` */
  async #element(what: string, ref: string, options: StepOptions): Promise<Locator> {
    const element = this.#windows.current.locator(`aria-ref=${ref}`);
    if (await this.#windows.look(element.count(), options)) return element;
    throw new ToolError(
      "browser_unknown_ref",
      `Cannot ${what} ${JSON.stringify(ref)}: the page has no such element now; take a new snapshot`,
    );
  }
}

function limits({ timeoutMs, signal }: StepOptions) {
  return { timeout: timeoutMs, signal };
}

function cut(text: string): string {
  if (text.length <= MAX_TEXT) return text;
  return `${text.slice(0, MAX_TEXT).toWellFormed()}\n[Cut at ${MAX_TEXT} of ${text.length} characters]`;
}

/** Line of an element in a snapshot, such as `- button "Sign in" [active] [ref=e2]`: role, name, marks. A quote stands before a line in quotes */
const ELEMENT = /^ *- '?(\w+(?: "(?:[^"\\]|\\.)*")?)((?: \[[\w-]+(?:=\w+)?\])+)/;

/** Returns what a snapshot says of each element, such as `button "Sign in"`, by its ref. The words of a page give no element a label. */
export function labelsOf(snapshot: string): ReadonlyMap<string, string> {
  const labels = new Map<string, string>();
  for (const line of snapshot.split("\n")) {
    const [, label = "", marks = ""] = ELEMENT.exec(line) ?? [];
    const ref = / \[ref=(\w+)\]/.exec(marks)?.[1];
    if (ref !== undefined) labels.set(ref, label.slice(0, MAX_LABEL));
  }
  return labels;
}
