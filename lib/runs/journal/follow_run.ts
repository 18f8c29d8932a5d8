import { type AgentEvent, isTerminal } from "../../base/records/agent_event.ts";
import type { Clock } from "../../base/clock.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import type { ActiveRun } from "../supervisor/active_run.ts";
import { createPatience } from "../../storage/read_records.ts";
import type { FollowOptions } from "../run_request.ts";
import type { JournalPlace } from "./recorded_events.ts";
import type { PatientRuns, RunStore } from "./run_store.ts";
import type { RunWatch } from "./run_watch.ts";

/** Place of a follower, and where the run's events are found. */
export interface FollowRunOptions extends FollowOptions {
  readonly runs: RunStore;
  /** Time between two reads of a store that is down. Default: such a store ends the stream by its error */
  readonly clock?: Pick<Clock, "sleep" | "monotonic">;
  /** Wakes whoever waits for new events of a run, or for its end, by its id. */
  readonly news: KeyedNotifier;
  /** Returns the run while it is at work here. */
  readonly find: (id: string) => ActiveRun | undefined;
  /** Watches of runs that are at work elsewhere. Default: there are none */
  readonly watches?: { watch(id: string): RunWatch } | undefined;
}

/**
 * Yields the events of a run after a seq, live to the terminal one; see RunSupervisor.follow.
 *
 * A follower keeps nothing but its place. Events that it has not taken stay in the journal, in the recorder of the running turn, or in the
 * watch of a run elsewhere. News only wake it. While the store is down it waits.
 * @throws {HttpError} 404 `not_found` when the run's record is gone before its end; 500 `record_unreadable`
 */
export async function* followRun(
  id: string,
  options: FollowRunOptions,
): AsyncGenerator<readonly AgentEvent[], void, undefined> {
  const { afterSeq, signal, onPace, runs, news, find, watches, clock } = options;
  const journal = clock === undefined ? runs : runs.patient(createPatience({ clock, signal }));
  let place: JournalPlace = { seq: afterSeq, record: 0 };
  let entry: ActiveRun | undefined;
  let watch: RunWatch | undefined;
  let isLive = true;
  try {
    while (!signal.aborted) {
      // Listen before the look, so that nothing falls between
      const listening = news.listen(id, signal);
      const working = find(id);
      try {
        // In a cluster another gateway may go on with a run that left this one
        entry = working ?? (watches === undefined ? entry : undefined);
        if (working !== undefined) watch = watch?.leave();
        const look = watch?.look(place.seq);
        let events = look?.kind === "events" ? look.events : entry?.recorder?.pending(place.seq) ?? [];
        // The journal of a run that is at work here has what its recorder has written: a look would cost some 30 us an event
        const hasAll = working?.recorder?.hasAll(place.seq) === true;
        if (events.length === 0 && !hasAll && (look === undefined || look.kind === "journal")) {
          const from = place;
          ({ events, place } = await journal.read(id, from));
        }
        const last = events.at(-1);
        if (last === undefined) {
          const isOver = look?.kind === "over" || (look?.kind === "journal" && watch?.isOver());
          const failure = working === undefined ? watch?.failure() : undefined;
          if (failure !== undefined) throw failure;
          if (working === undefined && (watches === undefined || isOver)) return;
          const pace = watch?.pace() ?? { live: true };
          if (onPace !== undefined && pace.live !== isLive) {
            isLive = pace.live;
            onPace(pace);
            yield [];
          } else if (working === undefined && watch === undefined) watch = watches?.watch(id);
          else await listening.heard.catch(() => {});
          continue;
        }
        listening.stop();
        place = { ...place, seq: last.seq };
        const isOver = isTerminal(last) &&
          (last.type === "done" || await isLast(id, last, journal));
        yield isOver ? events : events.map(shownBeforeMore);
        if (isOver) return;
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        listening.stop();
      }
    }
  } finally {
    watch?.leave();
  }
}

/** Tells whether an error event is the last in the journal. A run goes on in the same journal after a person's review. */
async function isLast(id: string, last: AgentEvent, runs: Pick<PatientRuns, "lastSeq">): Promise<boolean> {
  return (await runs.lastSeq(id)) === last.seq;
}

/** Shows an end that was taken back as a notice, so that a reader does not stop at it. */
function shownBeforeMore(event: AgentEvent): AgentEvent {
  if (event.type !== "error") return event;
  const { seq, time, code, message } = event;
  return { seq, time, type: "notice", code, message };
}
