/** A sliding window per key. */
export interface SlidingWindow {
  /** Takes one slot of `key`. @param now milliseconds, monotonic */
  take(key: string, now: number): WindowState;
  /** Tells whether `take` would refuse the key. Takes no slot, and remembers no key */
  isUsedUp(key: string, now: number): boolean;
}
/** State of a window after a request: let in or refused, and the slots that are left. */
export interface WindowState {
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Milliseconds until a slot is free (when refused) or the window is empty again */
  readonly resetMs: number;
}

/** Size of a window and the number of keys that it remembers. */
export interface SlidingWindowOptions {
  /** Requests allowed in any `windowMs` milliseconds: a whole number of 1 or more */
  readonly max: number;
  /** Milliseconds: a whole number of 1 or more */
  readonly windowMs: number;
  /** Keys remembered at once; the one used longest ago goes first. Default 10,000 */
  readonly maxKeys?: number;
}

const DEFAULT_MAX_KEYS = 10_000;
/** Counts of a window, the newest one included. */
export const WINDOW_BUCKETS = 60;

/** Requests of one key in a window, as a ring: bucket number `i` has the slot `i % WINDOW_BUCKETS`. */
export class WindowCounts {
  readonly counts = new Uint32Array(WINDOW_BUCKETS);
  /** Number of the newest bucket. */
  bucket = 0;
  /** Sum of `counts`. */
  total = 0;

  /** Forgets what the window has left behind on its way to `bucket`. */
  moveOn(bucket: number): void {
    if (bucket <= this.bucket) return;
    if (this.total === 0 || bucket - this.bucket >= WINDOW_BUCKETS) {
      this.clear();
      this.bucket = bucket;
      return;
    }
    while (this.bucket < bucket) {
      const slot = ++this.bucket % WINDOW_BUCKETS;
      this.total -= this.counts[slot] ?? 0;
      this.counts[slot] = 0;
    }
  }

  /** Counts requests of a bucket. Those of one that the window has left behind do not count. */
  add(bucket: number, count: number): void {
    this.moveOn(bucket);
    if (this.bucket - bucket >= WINDOW_BUCKETS) return;
    const slot = bucket % WINDOW_BUCKETS;
    this.counts[slot] = (this.counts[slot] ?? 0) + count;
    this.total += count;
  }

  /** Returns the number of the oldest bucket with a request; of the newest one without any. */
  oldest(): number {
    for (let bucket = this.bucket - WINDOW_BUCKETS + 1; bucket < this.bucket; bucket++) {
      if (bucket >= 0 && this.counts[bucket % WINDOW_BUCKETS] !== 0) return bucket;
    }
    return this.bucket;
  }

  /** Forgets all requests. */
  clear(): void {
    if (this.total > 0) this.counts.fill(0);
    this.total = 0;
  }
}

/**
 * A sliding window per key, as a ring of 60 counts. One that gateways share (shared_windows.ts) is another one with the same ring: it lets
 * in a share of what all of them have left, as of the last exchange.
 *
 * A request counts from the moment it was made for at least `windowMs` and at most a 59th part of it longer, so in no span of
 * `windowMs` more than `max` are allowed. A refused request does not count. One `take` touches one slot, or as many as
 * have passed since the last; memory is 240 bytes a key whatever `max` is, and bounded by `maxKeys`.
 * @throws {RangeError} `max`, `windowMs` or `maxKeys` below 1 or not whole
 * Source: docs/design/access.md "Rate limit"
 */
export function slidingWindow(options: SlidingWindowOptions): SlidingWindow {
  const { max, windowMs, maxKeys = DEFAULT_MAX_KEYS } = options;
  for (const [name, value] of Object.entries({ max, windowMs, maxKeys })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new RangeError(`Cannot limit by ${name} = ${value}: it must be a whole number of 1 or more`);
    }
  }
  // One bucket more than the window has parts: the oldest is dropped only when its youngest request is a window old
  const bucketMs = windowMs / (WINDOW_BUCKETS - 1);
  const logs = new RecentKeys({ maxKeys, create: () => new WindowCounts(), reset: (log) => log.clear() });

  return {
    take(key, now) {
      const bucket = Math.floor(now / bucketMs);
      const log = logs.use(key);
      log.moveOn(bucket);
      const allowed = log.total < max;
      // In the newest bucket, also after a clock that stepped back
      if (allowed) log.add(log.bucket, 1);
      const lastBucket = allowed ? log.bucket : log.oldest();
      return {
        allowed,
        limit: max,
        remaining: max - log.total,
        resetMs: (lastBucket + WINDOW_BUCKETS) * bucketMs - now,
      };
    },
    isUsedUp(key, now) {
      const log = logs.find(key);
      if (log === undefined) return false;
      log.moveOn(Math.floor(now / bucketMs));
      return log.total >= max;
    },
  };
}

interface Node<T> {
  key: string;
  readonly value: T;
  newer: Node<T>;
  older: Node<T>;
}

/**
 * At most `maxKeys` values by key. Beyond that the value used longest ago is made as new by `reset` and given to the new key, so that
 * a flood of keys makes no garbage. Each use costs the same: a ring of neighbours rather than the order of a Map, whose first
 * key is found by stepping over all that were deleted.
 */
export class RecentKeys<T> {
  readonly #options: { readonly maxKeys: number; readonly create: () => T; readonly reset: (value: T) => void };
  readonly #nodes = new Map<string, Node<T>>();
  /** The node used last. The ring is closed, so `newest.newer` is the oldest node */
  #newest: Node<T> | undefined;

  constructor(options: { readonly maxKeys: number; readonly create: () => T; readonly reset: (value: T) => void }) {
    this.#options = options;
  }

  /** The value of `key`, whose place in the order stays. Undefined for a key that is not kept */
  find(key: string): T | undefined {
    return this.#nodes.get(key)?.value;
  }

  /** The value of `key`, which becomes the one used last */
  use(key: string): T {
    if (this.#newest?.key === key) return this.#newest.value;
    let node = this.#nodes.get(key);
    if (node === undefined) {
      node = this.#add(key);
      this.#nodes.set(key, node);
    } else if (node !== this.#newest?.newer) {
      node.older.newer = node.newer;
      node.newer.older = node.older;
      this.#placeAfterNewest(node);
    }
    this.#newest = node;
    return node.value;
  }

  #placeAfterNewest(node: Node<T>): void {
    const newest = this.#newest;
    if (newest === undefined) return;
    node.older = newest;
    node.newer = newest.newer;
    newest.newer.older = node;
    newest.newer = node;
  }

  #add(key: string): Node<T> {
    const { maxKeys, create, reset } = this.#options;
    if (this.#newest !== undefined && this.#nodes.size >= maxKeys) {
      // The oldest stands right after the newest: renamed, it is in its place already
      const oldest = this.#newest.newer;
      this.#nodes.delete(oldest.key);
      oldest.key = key;
      reset(oldest.value);
      return oldest;
    }
    // A ring of one, which makes the node whole
    const node = { key, value: create() } as Node<T>;
    node.newer = node.older = node;
    this.#placeAfterNewest(node);
    return node;
  }
}
