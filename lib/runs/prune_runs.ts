import { isEnded } from "../base/records/run.ts";
import { readable } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import { journalOf, parseRunRecord, RUN_INPUTS, RUNS } from "./run_records.ts";

const PAGE = 100;

/**
 * Forgets runs that ended before a time, with their input and journal. Runs that wait for a person or are at work stay.
 * @param endedBefore ISO 8601
 * @returns how many were forgotten
 */
export async function pruneRuns(store: Store, endedBefore: string): Promise<number> {
  let pruned = 0;
  // Going on after a run that was just deleted would lose the place, so the place is the last one that stays
  for (let after: string | undefined;;) {
    const page = await store.scan(RUNS, { order: "created", limit: PAGE, ...(after === undefined ? {} : { after }) });
    for (const stored of page) {
      const { key } = stored;
      const [found] = readable(store, RUNS, [stored], parseRunRecord);
      if (found === undefined) {
        after = key;
        continue;
      }
      const { run } = found.value;
      if (run.created_at >= endedBefore) return pruned;
      if (!isEnded(run.status) || run.ended_at === null || run.ended_at >= endedBefore) {
        after = key;
        continue;
      }
      await store.batch([
        { op: "delete", collection: RUNS, key },
        { op: "delete", collection: RUN_INPUTS, key },
        { op: "drop", stream: journalOf(key) },
      ]);
      pruned++;
    }
    if (page.length < PAGE) return pruned;
  }
}
