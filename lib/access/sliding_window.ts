import type { SlidingWindow } from "./identity.ts";

export interface SlidingWindowOptions {
  /** Requests allowed in any `windowMs` milliseconds: a whole number of 1 or more */
  readonly max: number;
  /** Milliseconds: 1 or more */
  readonly windowMs: number;
  /** Keys remembered at once; the one used longest ago goes first. Default 10,000 */
  readonly maxKeys?: number;
}

const DEFAULT_MAX_KEYS = 10_000;
const BUCKETS = 60;

interface Log {
  /** Ring of counts: slot `i % BUCKETS` belongs to bucket number `i` */
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
 * @throws {RangeError} `max`, `windowMs` or `maxKeys` below 1
 * Source: DESIGN.md "Rate limit"
 */
export function slidingWindow(options: SlidingWindowOptions): SlidingWindow {
  const { max, windowMs, maxKeys = DEFAULT_MAX_KEYS } = options;
  for (const [name, value] of Object.entries({ max, windowMs, maxKeys })) {
    if (!(Number.isFinite(value) && value >= 1)) {
      throw new RangeError(`Cannot limit by ${name} = ${value}: it must be 1 or more`);
    }
  }
  // One bucket more than the window has parts: the oldest is dropped only when its youngest request is a window old
  const bucketMs = windowMs / (BUCKETS - 1);
  const logs = new Map<string, Log>();
  let newest: { readonly key: string; readonly log: Log } | undefined;

  function logOf(key: string, bucket: number): Log {
    if (newest?.key === key) return newest.log;
    let log = logs.get(key);
    if (log === undefined) {
      log = { counts: new Uint32Array(BUCKETS), bucket, total: 0 };
      if (logs.size >= maxKeys) {
        // The map is not empty, since maxKeys is 1 or more
        logs.delete(logs.keys().next().value as string);
      }
    } else logs.delete(key);
    logs.set(key, log);
    newest = { key, log };
    return log;
  }

  return {
    take(key, now) {
      const bucket = Math.floor(now / bucketMs);
      const log = logOf(key, bucket);
      const { counts } = log;
      if (bucket - log.bucket >= BUCKETS) {
        counts.fill(0);
        log.total = 0;
        log.bucket = bucket;
      }
      while (log.bucket < bucket) {
        const slot = ++log.bucket % BUCKETS;
        // Slots are below BUCKETS here and further down
        log.total -= counts[slot] as number;
        counts[slot] = 0;
      }
      const allowed = log.total < max;
      if (allowed) {
        const slot = log.bucket % BUCKETS;
        counts[slot] = (counts[slot] as number) + 1;
        log.total++;
      }
      const lastBucket = allowed ? log.bucket : oldestUsed(log);
      return { allowed, limit: max, remaining: max - log.total, resetMs: (lastBucket + BUCKETS) * bucketMs - now };
    },
  };
}

/** Number of the oldest bucket that counts a request; called for a full log only, so there is one. */
function oldestUsed(log: Log): number {
  // The slot after the newest one's is that of the oldest bucket
  let next = log.bucket + 1;
  while (log.counts[next % BUCKETS] === 0) next++;
  return next - BUCKETS;
}
