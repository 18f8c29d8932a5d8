import type { EndedTurn } from "../agent/model_turn.ts";
import { type AgentEvent, isTerminal } from "../base/records/agent_event.ts";
import type { Write } from "../storage/store.ts";
import type { RunState } from "./apply_event.ts";
import { createEventPacker, lastSeqOf, type PackedEvents, unpackEvents } from "./pack_events.ts";
import type { RunInput } from "./run_records.ts";
import type { RunStore } from "./run_store.ts";

/** Writes one run's events to the journal, in order, a finished turn at a time. */
export interface RunRecorder {
  /** Takes events in order. Cheap: nothing is written before a turn or a step is over */
  record(events: readonly AgentEvent[]): void;
  /** The call just recorded as started may change something */
  effect(callId: string): void;
  /** Of the turn whose turn_end is recorded next */
  turn(turn: EndedTurn): void;
  /** The output of the call just recorded as ended came from outside */
  outside(callId: string): void;
  /** Begins to write, with all that came so far; before it, events are only kept in memory. */
  activate(): void;
  active(): boolean;
  /** Makes the run known, without events yet; durable when it resolves. See RunStore.accept */
  accept(claim?: Write | readonly Write[]): Promise<void>;
  /** Resolves when everything recorded so far is durable. @throws {JournalError} */
  commit(): Promise<void>;
  /** The same with the terminal event, which waits for this, in one transaction with `writes` */
  finish(writes: readonly Write[]): Promise<void>;
  /** The next events after `afterSeq` that need no look into the journal, at most 512; empty where only the journal has what follows */
  pending(afterSeq: number): readonly AgentEvent[];
  /** The furthest seq that may have been shown, in this process or in one before a crash */
  reached(): number;
}

export interface RecorderOptions {
  readonly runs: RunStore;
  readonly state: RunState;
  /** Made when the run is first written */
  readonly input: () => RunInput;
  /** Told after each write and each recorded array */
  readonly onChange: () => void;
  /** Last seq in the journal of a run that goes on; its events are numbered beyond `shownUpTo`. undefined for a new run */
  readonly resumedAt: number | undefined;
}

/**
 * How far what is shown may be ahead of the journal. A crash loses what was shown and not written; a run that goes on afterwards
 * leaves this many seqs out, so that none of them is ever used twice and a reader's position stays its own.
 */
const SEQ_WINDOW = 10_000;
/** Events of one turn that wait for its end; then they are written without it */
const MAX_UNWRITTEN = SEQ_WINDOW / 2;
/** The last events as they are, for readers who keep up */
const RECENT = 512;

/**
 * The furthest seq that may have been shown of a run whose journal ends at `seq`: after a crash it goes on beyond it. 0 before its
 * first record: until then nothing is shown, and a run that never was in the journal begins anew.
 */
export function shownUpTo(seq: number): number {
  return seq === 0 ? 0 : seq + SEQ_WINDOW;
}

export function createRunRecorder(options: RecorderOptions): RunRecorder {
  const { runs } = options;
  const runId = options.state.run.id;
  const packer = createEventPacker();
  let notes = noNotes();
  let inFlight: PackedEvents | undefined;
  let ending: readonly AgentEvent[] = [];
  let recent: AgentEvent[] = [];
  let active = false;
  let known = options.resumedAt !== undefined;
  /** A finished turn is there to be written, with whatever comes next */
  let due = false;
  let durableSeq = options.resumedAt ?? 0;
  let tail: Promise<void> = Promise.resolve();

  const write = async (writes: readonly Write[] = []) => {
    if (packer.count() === 0) return;
    const events = packer.take();
    const noted = notes;
    inFlight = events;
    notes = noNotes();
    const create = known ? undefined : { state: options.state, input: options.input() };
    await runs.append(runId, durableSeq, events, { ...noted, writes, create });
    known = true;
    durableSeq = lastSeqOf(events);
    inFlight = undefined;
    options.onChange();
  };
  // One write after the other; after a failure every later one fails the same way
  const inTurn = (step: () => Promise<void>) => {
    tail = tail.then(step);
    tail.catch(() => {});
    return tail;
  };
  const commit = () => inTurn(write);
  const remember = (events: readonly AgentEvent[]) => {
    recent.push(...events);
    if (recent.length > 2 * RECENT) recent = recent.slice(-RECENT);
  };

  return {
    record(events) {
      const last = events.at(-1);
      if (last === undefined) return;
      if (isTerminal(last)) {
        ending = events;
        return;
      }
      packer.add(events);
      remember(events);
      options.onChange();
      if (active && (due || isStep(last) || packer.count() >= MAX_UNWRITTEN)) void commit();
      due = last.type === "turn_end";
    },
    effect: (callId) => void notes.effects.push(callId),
    turn: (turn) => void notes.turns.push(turn),
    outside: (callId) => void notes.outside.push(callId),
    activate() {
      active = true;
    },
    active() {
      return active;
    },
    async accept(claim) {
      await runs.accept(options.state, options.input(), claim);
      known = true;
    },
    commit,
    finish: (writes) =>
      inTurn(async () => {
        packer.add(ending);
        await write(writes);
        // The end is shown once it is on disk
        remember(ending);
      }),
    pending(afterSeq) {
      const shownTo = shownUpTo(durableSeq);
      const first = recent[0]?.seq ?? Infinity;
      if (afterSeq + 1 >= first) {
        const from = afterSeq + 1 - first;
        return recent.slice(from, Math.max(from, Math.min(from + RECENT, shownTo + 1 - first)));
      }
      if (afterSeq < durableSeq) return [];
      const events: AgentEvent[] = [];
      for (const packed of [...(inFlight === undefined ? [] : [inFlight]), packer.peek()]) {
        if (packed.count > 0) events.push(...unpackEvents(packed, afterSeq, RECENT - events.length));
      }
      return events.filter((event) => event.seq <= shownTo && !isTerminal(event));
    },
    reached: () => recent.at(-1)?.seq ?? shownUpTo(options.resumedAt ?? 0),
  };
}

/** What belongs to the next record beside its events. */
interface Notes {
  readonly effects: string[];
  readonly turns: EndedTurn[];
  readonly outside: string[];
}

function noNotes(): Notes {
  return { effects: [], turns: [], outside: [] };
}

/** What is recorded as soon as it happens. A finished turn waits for what follows it, which is often the end. */
function isStep(event: AgentEvent): boolean {
  switch (event.type) {
    case "run_start":
    case "turn_restart":
    case "tool_start":
    case "tool_end":
    case "approval_needed":
    case "approval_answered":
      return true;
    default:
      return false;
  }
}
