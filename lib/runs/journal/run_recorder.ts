import { stamp } from "../../agent/event_recorder.ts";
import type { EndedTurn } from "../../agent/agent_run.ts";
import { type AgentEvent, type AgentEventBody, isTerminal } from "../../base/records/agent_event.ts";
import type { Write } from "../../storage/store.ts";
import type { RunState } from "./apply_event.ts";
import { EventPacker, lastSeqOf, type PackedEvents, unpackEvents } from "./pack_events.ts";
import { type RunInput, SEQ_WINDOW, shownUpTo } from "./run_records.ts";
import type { AppendOptions, RunStore } from "./run_store.ts";

/** Work of a recorder: the run, its store and the listener for changes. */
export interface RecorderOptions {
  readonly runs: RunStore;
  readonly state: RunState;
  /** Returns the input that a run which goes on after a restart begins from. Called when the run is first written. */
  readonly input: () => RunInput;
  /** Writes that go with the first record of a run that is not accepted before. Default: none */
  readonly beside?: Write | readonly Write[] | undefined;
  /** Runs after each write and after each recorded array, so that waiting readers look again. */
  readonly onChange: () => void;
  /** Last seq in the journal of a run that goes on; its next events are numbered beyond `shownUpTo`. Undefined for a new run. */
  readonly resumedAt: number | undefined;
}

/** Events of an unfinished turn that wait to be written. At this number they are written before the turn ends. */
const MAX_UNWRITTEN = SEQ_WINDOW / 2;
/** Newest events kept unpacked, for readers who keep up. */
const RECENT = 512;

/**
 * Writes the events of one run to the journal, in order and one finished turn at a time (docs/design/runs.md "Journal").
 *
 * The agent calls `record` for each array of events; they are packed in memory. `activate` decides that the run is written at all: at the start for
 * a durable run and for a run of a conversation, at the first effect for any other. From then on a record is written when a step
 * happens (`isStep`), with the event after a finished turn, and when `MAX_UNWRITTEN` events wait. `commit` is awaited before a call
 * with an effect: the call runs only when its start is on disk. `finish` writes the last record together with the conversation.
 *
 * Readers of a run (follow_run.ts) get from `pending` what the journal does not have yet. They see at most `SEQ_WINDOW` events more
 * than are on disk, and the terminal event once it is on disk. A turn is shown once the last step before it is on disk: the step is
 * written while the model is asked. After a crash the next event of that turn is then a `turn_restart`, which takes back what was shown.
 * Without the step its calls would be made again, and the turn after them would be a new one. The client of an attached run takes its
 * events from the agent itself.
 *
 * When a write fails, every later `commit` and `finish` fails with its error, so the run cannot go on unrecorded.
 */
