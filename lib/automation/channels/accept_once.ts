import * as v from "valibot";
import { HttpError } from "../../base/errors.ts";
import type { RunHandle, RunRequest } from "../../runs/run_request.ts";
import type { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";

/** Schema of the record of a delivery. */
export const acceptedSchema = v.object({
  v: v.literal(1),
  run_id: v.string(),
  /** Milliseconds since the epoch */
  at: v.number(),
});

type AcceptedRecord = v.InferOutput<typeof acceptedSchema>;

/** Options of `acceptOnce`. */
export interface AcceptOnceOptions {
  readonly store: Store;
  /** Milliseconds since the epoch */
  readonly now: number;
  readonly collection: Collection<AcceptedRecord, AcceptedRecord>;
  readonly key: string;
  /** Starts the run with this claim */
  readonly start: (claim: NonNullable<RunRequest["claim"]>) => Promise<RunHandle>;
}

/** The run of a delivery: started now, or by an earlier delivery with the same key. */
export type Accepted =
  | { readonly first: true; readonly run: RunHandle }
  | { readonly first: false; readonly runId: string };

/**
 * Starts the run of a delivery, once for each key: a repeat gets the first one's run id.
 *
 * The key is recorded in the transaction that accepts the run, so that no crash and no second delivery at the same moment can
 * come between the two. A key whose record is damaged is refused: its message may have been taken before. A start that fails leaves
 * nothing behind, and may be tried again.
 */
export async function acceptOnce({ store, now, collection, key, start }: AcceptOnceOptions): Promise<Accepted> {
  const find = async () => (await collection.read(store, key))?.value.run_id;
  const earlier = await find();
  if (earlier !== undefined) return { first: false, runId: earlier };
  try {
    const run = await start((runId) => collection.insert(key, { v: 1, run_id: runId, at: now }));
    return { first: true, run };
  } catch (error) {
    const winner = error instanceof HttpError && error.code === "conflict" ? await find() : undefined;
    if (winner === undefined) throw error;
    return { first: false, runId: winner };
  }
}

const SWEEP = 20;

/**
 * Deletes the oldest records of a collection whose `at` is before `before`: called at each insert it keeps the collection as
 * small as its retention, without a timer.
 */
export async function forgetBefore(
  store: Store,
  collection: Collection<{ readonly at: number }>,
  before: number,
): Promise<void> {
  const deletes = await collection.removeOldest(store, SWEEP, ({ at }) => at < before);
  if (deletes.length > 0) await store.batch(deletes);
}
