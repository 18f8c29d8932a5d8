import { isAtWork, isEnded } from "../../base/records/run.ts";
import { KeyedNotifier } from "../../base/keyed_queues.ts";
import { unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { followRun } from "./follow_run.ts";
import { journalOf, RUN_INPUTS, RUN_RESPONSES, RUNS, shownUpTo } from "./run_records.ts";
import type { RunSupervisor } from "../run_request.ts";
import { RunStore, type RunStoreOptions } from "./run_store.ts";

/** Recorded runs, for reading. */
export type StoredRuns = Pick<RunSupervisor, "get" | "startedBy" | "list" | "follow" | "reach">;

/** Returns the recorded runs of a store where no run is at work, as in a gateway without an agent. */
export function createStoredRuns(
  { store, ...options }: { readonly store: Store } & Pick<RunStoreOptions, "history">,
): StoredRuns {
  const runs = new RunStore(store, options);
  const news = new KeyedNotifier();
  return {
    get: (id) => runs.get(id),
    startedBy: (id) => runs.startedBy(id),
    list: (options) => runs.list(options),
    async follow(id, options) {
      if (await runs.get(id) === undefined) return undefined;
      return followRun(id, { ...options, runs, news, find: () => undefined });
    },
    async reach(id) {
      const run = await runs.get(id);
      if (run === undefined) return undefined;
      const recorded = await runs.lastSeq(id);
      const eventsFollow = isAtWork(run.status);
      return { recorded, furthest: eventsFollow ? shownUpTo(recorded) : recorded, eventsFollow };
    },
  };
}

const PAGE = 100;

/**
 * Forgets runs that ended before a time, with input and journal. Runs that wait for a person or are at work stay.
 * @param endedBefore ISO 8601
 * @returns how many were forgotten
 */
export async function pruneRuns(store: Store, endedBefore: string): Promise<number> {
  let pruned = 0;
  // The place is the last run that stays, since a place after a deleted run would be lost
  for (let after: string | undefined;;) {
    const page = await store.scan(RUNS.name, {
      order: "created",
      limit: PAGE,
      ...(after === undefined ? {} : { after }),
    });
    for (const stored of page) {
      const { key } = stored;
      const found = RUNS.parsed(store, stored);
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
      await store.batch(removal(key));
      pruned++;
    }
    if (page.length < PAGE) return pruned;
  }
}

/**
 * Forgets one run with its input and its journal.
 * @returns false: nothing was done, since the run has not ended
 */
export async function removeRun(id: string, store: Store): Promise<boolean> {
  for (;;) {
    const found = await RUNS.read(store, id);
    if (found !== undefined && !isEnded(found.value.run.status)) return false;
    // A record of another version was changed meanwhile, and is read again
    if (await store.batch([...(found === undefined ? [] : [RUNS.check(id, found.version)]), ...removal(id)])) {
      return true;
    }
  }
}

function removal(id: string): readonly Write[] {
  return [
    RUNS.remove(id),
    RUN_INPUTS.remove(id),
    RUN_RESPONSES.remove(id),
    { op: "drop", stream: journalOf(id) },
  ];
}

/**
 * Cancels every recorded run that works with the rights of a token, with the runs that it started through schedules, procedures and
 * sub-agents. A person who lost a token thereby stops the work of somebody else who has the token.
 * @returns how many there were
 */
export async function cancelRunsOf(tokenId: string, { store, supervisor }: {
  readonly store: Store;
  /** Returns the supervisor; undefined when no run is at work. The runs then do not go on at the next start. */
  readonly supervisor: () => Pick<RunSupervisor, "cancel"> | undefined;
}): Promise<number> {
  const runs = new RunStore(store);
  let count = 0;
  for (const { id, cancelled } of await runs.open()) {
    if (cancelled) continue;
    const input = await unlessUnreadable(runs.input(id));
    // The token of a run without a readable input is unknown: the run does not go on either
    if (input !== undefined && input.caller.token_id !== tokenId) continue;
    const there = supervisor();
    if (await (there === undefined ? runs.cancel(id) : there.cancel(id, "cancelled"))) count++;
  }
  return count;
}