export class RunRecorder {
  readonly #options: RecorderOptions;
  /** Events that no write has taken yet. */
  readonly #packer = new EventPacker();
  /** Facts for the next record, beside its events. `#write` takes both at the same moment. */
  #notes = noNotes();
  /** Events of the write that is under way. They stay here when it fails. */
  #inFlight: PackedEvents | undefined = undefined;
  /** The array with the terminal event. `finish` writes it in one transaction with the conversation. */
  #ending: readonly AgentEvent[] = [];
  /** Newest recorded events without a gap, at most twice `RECENT`. */
  #recent: AgentEvent[] = [];
  /** True by `activate`. */
  #isActive = false;
  /** True once the store has the run. */
  #known: boolean;
  /** Seq of the last step. */
  #lastStep = 0;
  /** Turns that are not shown yet, in order. Few: a turn asks the model, and a step is written meanwhile. */
  #hidden: HiddenTurn[] = [];
  /** True when a finished turn waits to be written with the event after it. The last turn is written with the end: one write less. */
  #due = false;
  /** Seq of the last event on disk, 0 for none. */
  #durableSeq: number;
  /** The last write. Writes follow each other; after one that failed all later ones fail with its error. */
  #tail: Promise<void> = Promise.resolve();
  /** True once a write has failed. */
  #hasFailed = false;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#known = options.resumedAt !== undefined;
    this.#durableSeq = options.resumedAt ?? 0;
  }

  /** Takes the next events. Cheap: nothing is written before a turn or a step is over. Bound, so that the agent calls it directly. */
  readonly record = (events: readonly AgentEvent[]): void => {
    const last = events.at(-1);
    if (last === undefined) return;
    if (isTerminal(last)) {
      this.#ending = events;
      return;
    }
    this.#packer.add(events);
    this.#hide(last);
    this.#remember(events);
    this.#options.onChange();
    // A failure is kept in #tail, and whoever awaits the next write gets it
    if (this.#isActive && (this.#due || isStep(last.type) || this.#packer.count() >= MAX_UNWRITTEN)) void this.commit();
    this.#due = last.type === "turn_end";
  };

  /** Takes the facts of a turn whose turn_end is recorded next. Bound, so that the agent calls it directly. */
  readonly turn = (turn: EndedTurn): void => void this.#notes.turns.push(turn);

  /** Notes that the call just recorded as started may change something. */
  effect(callId: string): void {
    this.#notes.effects.push(callId);
  }

  /** Begins to write, from the first event on. A run that ends without it, such as a completion without an effect, leaves no record. */
  activate(): void {
    this.#isActive = true;
  }

  /** True once the run is written. */
  get isActive(): boolean {
    return this.#isActive;
  }

  /**
   * Makes a durable run known before its acceptance is answered; on disk when it resolves. A run that has begun is known by its first record.
   * @throws {JournalError} when that could not be written; {HttpError} as RunStore.accept
   */
  accept(): Promise<void> {
    return this.#afterLast(async () => {
      if (this.#known) return;
      const { runs, state, input, beside } = this.#options;
      await runs.accept(state, input(), beside);
      this.#known = true;
    });
  }

  /** Resolves when everything recorded so far is durable. @throws {JournalError} */
  commit(): Promise<void> {
    return this.#afterLast(() => this.#write());
  }

  /** Writes the rest with the terminal event, in one transaction with `writes`. @throws {JournalError} */
  finish(writes: readonly Write[]): Promise<void> {
    return this.#afterLast(async () => {
      this.#packer.add(this.#ending);
      await this.#write(writes);
      // Readers get the end once it is on disk
      this.#remember(this.#ending);
    });
  }

  /** Returns all events of a run that ended without a record. */
  unrecorded(): PackedEvents {
    this.#packer.add(this.#ending);
    return this.#packer.take();
  }

  /** Returns the next events after `afterSeq` from memory, 512 at most. Empty when the journal alone has the next events. */
  pending(afterSeq: number): readonly AgentEvent[] {
    const shownTo = this.#shownTo();
    const recent = this.#recent;
    const first = recent[0]?.seq ?? Infinity;
    if (afterSeq + 1 >= first) {
      const from = afterSeq + 1 - first;
      return recent.slice(from, Math.max(from, Math.min(from + RECENT, shownTo + 1 - first)));
    }
    if (afterSeq < this.#durableSeq) return [];
    // A reader behind the newest events, and ahead of the journal: in a long turn, or while the disk is slow
    const events: AgentEvent[] = [];
    for (const packed of [...(this.#inFlight === undefined ? [] : [this.#inFlight]), this.#packer.peek()]) {
      if (packed.count > 0) events.push(...unpackEvents(packed, afterSeq, RECENT - events.length));
    }
    // A terminal event that `finish` is writing is not shown before it is on disk
    return events.filter((event) => event.seq <= shownTo && !isTerminal(event));
  }

  /** Tells whether the journal has nothing more for a reader. After a write that failed nobody knows: the reader looks, and meets the error. */
  hasAll(afterSeq: number): boolean {
    return !this.#hasFailed && afterSeq >= this.#durableSeq;
  }

  /** Returns the furthest seq that may have been shown, in this process or in one before a crash. A reader cannot go on beyond it. */
  reached(): number {
    return this.#recent.at(-1)?.seq ?? shownUpTo(this.#options.resumedAt ?? 0);
  }

  /** Begins a write once the last one has ended: a record takes all that was recorded up to its own begin. */
  #afterLast(write: () => Promise<void>): Promise<void> {
    this.#tail = this.#tail.then(write);
    // Not every caller waits. An error that nobody awaits must not end the process
    this.#tail.catch(() => {
      if (this.#hasFailed) return;
      this.#hasFailed = true;
      this.#options.onChange();
    });
    return this.#tail;
  }

  async #write(writes: readonly Write[] = []): Promise<void> {
    if (this.#packer.count() === 0) return;
    const { runs, state, input, beside = [], onChange } = this.#options;
    const events = this.#packer.take();
    const notes = this.#notes;
    this.#inFlight = events;
    this.#notes = noNotes();
    const create = this.#known ? undefined : { state, input: input() };
    const first = create === undefined ? [] : [beside].flat();
    await runs.append(state.run.id, this.#durableSeq, events, { ...notes, writes: [...writes, ...first], create });
    this.#known = true;
    this.#durableSeq = lastSeqOf(events);
    while (this.#hidden[0] !== undefined && this.#hidden[0].after <= this.#durableSeq) this.#hidden.shift();
    this.#inFlight = undefined;
    onChange();
  }

  /** Hides a turn that begins before the last step is on disk. A begin and a step are recorded alone. */
  #hide({ seq, type }: AgentEvent): void {
    const begins = type === "turn_start" || type === "turn_restart";
    if (begins && this.#lastStep > this.#durableSeq) this.#hidden.push({ from: seq, after: this.#lastStep });
    if (isStep(type)) this.#lastStep = seq;
  }

  /** Returns the last seq that readers may see now. */
  #shownTo(): number {
    const furthest = shownUpTo(this.#durableSeq);
    const [hidden] = this.#hidden;
    return hidden === undefined ? furthest : Math.min(furthest, hidden.from - 1);
  }

  #remember(events: readonly AgentEvent[]): void {
    this.#recent.push(...events);
    if (this.#recent.length > 2 * RECENT) this.#recent = this.#recent.slice(-RECENT);
  }
}

/** A turn that readers do not see before the step with the seq `after` is on disk. */
interface HiddenTurn {
  /** Seq of its first event */
  readonly from: number;
  readonly after: number;
}

/** Facts that the next record holds beside its events. */
interface Notes {
  readonly effects: string[];
  readonly turns: EndedTurn[];
}

function noNotes(): Notes {
  return { effects: [], turns: [] };
}

/** Tells whether an event is recorded as soon as it happens. A finished turn waits for the next event, which is often the end. */
function isStep(type: AgentEvent["type"]): boolean {
  switch (type) {
    case "run_start":
    case "turn_restart":
    case "tool_start":
    case "tool_end":
    case "approval_needed":
    case "approval_answered":
    case "message_taken":
      return true;
    default:
      return false;
  }
}

/**
 * Appends events to the journal of a run that is not at work, as one record: in recovery, at a person's review and in a restore.
 * Their seqs begin beyond all that may have been shown.
 * @param expectedSeq the last seq the journal has, 0 for an empty one
 * @throws {JournalError} when the journal is elsewhere, or cannot be written
 */
export async function appendEvents(
  runId: string,
  expectedSeq: number,
  bodies: readonly AgentEventBody[],
  { runs, time, ...append }: { readonly runs: RunStore; readonly time: () => string } & AppendOptions,
): Promise<void> {
  const packer = new EventPacker();
  packer.add(stamp(bodies, { afterSeq: shownUpTo(expectedSeq), time: time() }));
  await runs.append(runId, expectedSeq, packer.take(), append);
}
