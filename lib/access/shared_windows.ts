import type { Clock, Timer } from "../base/clock.ts";
import { Poller } from "../base/poller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store } from "../storage/store.ts";
import { RATE_WINDOWS, type RateWindowsBody } from "./rate_records.ts";
import { RecentKeys, type SlidingWindow, WINDOW_BUCKETS, WindowCounts, type WindowState } from "./sliding_window.ts";

/** Windows that the gateways of a cluster can share. The others guard one process, or belong to a link of one gateway. */
export type SharedKind = "callers" | "addresses" | "pairing" | "refusedTokens" | "identities" | "identityAddresses";

/** Options of `SharedWindows`. */
export interface SharedWindowsOptions {
  readonly store: Store;
  /** Clock that tells the database's time. */
  readonly clock: Clock;
  readonly log: Logger;
  /** Id of this gateway. */
  readonly gateway: string;
  /** Returns the number of gateways, this one included. */
  readonly gateways: () => Promise<number>;
}

const MAX_KEYS = 10_000;
/** Keys of one window that a gateway tells the others of. A further key has its part of the limit at each gateway. */
const MAX_TOLD = 200;
/** Pause between two exchanges, and the shortest one when a share is used up soon. */
const EXCHANGE_MS = 1_000;
const SOON_MS = 50;
/** Time after an exchange in which its counts are relied on. */
const FRESH_MS = 3_000;
const COUNT_MS = 5_000;
const MAX_GATEWAYS = 1_000;

/** Requests of one key at this gateway. */
class OwnCounts extends WindowCounts {
  key = "";
  /** Requests that were ever let in, and those of them that the others need not be told of any more. Both only go up. */
  letIn = 0;
  done = 0;
  /** Requests that may be let in before the next exchange, as counted at the exchange `exchange`. */
  share = 0;
  exchange = -1;

  /** Requests within the window that the others have not been told of. */
  get untold(): number {
    return Math.min(this.letIn - this.done, this.total);
  }

  /** Forgets all requests, for another key. */
  reset(): void {
    this.clear();
    this.done = this.letIn;
    this.exchange = -1;
  }
}

/** State of the exchanges with the other gateways. */
interface Knowledge {
  /** Number of the last exchange that succeeded. */
  exchange: number;
  /** Monotonic time of it. */
  at: number;
  gateways: number;
}

/** A window that gateways share. Asking it costs no round trip: the counts are exchanged once a second. */
class SharedWindow implements SlidingWindow {
  readonly max: number;
  readonly windowMs: number;
  readonly #clock: Clock;
  readonly #known: Knowledge;
  readonly #onUse: (isSoon: boolean) => void;
  readonly #keys: RecentKeys<OwnCounts>;
  /** Keys that the others are told of. */
  readonly #told = new Map<string, OwnCounts>();
  #others: ReadonlyMap<string, WindowCounts> = new Map();

