import * as v from "valibot";
import type { Clock } from "../../lib/base/clock.ts";
import type { Store } from "../../lib/storage/store.ts";

/** A claim that names no run after this long was left by a crash, and the next delivery takes it over. */
const CLAIM_MS = 30_000;
const POLL_MS = 50;

const acceptedSchema = v.object({
  v: v.literal(1),
  /** null while the first delivery is being accepted */
  run_id: v.nullable(v.string()),
  /** Milliseconds since the epoch */
  at: v.number(),
});

export interface AcceptOnceOptions<T> {
  readonly store: Store;
  readonly clock: Clock;
  readonly collection: string;
  readonly key: string;
  readonly start: () => Promise<T & { readonly id: string }>;
  /** Ends the wait for another delivery of the same key */
  readonly signal: AbortSignal;
}

export type Accepted<T> = { readonly first: true; readonly run: T } | { readonly first: false; readonly runId: string };

/**
 * Starts the work of a delivery, once for each key: a repeat gets the first one's run id, also while the first is still being
 * accepted. A start that fails leaves nothing behind, so that it may be tried again.
 *
 * A crash between the start and the record of it is the one case in which a repeat starts a second run.
 */
export async function acceptOnce<T>(options: AcceptOnceOptions<T>): Promise<Accepted<T>> {
  const { store, clock, collection, key } = options;
  const body = (runId: string | null) => ({ v: 1, run_id: runId, at: clock.now() });
  while (!await store.insertOnce(collection, key, body(null))) {
    const stored = await store.get(collection, key);
    if (stored === undefined) continue;
    const { run_id: runId, at } = v.parse(acceptedSchema, stored.body);
    if (runId !== null) return { first: false, runId };
    if (clock.now() - at < CLAIM_MS) await clock.sleep(POLL_MS, options.signal);
    else if (await store.putIfVersion(collection, key, stored.version, body(null))) break;
  }
  try {
    const run = await options.start();
    await store.batch([{ op: "put", collection, key, body: body(run.id) }]);
    return { first: true, run };
  } catch (error) {
    await store.batch([{ op: "delete", collection, key }]);
    throw error;
  }
}

const SWEEP = 20;

/**
 * Deletes the oldest records of a collection whose `at` is before `before`: called at each insert it keeps the collection as
 * small as its retention, without a timer.
 */
export async function forgetBefore(store: Store, collection: string, before: number): Promise<void> {
  const oldest = await store.scan(collection, { order: "created", limit: SWEEP });
  const old = oldest.filter(({ body }) => v.parse(v.object({ at: v.number() }), body).at < before);
  if (old.length > 0) await store.batch(old.map(({ key }) => ({ op: "delete", collection, key })));
}
