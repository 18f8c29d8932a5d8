import { type AgentEvent, isTerminal } from "../../base/records/agent_event.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import type { ActiveRun } from "../supervisor/active_run.ts";
import type { FollowOptions } from "../run_request.ts";
import type { JournalPlace, RunStore } from "./run_store.ts";

/** Place of a follower, and where the run's events are found. */
export interface FollowRunOptions extends FollowOptions {
  readonly runs: RunStore;
  /** Woken with a run's id when the run has new events, and at its end. */
  readonly news: KeyedNotifier;
  /** Returns the run while it is at work. */
  readonly find: (id: string) => ActiveRun | undefined;
  /** Runs that are at work elsewhere. Default: there are none */
  readonly cluster?: {
    isOpenElsewhere(id: string): Promise<boolean>;
    news(heard: Promise<void>): Promise<void>;
  } | undefined;
}

/**
 * Yields the events of a run after a seq, live to the terminal one; see RunSupervisor.follow.
 *
 * A follower keeps nothing but its place. Events that it has not taken stay in the journal or in the recorder of the running turn. News
 * only wake it.
 */
export async function* followRun(
  id: string,
  { afterSeq, signal, runs, news, find, cluster }: FollowRunOptions,
): AsyncGenerator<readonly AgentEvent[], void, undefined> {
  let place: JournalPlace = { seq: afterSeq, record: 0 };
  let entry: ActiveRun | undefined;
  while (!signal.aborted) {
    // Listen before the look, so that nothing falls between
    const listening = news.listen(id, signal);
    const working = find(id);
    try {
      // In a cluster another gateway may go on with a run that left this one
      entry = working ?? (cluster === undefined ? entry : undefined);
      let events = entry?.recorder?.pending(place.seq) ?? [];
      if (events.length === 0) ({ events, place } = await runs.read(id, place));
      const last = events.at(-1);
      if (last === undefined) {
        if (working === undefined && await cluster?.isOpenElsewhere(id) !== true) return;
        const heard = listening.heard.catch(() => {});
        await (cluster?.news(heard) ?? heard);
        continue;
      }
      listening.stop();
      place = { ...place, seq: last.seq };
      const isOver = isTerminal(last) && (last.type === "done" || await isLast(id, last, runs));
      yield isOver ? events : events.map(shownBeforeMore);
      if (isOver) return;
    } finally {
      listening.stop();
    }
  }
}

/** Tells whether an error event is the last in the journal. A run goes on in the same journal after a person's review. */
async function isLast(id: string, last: AgentEvent, runs: RunStore): Promise<boolean> {
  return (await runs.lastSeq(id)) === last.seq;
}

/** Shows an end that was taken back as a notice, so that a reader does not stop at it. */
function shownBeforeMore(event: AgentEvent): AgentEvent {
  if (event.type !== "error") return event;
  const { seq, time, code, message } = event;
  return { seq, time, type: "notice", code, message };
}
