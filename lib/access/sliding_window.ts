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
const BUCKETS = 60;

interface Log {
  /** Ring of counts: bucket number `i` has the slot `i % BUCKETS` */
  readonly counts: Uint32Array;
  /** Number of the newest bucket */
  bucket: number;
  /** Sum of `counts` */
  total: number;
}

/**
 * A sliding window per key, as a ring of 60 counts.
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
  const bucketMs = windowMs / (BUCKETS - 1);
  const logs = createRecentKeys<Log>({
    maxKeys,
    create: () => ({ counts: new Uint32Array(BUCKETS), bucket: 0, total: 0 }),
    reset: clear,
  });

  return {
    take(key, now) {
      const bucket = Math.floor(now / bucketMs);
      const log = logs.use(key);
      moveOn(log, bucket);
      const allowed = log.total < max;
      if (allowed) {
        const slot = log.bucket % BUCKETS;
        // Slots are below BUCKETS
        log.counts[slot] = (log.counts[slot] as number) + 1;
        log.total++;
      }
      const lastBucket = allowed ? log.bucket : oldestUsed(log);
      return { allowed, limit: max, remaining: max - log.total, resetMs: (lastBucket + BUCKETS) * bucketMs - now };
    },
    isUsedUp(key, now) {
      const log = logs.find(key);
      if (log === undefined) return false;
      moveOn(log, Math.floor(now / bucketMs));
      return log.total >= max;
    },
  };
}

function clear(log: Log): void {
  if (log.total > 0) log.counts.fill(0);
  log.total = 0;
}

/** Forgets what the window has left behind on its way to `bucket`. */
function moveOn(log: Log, bucket: number): void {
  if (bucket <= log.bucket) return;
  if (log.total === 0 || bucket - log.bucket >= BUCKETS) {
    clear(log);
    log.bucket = bucket;
    return;
  }
  while (log.bucket < bucket) {
    const slot = ++log.bucket % BUCKETS;
    // Slots are below BUCKETS
    log.total -= log.counts[slot] as number;
    log.counts[slot] = 0;
  }
}

/** Number of the oldest bucket that counts a request; called for a full log only, so there is one. */
function oldestUsed(log: Log): number {
  // The slot after the newest one's is that of the oldest bucket
  let next = log.bucket + 1;
  while (log.counts[next % BUCKETS] === 0) next++;
  return next - BUCKETS;
}

/** Values by key, of which the one used longest ago is given up for a new one. */
export interface RecentKeys<T> {
  /** The value of `key`, which becomes the one used last */
  use(key: string): T;
  /** The value of `key`, whose place in the order stays. Undefined for a key that is not kept */
  find(key: string): T | undefined;
}

interface Node<T> {
  key: string;
  readonly value: T;
  newer: Node<T>;
  older: Node<T>;
}

/**
 * Creates a keeper of at most `maxKeys` values. Beyond that the value used longest ago is made as new by `reset` and given to the new key, so that
 * a flood of keys makes no garbage. Each use costs the same: a ring of neighbours rather than the order of a Map, whose first
 * key is found by stepping over all that were deleted.
 */
export function createRecentKeys<T>(
  options: { readonly maxKeys: number; readonly create: () => T; readonly reset: (value: T) => void },
): RecentKeys<T> {
  const { maxKeys, create, reset } = options;
  const nodes = new Map<string, Node<T>>();
  /** The node used last. The ring is closed, so `newest.newer` is the oldest node */
  let newest: Node<T> | undefined;

  function placeAfterNewest(node: Node<T>): void {
    if (newest === undefined) return;
    node.older = newest;
    node.newer = newest.newer;
    newest.newer.older = node;
    newest.newer = node;
  }

  function add(key: string): Node<T> {
    if (newest !== undefined && nodes.size >= maxKeys) {
      // The oldest stands right after the newest: renamed, it is in its place already
      const oldest = newest.newer;
      nodes.delete(oldest.key);
      oldest.key = key;
      reset(oldest.value);
      return oldest;
    }
    const node = { key, value: create() } as Node<T>;
    // A ring of one, which makes the node whole
    node.newer = node.older = node;
    placeAfterNewest(node);
    return node;
  }

  return {
    find: (key) => nodes.get(key)?.value,
    use(key) {
      if (newest?.key === key) return newest.value;
      let node = nodes.get(key);
      if (node === undefined) {
        node = add(key);
        nodes.set(key, node);
      } else if (node !== newest?.newer) {
        node.older.newer = node.newer;
        node.newer.older = node.older;
        placeAfterNewest(node);
      }
      newest = node;
      return node.value;
    },
  };
}
