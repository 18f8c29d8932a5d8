import { cancelError } from "../../base/cancel.ts";
import type { Timer } from "../../base/clock.ts";
import { untilEffectMayBegin } from "../../base/effect_right.ts";
import { ToolError } from "../../base/errors.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import type { RequestGuard } from "./guarded_targets.ts";
import { BrowserPages } from "./browser_page.ts";
import type { StepOptions } from "./browser_step.ts";
import { type BrowserAction, type BrowserView, BrowserViews } from "./browser_views.ts";
import {
  type BrowserStarter,
  type BrowserStarterOptions,
  createBrowserStarter,
  type NewBrowser,
  type StartedBrowser,
} from "./start_browser.ts";

/** Limits of a piece of work, and the browser that it may open. */
export interface BrowserRequest extends StepOptions, NewBrowser {
  /** True: opens a browser where the run has none */
  readonly opens: boolean;
  /** Prepares the pages of a browser that was just opened. Default: nothing is prepared */
  readonly onOpened?: ((pages: BrowserPages) => Promise<void>) | undefined;
}

/** Services that browsers need. */
export type BrowsersOptions = Omit<BrowserStarterOptions, "signal">;

/** Browsers at the same time: each holds hundreds of megabytes */
const MAX_BROWSERS = 4;
/** A browser that no call uses for so long is closed. A person may be at work in one with a window */
const IDLE_MS = 300_000;
const VISIBLE_IDLE_MS = 3_600_000;

interface Entry {
  readonly browser: StartedBrowser;
  readonly pages: BrowserPages;
  /** Milliseconds without a call after which it is closed */
  readonly idleMs: number;
  idle: Timer;
}

/**
 * Browsers for tools, one for each run that uses one (docs/design/browser.md "Life"). None is started before the first use.
 */
export class Browsers {
  readonly #options: BrowsersOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #lock = createKeyedMutex();
  readonly #views: BrowserViews;
  readonly #closing = new AbortController();
  readonly #starter: BrowserStarter;
  /** Reasons of ends that the run was not told of yet */
  readonly #ends = new Map<string, string>();
  #opening = 0;

  constructor(options: BrowsersOptions) {
    this.#options = options;
    this.#views = new BrowserViews(options.clock);
    this.#starter = createBrowserStarter({ ...options, signal: this.#closing.signal });
  }

  /**
   * Works on the pages of a run, one piece of work after the other.
   * @throws {ToolError} `browser_no_page` where the run has no browser and may not open one; `browser_not_contained`,
   * `browser_not_found`, `browser_driver_missing`, `browser_not_started`, `too_many_browsers`; what the work throws
   * @throws {CancelError} when the signal aborts
   */
  use<T>(runId: string, request: BrowserRequest, work: (pages: BrowserPages) => Promise<T>): Promise<T> {
    return this.#lock(runId, async () => {
      const signal = AbortSignal.any([request.signal, this.#closing.signal]);
      if (signal.aborted) throw cancelError(signal);
      const entry = this.#entries.get(runId) ?? await this.#open(runId, { ...request, signal });
      entry.idle.clear();
      try {
        await untilEffectMayBegin(signal);
        return await work(entry.pages);
      } finally {
        entry.idle = this.#options.clock.after(entry.idleMs, () => this.#closeIdle(runId, entry));
        if (this.#entries.get(runId) !== entry) entry.idle.clear();
      }
    });
  }

  /** Adds an operation of a run's browser to what people see who watch. */
  note(runId: string, action: Omit<BrowserAction, "at">): void {
    this.#views.note(runId, action);
  }

  /** Returns the browser of a run as people see it, with a fresh picture while it is open. Undefined where it has used none */
  view(runId: string): Promise<BrowserView | undefined> {
    return this.#views.view(runId, this.#entries.get(runId)?.pages);
  }

  /** Closes the browser of a run and waits for its end. @returns false where there was none */
  async closeRun(runId: string): Promise<boolean> {
    this.#ends.delete(runId);
    const open = this.#entries.get(runId);
    if (open !== undefined) await this.#views.takeLast(runId, open.pages);
    const wasOpen = await this.#end(runId, this.#entries.get(runId));
    // A browser that was being opened meanwhile has an entry only now
    return await this.#lock(runId, () => this.#end(runId, this.#entries.get(runId))) || wasOpen;
  }

  /** Closes all browsers and waits for their end. Later work may open others. */
  async closeAll(): Promise<void> {
    await Promise.all([...this.#entries.keys()].map((runId) => this.closeRun(runId)));
  }

  /** Closes all browsers and waits for their end. Later work is refused. Repeating it does nothing */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#entries].map(([runId, entry]) => this.#end(runId, entry)));
  }

  async #open(runId: string, request: BrowserRequest): Promise<Entry> {
    const before = this.#ends.get(runId);
    this.#ends.delete(runId);
    if (!request.opens) throw noPage(before);
    if (this.#entries.size + this.#opening >= MAX_BROWSERS) throw tooMany();
    this.#opening++;
    try {
      const entry = await this.#start(runId, request);
      if (before !== undefined) entry.pages.note(`This is a new browser: ${before}`);
      this.#entries.set(runId, entry);
      return entry;
    } finally {
      this.#opening--;
    }
  }

  async #start(runId: string, request: BrowserRequest): Promise<Entry> {
    const { clock } = this.#options;
    const browser = await this.#starter.start(request);
    const { context, targets, downloads, windows, problems, narrow } = browser;
    const secrets = { guard: (guard: RequestGuard) => targets.guard(guard), narrow };
    const pages = new BrowserPages(context, { secrets, downloads, windows, problems, clock });
    try {
      await request.onOpened?.(pages);
    } catch (error) {
      await browser.close();
      throw error;
    }
    const idleMs = request.isVisible === true ? VISIBLE_IDLE_MS : IDLE_MS;
    const entry: Entry = { browser, pages, idleMs, idle: clock.after(idleMs, () => {}) };
    void browser.ended.then((reason) => this.#forget(runId, entry, reason));
    return entry;
  }

  #closeIdle(runId: string, entry: Entry): void {
    this.#ends.set(runId, `the one before was closed after ${entry.idleMs / 60_000} minutes without use`);
    void this.#end(runId, entry);
  }

  /** A browser that ended by itself, or was killed for its memory */
  async #forget(runId: string, entry: Entry, reason: string | undefined): Promise<void> {
    if (this.#entries.get(runId) !== entry) return;
    this.#ends.set(runId, reason ?? "the one before ended unexpectedly");
    await this.#end(runId, entry);
  }

  async #end(runId: string, entry: Entry | undefined): Promise<boolean> {
    if (entry === undefined) return false;
    if (this.#entries.get(runId) === entry) this.#entries.delete(runId);
    entry.idle.clear();
    await entry.browser.close();
    return true;
  }
}

function noPage(before: string | undefined): ToolError {
  const why = before === undefined ? "no page is open" : `no page is open, and ${before}`;
  return new ToolError("browser_no_page", `Cannot use the browser: ${why}; open one with "op": "navigate"`);
}

function tooMany(): ToolError {
  return new ToolError(
    "too_many_browsers",
    `Cannot open a browser: ${MAX_BROWSERS} runs have one open; close one with "op": "close", or wait until one of them ends`,
  );
}