  constructor(
    { max, windowMs }: { readonly max: number; readonly windowMs: number },
    { clock, known, onUse }: {
      readonly clock: Clock;
      readonly known: Knowledge;
      readonly onUse: (isSoon: boolean) => void;
    },
  ) {
    this.max = max;
    this.windowMs = windowMs;
    this.#clock = clock;
    this.#known = known;
    this.#onUse = onUse;
    this.#keys = new RecentKeys({
      maxKeys: MAX_KEYS,
      create: () => new OwnCounts(),
      reset: (own) => own.reset(),
    });
  }

  /**
   * Takes one slot of a key.
   *
   * Between two exchanges a gateway lets in its share of what was left at the last one. While the exchanges fail, and for a key that the
   * others are not told of, it lets in its share of the whole window and no more.
   */
  take(key: string): WindowState {
    const { max } = this;
    const time = this.#clock.now();
    const bucketMs = this.windowMs / (WINDOW_BUCKETS - 1);
    const bucket = this.#newest();
    const own = this.#keys.use(key);
    own.key = key;
    const { allowed, total, others, isFresh, isTold } = this.#look(key, own);
    if (allowed) {
      own.add(bucket, 1);
      own.letIn++;
      if (isTold) this.#told.set(key, own);
    }
    // When nothing is left, the others have nothing to say that would let the sender in
    this.#onUse(!isFresh || (isTold && own.untold > 0 && own.untold * 2 >= own.share));
    const used = total + (allowed ? 1 : 0);
    const reset = allowed ? own.bucket : Math.min(oldestOf(own), others === undefined ? Infinity : oldestOf(others));
    const resetMs = !allowed && total < max && isFresh && isTold
      ? EXCHANGE_MS
      : Math.max(1, (Number.isFinite(reset) ? reset : bucket) * bucketMs + WINDOW_BUCKETS * bucketMs - time);
    return { allowed, limit: max, remaining: allowed ? Math.max(0, max - used) : 0, resetMs };
  }

  isUsedUp(key: string): boolean {
    return !this.#look(key, this.#keys.find(key) ?? new OwnCounts()).allowed;
  }

  #look(key: string, own: OwnCounts) {
    const { max } = this;
    const bucket = this.#newest();
    own.moveOn(bucket);
    const others = this.#others.get(key);
    others?.moveOn(bucket);
    const total = own.total + (others?.total ?? 0);
    const { gateways, exchange, at } = this.#known;
    const isFresh = exchange > 0 && this.#clock.monotonic() - at < FRESH_MS;
    if (own.exchange !== exchange) {
      own.exchange = exchange;
      own.share = Math.ceil(Math.max(0, max - total) / gateways);
    }
    const isTold = this.#told.get(key) === own || this.#told.size < MAX_TOLD;
    const hasShare = isFresh && isTold ? own.untold < own.share : own.total < Math.ceil(max / gateways);
    return { allowed: total < max && hasShare, total, others, isFresh, isTold };
  }

  /** Returns what the others are to be told, with a function to call once they are. */
  toTell(): {
    readonly body: RateWindowsBody["windows"][string];
    readonly isEmpty: boolean;
    readonly told: () => void;
  } {
    const newest = this.#newest();
    const keys: Record<string, number[]> = {};
    const told: (readonly [OwnCounts, number])[] = [];
    for (const [key, own] of this.#told) {
      if (own.key === key) own.moveOn(newest);
      if (own.key !== key || own.total === 0) {
        this.#told.delete(key);
        continue;
      }
      told.push([own, own.letIn]);
      const pairs: number[] = [];
      for (let back = 0; back < WINDOW_BUCKETS; back++) {
        const bucket = own.bucket - back;
        const count = bucket < 0 ? 0 : own.counts[bucket % WINDOW_BUCKETS] ?? 0;
        if (count > 0) pairs.push(newest - bucket, count);
      }
      keys[key] = pairs;
    }
    return {
      body: { window_ms: this.windowMs, newest, keys },
      isEmpty: told.length === 0,
      told() {
        for (const [own, letIn] of told) own.done = Math.max(own.done, letIn);
      },
    };
  }

  /** Returns the number of the bucket of now. */
  #newest(): number {
    return Math.floor(this.#clock.now() / (this.windowMs / (WINDOW_BUCKETS - 1)));
  }

  /** Takes what the others have let in. */
  takeOthers(told: readonly RateWindowsBody["windows"][string][]): void {
    const others = new Map<string, WindowCounts>();
    const now = this.#newest();
    for (const { window_ms, newest, keys } of told) {
      // A window of another size, or of another time than the database's
      if (window_ms !== this.windowMs || newest > now + WINDOW_BUCKETS) continue;
      for (const [key, pairs] of Object.entries(keys)) {
        const counts = others.get(key) ?? new WindowCounts();
        others.set(key, counts);
        for (let at = pairs.length - 2; at >= 0; at -= 2) {
          const [back = 0, count = 0] = [pairs[at], pairs[at + 1]];
          if (count > 0) counts.add(newest - back, count);
        }
      }
    }
    this.#others = others;
  }
}

function oldestOf(counts: WindowCounts): number {
  return counts.total === 0 ? Infinity : counts.oldest();
}

/**
 * Windows of requests that the gateways of a cluster share, for `[gateway] rate_limit_scope = "cluster"`.
 *
 * Each gateway writes the counts of its own requests into a record and reads those of the others, once a second, and sooner when half of a
 * share is used. The limit is exceeded only by requests of one key that come to several gateways between two exchanges: each lets in its
 * share of what was left, so that all of them together let in less than twice the limit, and one more for each gateway.
 */
