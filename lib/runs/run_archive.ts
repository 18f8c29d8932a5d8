import { isAtWork } from "../base/records/run.ts";
import { createWaiters } from "../base/waiters.ts";
import type { Store } from "../storage/store.ts";
import { followRun } from "./follow_run.ts";
import { shownUpTo } from "./run_recorder.ts";
import type { RunSupervisor } from "./run_request.ts";
import { createRunStore } from "./run_store.ts";

/** Runs that were recorded, for reading. */
export type RunArchive = Pick<RunSupervisor, "get" | "startedBy" | "list" | "follow" | "reach">;

/** The recorded runs of a store where nothing is at work: a gateway without an agent, a command that only looks. */
export function createRunArchive({ store }: { readonly store: Store }): RunArchive {
  const runs = createRunStore(store);
  const news = createWaiters();
  return {
    get: runs.get,
    startedBy: runs.startedBy,
    list: runs.list,
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
