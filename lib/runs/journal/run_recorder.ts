import type { AgentJournal, AgentOutcome } from "../../agent/agent_run.ts";
import { EventStamp } from "../../agent/event_recorder.ts";
import type { EndedTurn } from "../../agent/model_turn.ts";
import { hasOwnWork } from "../../agent/parked_client_calls.ts";
import { CancelError } from "../../base/cancel.ts";
import { type AgentEvent, type AgentEventBody, isTerminal } from "../../base/records/agent_event.ts";
import type { RunStatus } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Write } from "../../storage/store.ts";
import type { ActiveRun } from "../supervisor/active_run.ts";
import { endStatus, type RunState } from "./apply_event.ts";
import { withoutInstructions } from "../conversations/recall_history.ts";
import type { Conversations } from "../conversations/conversations.ts";
import { createEventPacker, lastSeqOf, type PackedEvents, unpackEvents } from "./pack_events.ts";
import type { ParkedRecords } from "../conversations/parked_records.ts";
import type { RunInput } from "./run_records.ts";
import type { RunRequest } from "../run_request.ts";
import type { AppendOptions, RunStore } from "./run_store.ts";

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

export interface RunJournalOptions {
  readonly entry: ActiveRun;
  readonly request: RunRequest;
  /** undefined for a run that can have nothing to record */
  readonly recorder: RunRecorder | undefined;
  readonly conversations: Conversations;
  readonly parkedRecords: ParkedRecords;
  readonly log: Logger;
  /** Called once, when the run is over and written; undefined when it was stopped for a shutdown and the next start finds its journal open */
  readonly onEnd: (status: RunStatus | undefined) => void;
}

/** The agent's view of the journal: recorded from the first effect on, ended in one transaction with the conversation. */
export class RunJournal implements AgentJournal {
  readonly record: AgentJournal["record"];
  readonly turn: AgentJournal["turn"];
  readonly #options: RunJournalOptions;
  /** Calls that run now and must not be made twice; made with the first */
  #effects: Set<string> | undefined = undefined;

  constructor(options: RunJournalOptions) {
    this.record = options.recorder?.record;
    this.turn = options.recorder?.turn;
    this.#options = options;
  }

  async beforeEffect(callId: string, { repeatable }: { readonly repeatable: boolean }): Promise<void> {
    const { entry, recorder } = this.#options;
    entry.hadEffect = true;
    if (!repeatable) entry.effectsAtWork = (this.#effects ??= new Set()).add(callId).size;
    if (recorder === undefined) return;
    recorder.activate();
    if (!repeatable) recorder.effect(callId);
    await recorder.commit();
  }

  afterCall(callId: string, { outside }: { readonly outside: boolean }): void {
    const { entry, recorder } = this.#options;
    const effects = this.#effects;
    if (outside) recorder?.outside(callId);
    if (effects?.delete(callId) !== true) return;
    entry.effectsAtWork = effects.size;
    if (entry.stopsForShutdown && effects.size === 0) entry.abort(new CancelError("shutdown"));
  }

  end(outcome: AgentOutcome): void | Promise<void> {
    const { terminal, added, refused } = outcome;
    const { entry, request, recorder, onEnd } = this.#options;
    entry.refused = refused;
    const stopsForShutdown = request.durable && terminal.type === "error" && terminal.code === "shutdown";
    // Finished work must be on disk before the run counts as stopped for the shutdown. Unfinished work is left out
    if (stopsForShutdown) return recorder?.commit().finally(() => onEnd(undefined));
    if (!recorder?.active()) {
      const noted = recorder === undefined ? undefined : this.#noteOwnWork(outcome);
      if (noted === undefined) return this.#over(terminal, endStatus(terminal));
      return noted.then(() => this.#over(terminal, endStatus(terminal)));
    }
    // A request that failed before anything was said is the client's to repeat: its conversation stays as it was
    const said = refused === undefined && (terminal.type === "done" || added.length > 0);
    return this.#write(recorder, said ? outcome : undefined).then(
      () => this.#over(terminal, endStatus(terminal)),
      (error) => {
        this.#over(terminal, "failed");
        throw error;
      },
    );
  }

  /** Notes on disk that a run without records did work of the agent, if its client must come back. undefined: nothing to note */
  #noteOwnWork(outcome: AgentOutcome): Promise<void> | undefined {
    const { entry, request, parkedRecords, log } = this.#options;
    if (!mayAwaitClient(request, outcome) || !hasOwnWork(outcome.added)) return undefined;
    return parkedRecords.note(outcome.added).catch((error) => {
      log.warn("Cannot note what a restart would lose of this run", { run_id: entry.id, error });
    });
  }

  /** @param said undefined: the conversation gets nothing of it */
  async #write(recorder: RunRecorder, said: AgentOutcome | undefined): Promise<void> {
    const { entry: { id, conversationId }, request, conversations, parkedRecords } = this.#options;
    if (said === undefined) return await recorder.finish([]);
    const { added, terminal } = said;
    const kept = mayAwaitClient(request, said) ? await parkedRecords.writes(added, { durable: request.durable }) : [];
    if (conversationId === null) return await recorder.finish(kept);
    const messages = [...withoutInstructions(request.messages), ...added];
    const { time } = terminal;
    await recorder.finish([
      ...await conversations.writes(conversationId, { runId: id, caller: request.caller, messages, time }),
      ...kept,
    ]);
  }

  #over(terminal: AgentOutcome["terminal"], status: RunStatus): void {
    const { entry, request, log, onEnd } = this.#options;
    if (terminal.type === "error" && status === "failed") {
      const { code, message } = terminal;
      log.warn("Run failed", { run_id: entry.id, request_id: request.requestId, code, message });
    }
    onEnd(status);
  }
}

/** Tells whether the run ended with calls to tools of the client, or may have. */
function mayAwaitClient(request: RunRequest, { terminal }: AgentOutcome): boolean {
  return terminal.type === "done" && terminal.finish_reason !== "stop" && request.clientTools.length > 0;
}

/**
 * Writes events at the end of the journal of a run that is not at work, as one record. They are numbered past all that may have been
 * shown of it before.
 * @param expectedSeq the last seq the journal has, 0 for an empty one
 * @throws {JournalError} when the journal is elsewhere, or cannot be written
 */
export async function appendEvents(
  runId: string,
  expectedSeq: number,
  bodies: readonly AgentEventBody[],
  { runs, time, ...append }: { readonly runs: RunStore; readonly time: () => string } & AppendOptions,
): Promise<void> {
  const stamp = new EventStamp(time, shownUpTo(expectedSeq));
  const packer = createEventPacker();
  packer.add(stamp.stamp(bodies));
  await runs.append(runId, expectedSeq, packer.take(), append);
}