export class SharedWindows {
  readonly #options: SharedWindowsOptions;
  readonly #windows = new Map<SharedKind, SharedWindow>();
  readonly #known: Knowledge = { exchange: 0, at: -Infinity, gateways: 1 };
  readonly #poller: Poller;
  #soon: Timer | undefined = undefined;
  #countedAt = -Infinity;
  #triedAt = -Infinity;
  #isWritten = false;
  #isClosed = false;

  constructor(options: SharedWindowsOptions) {
    this.#options = options;
    this.#poller = new Poller(() => this.#exchange(), (error) => {
      options.log.warn("The windows of requests cannot be shared: each gateway lets in its part of them", { error });
    });
  }

  /** Creates a window, in place of any earlier one of its kind. */
  window(kind: SharedKind, size: { readonly max: number; readonly windowMs: number }): SlidingWindow {
    const { clock } = this.#options;
    const window = new SharedWindow(size, { clock, known: this.#known, onUse: (isSoon) => this.#use(isSoon) });
    if (this.#windows.size === 0 && !this.#isClosed) this.#poller.start(clock, EXCHANGE_MS);
    this.#windows.set(kind, window);
    // An exchange that has just begun finds the window too
    if (!this.#poller.isWorking()) void this.#poller.look();
    return window;
  }

  /** Takes this gateway's counts away. Never throws. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#soon?.clear();
    await this.#poller.stop();
    const { store, gateway } = this.#options;
    if (this.#isWritten) await store.takeOnce(RATE_WINDOWS.name, gateway).catch(() => {});
  }

  #use(isSoon: boolean): void {
    if (!isSoon || this.#soon !== undefined || this.#poller.isWorking() || this.#isClosed) return;
    const { clock } = this.#options;
    const wait = this.#poller.isFailing() ? EXCHANGE_MS : SOON_MS - (clock.monotonic() - this.#triedAt);
    if (wait <= 0) return void this.#poller.look();
    this.#soon = clock.after(wait, () => {
      this.#soon = undefined;
      if (!this.#poller.isWorking()) void this.#poller.look();
    });
  }

  async #exchange(): Promise<void> {
    const { clock } = this.#options;
    this.#triedAt = clock.monotonic();
    await this.#count();
    await this.#tell();
    await this.#readOthers();
    this.#known.exchange++;
    this.#known.at = clock.monotonic();
  }

  async #count(): Promise<void> {
    const { clock, gateways } = this.#options;
    if (clock.monotonic() - this.#countedAt < COUNT_MS) return;
    this.#known.gateways = Math.max(1, await gateways());
    this.#countedAt = clock.monotonic();
  }

  async #tell(): Promise<void> {
    const { store, clock, gateway } = this.#options;
    const found = [...this.#windows].map(([kind, window]) => ({ kind, ...window.toTell() }));
    const isEmpty = found.every((each) => each.isEmpty);
    if (!isEmpty || this.#isWritten) {
      const windows = Object.fromEntries(found.filter((each) => !each.isEmpty).map(({ kind, body }) => [kind, body]));
      const body: RateWindowsBody = { v: 1, at: clock.now(), windows };
      await store.batch([isEmpty ? RATE_WINDOWS.remove(gateway) : RATE_WINDOWS.put(gateway, body)]);
      this.#isWritten = !isEmpty;
    }
    for (const { told } of found) told();
  }

  async #readOthers(): Promise<void> {
    const { store, clock, gateway } = this.#options;
    const all = await RATE_WINDOWS.page(store, { limit: MAX_GATEWAYS });
    const others = all.filter(({ key }) => key !== gateway);
    for (const [kind, window] of this.#windows) {
      window.takeOthers(others.flatMap(({ value }) => value.windows[kind] ?? []));
    }
    const longest = Math.max(...[...this.#windows.values()].map(({ windowMs }) => windowMs));
    const gone = others.filter(({ value }) => Math.abs(clock.now() - value.at) > 2 * longest);
    // A gateway that died left its counts, which count for nothing by now
    if (gone.length > 0) await store.batch(gone.map(({ key }) => RATE_WINDOWS.remove(key)));
  }
}
