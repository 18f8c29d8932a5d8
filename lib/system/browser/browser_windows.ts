import type { BrowserContext, Dialog, Page } from "playwright-core";
import { cancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { StepOptions } from "./browser_step.ts";
import type { OpeningWindows } from "./opening_windows.ts";

/** State of a run's page after an operation. */
export interface PageState {
  readonly url: string;
  readonly title: string;
  /** Sentences about what happened meanwhile that nobody asked for, as dialogs and new windows */
  readonly events: readonly string[];
}

/** Windows that a run may have open; further ones are closed at once */
const MAX_PAGES = 5;
/** Sentences that are kept until the next answer */
const MAX_EVENTS = 20;
/** Characters of a page's own words in a sentence about it */
const MAX_QUOTED = 300;
/** Milliseconds for a page to finish loading once it can be read */
const SETTLE_MS = 3000;
/** Milliseconds for a look at whether an element is there, unless the operation has less */
const LOOK_MS = 5000;

/** Clock of a run's windows, and what tells of requests and of windows that open. */
export interface BrowserWindowsOptions {
  readonly clock: Clock;
  /** Returns sentences about requests that were refused since the last call */
  readonly problems: () => readonly string[];
  readonly windows: OpeningWindows;
}

/** Windows of one run, the newest of which is the page that the run is on, and sentences about what happened in them. */
export class BrowserWindows {
  readonly #clock: Clock;
  readonly #problems: () => readonly string[];
  readonly #opening: OpeningWindows;
  readonly #pages: Page[] = [];
  #events: string[] = [];

  /** @param context without pages */
  constructor(context: BrowserContext, { clock, problems, windows }: BrowserWindowsOptions) {
    this.#clock = clock;
    this.#problems = problems;
    this.#opening = windows;
    context.on("page", (page) => this.#add(page));
  }

  /** Page that the run is on. Undefined where none is open */
  get last(): Page | undefined {
    return this.#pages.at(-1);
  }

  /** Page that the run is on. @throws {ToolError} `browser_no_page` */
  get current(): Page {
    const page = this.#pages.at(-1);
    if (page !== undefined) return page;
    throw new ToolError("browser_no_page", 'Cannot use the browser: no page is open; open one with "op": "navigate"');
  }

  /** Returns address and title of the page, and forgets the sentences that it gives. */
  async state(options: StepOptions): Promise<PageState> {
    let page = this.current;
    let title = await this.look(page.title(), options) ?? "";
    if (page !== this.current) {
      // Another window came or went meanwhile
      page = this.current;
      title = await this.look(page.title(), options) ?? "";
    }
    const events = [...this.#events, ...this.#problems()].slice(0, MAX_EVENTS);
    this.#events = [];
    return { url: page.url(), title: title.slice(0, MAX_QUOTED), events };
  }

  /** Adds a sentence for the next answer. */
  note(sentence: string): void {
    if (this.#events.length < MAX_EVENTS && !this.#events.includes(sentence)) this.#events.push(sentence);
  }

  /** Returns what a quick look finds; undefined when it fails or takes long. */
  async look<T>(work: Promise<T>, { signal, timeoutMs }: StepOptions): Promise<T | undefined> {
    const ms = Math.min(LOOK_MS, timeoutMs);
    const found = await withTimeout(work.catch(() => undefined), { ms, clock: this.#clock });
    if (signal.aborted) throw cancelError(signal);
    return found;
  }

  /** Waits a little for a page that loads, or for a window that it opens. One that never finishes is used as it is. */
  async settle(page: Page, options: StepOptions): Promise<void> {
    const timeoutMs = Math.min(SETTLE_MS, options.timeoutMs);
    await this.#opening.settle({ ms: timeoutMs, clock: this.#clock });
    const current = this.#pages.at(-1) ?? page;
    await current.waitForLoadState("load", { timeout: timeoutMs, signal: options.signal }).catch(() => {});
  }

  #add(page: Page): void {
    this.#opening.shown();
    if (this.#pages.length >= MAX_PAGES) {
      this.note(`A further window was closed: ${MAX_PAGES} are open`);
      return void page.close().catch(() => {});
    }
    if (this.#pages.length > 0) this.note("The page opened a new window, which is the current page now");
    this.#pages.push(page);
    page.on("close", () => this.#remove(page));
    page.on("crash", () => {
      this.note("The page crashed and was closed");
      page.close().catch(() => {});
    });
    page.on("dialog", (dialog) => this.#dismiss(dialog));
  }

  #remove(page: Page): void {
    const index = this.#pages.indexOf(page);
    if (index < 0) return;
    this.#pages.splice(index, 1);
    if (index > 0) this.note("A window was closed");
  }

  #dismiss(dialog: Dialog): void {
    const type = dialog.type();
    const isLeaving = type === "beforeunload";
    if (!isLeaving) {
      this.note(`The page showed a dialog (${type}), which was dismissed: ${quotedWords(dialog.message())}`);
    }
    (isLeaving ? dialog.accept() : dialog.dismiss()).catch(() => {});
  }
}

/** Returns the beginning of a page's own words, in quotes. */
export function quotedWords(text: string): string {
  return JSON.stringify(text.slice(0, MAX_QUOTED).toWellFormed());
}
