import { Buffer } from "node:buffer";
import { type Clock, withTimeout } from "../../base/clock.ts";
import type { BrowserPages } from "./browser_page.ts";

/** Operation of a browser, as people see it who watch. Times are ISO 8601. */
export interface BrowserAction {
  readonly at: string;
  readonly op: string;
  /** Element, address, key or file that the operation was about; never what was typed. Empty where it was about the page */
  readonly target: string;
  /** Address of the page afterwards; empty where it is not known */
  readonly url: string;
  /** Why it failed; null when it did not */
  readonly error: string | null;
}

/** Picture of a page. */
export interface BrowserPicture {
  /** JPEG in base64 */
  readonly data: string;
  /** ISO 8601 */
  readonly takenAt: string;
}

/** Browser of a run, as people see it who watch. */
export interface BrowserView {
  readonly isOpen: boolean;
  /** The newest operations, in their order */
  readonly actions: readonly BrowserAction[];
  /** Operations before those */
  readonly dropped: number;
  /** The last picture; undefined where none could be taken */
  readonly picture: BrowserPicture | undefined;
}

/** Runs whose view is kept, the newest. */
const MAX_VIEWS = 20;
/** Operations of a view. */
export const MAX_ACTIONS = 200;
/** A picture that is younger is shown again. */
const FRESH_MS = 1_000;
/** Milliseconds for a picture. A page that is busy longer is shown as it was. */
const PICTURE_MS = 3_000;
/** Bytes of a picture. A page whose picture is larger is shown as it was. */
const MAX_PICTURE_BYTES = 1_048_576;
/** Milliseconds for the picture of a browser that is about to be closed. */
const LAST_PICTURE_MS = 500;

interface Entry {
  readonly actions: BrowserAction[];
  dropped: number;
  picture: BrowserPicture | undefined;
  /** Time of the picture by the monotonic clock, in milliseconds */
  takenMs: number;
  taking: Promise<void> | undefined;
}

/** Views of the browsers of runs, in memory: what they did, and how their pages look. A view outlives its browser. */
export class BrowserViews {
  readonly #clock: Clock;
  /** In the order of their last operation */
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Adds an operation that was made, with its time. */
  note(runId: string, action: Omit<BrowserAction, "at">): void {
    const entry = this.#entries.get(runId) ??
      { actions: [], dropped: 0, picture: undefined, takenMs: -Infinity, taking: undefined };
    this.#entries.delete(runId);
    this.#entries.set(runId, entry);
    entry.actions.push({ at: new Date(this.#clock.now()).toISOString(), ...action });
    if (entry.actions.length > MAX_ACTIONS) {
      entry.actions.shift();
      entry.dropped++;
    }
    for (const [oldest] of this.#entries) {
      if (this.#entries.size <= MAX_VIEWS) break;
      this.#entries.delete(oldest);
    }
  }

  /**
   * Returns the view of a run; undefined where it has used no browser, or too many others have since.
   * @param pages pages of its browser, which a picture is taken of. Undefined: the browser is closed
   */
  async view(runId: string, pages: BrowserPages | undefined): Promise<BrowserView | undefined> {
    const entry = this.#entries.get(runId);
    if (entry === undefined) return undefined;
    if (pages !== undefined && this.#clock.monotonic() - entry.takenMs >= FRESH_MS) {
      await this.#take(entry, pages, PICTURE_MS);
    }
    const { actions, dropped, picture } = entry;
    return { isOpen: pages !== undefined, actions: [...actions], dropped, picture };
  }

  /** Takes the last picture of a browser that is about to be closed. Never throws */
  async takeLast(runId: string, pages: BrowserPages): Promise<void> {
    const entry = this.#entries.get(runId);
    if (entry === undefined) return;
    // A picture that somebody asked for before may take longer
    await withTimeout(this.#take(entry, pages, LAST_PICTURE_MS), { ms: LAST_PICTURE_MS, clock: this.#clock });
  }

  /** Takes a picture, once for all who ask meanwhile. */
  #take(entry: Entry, pages: BrowserPages, timeoutMs: number): Promise<void> {
    const take = async () => {
      // A page that cannot be shown is shown as it was
      const bytes = await pages.picture(timeoutMs).catch(() => undefined);
      if (bytes === undefined || bytes.length > MAX_PICTURE_BYTES) return;
      entry.picture = {
        data: Buffer.from(bytes).toString("base64"),
        takenAt: new Date(this.#clock.now()).toISOString(),
      };
      entry.takenMs = this.#clock.monotonic();
    };
    return entry.taking ??= take().finally(() => entry.taking = undefined);
  }
}
