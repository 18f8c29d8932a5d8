import { type AgentEvent, isTerminal } from "../base/records/agent_event.ts";
import type { Write } from "../storage/store.ts";
import type { RunState } from "./apply_event.ts";
import { createEventPacker, type PackedEvents, unpackEvents } from "./pack_events.ts";
import type { RunInput } from "./run_records.ts";
import type { RunStore } from "./run_store.ts";

/** Writes one run's events to the journal, in order, a finished turn at a time. */
export interface RunRecorder {
  /** Takes events in order. Cheap: nothing is written before a turn or a step is over */
  record(events: readonly AgentEvent[]): void;
  /** The call just recorded as started may change something */
  effect(callId: string): void;
  /** Begins to write, with all that came so far; before it, events are only kept in memory. */
  activate(): void;
  active(): boolean;
  /** Makes the run known, without events yet; durable when it resolves. See RunStore.accept */
  accept(claim?: Write): Promise<void>;
  /** Resolves when everything recorded so far is durable. @throws {JournalError} */
  commit(): Promise<void>;
  /** The same with the terminal event, which waits for this, in one transaction with `writes` */
  finish(writes: readonly Write[]): Promise<void>;
  /** Last seq that can be replayed from the journal */
  durableSeq(): number;
  /** Events after `afterSeq` that are not in the journal yet; empty where they do not follow on `afterSeq` */
  pending(afterSeq: number): readonly AgentEvent[];
}

export interface RecorderOptions {
  readonly runs: RunStore;
  readonly state: RunState;
  /** Made when the run is first written */
  readonly input: () => RunInput;
  /** Told after each write and each recorded array */
  readonly onChange?: () => void;
}

export function createRunRecorder(options: RecorderOptions): RunRecorder {
  const { runs } = options;
  const runId = options.state.run.id;
  const packer = createEventPacker();
  let effects: string[] = [];
  let inFlight: PackedEvents | undefined;
  let ending: readonly AgentEvent[] = [];
  let active = false;
  let known = false;
  /** A finished turn is there to be written, with whatever comes next */
  let due = false;
  let durableSeq = 0;
  let tail: Promise<void> = Promise.resolve();

  const write = async (writes: readonly Write[] = []) => {
    if (packer.count() === 0) return;
    const events = packer.take();
    const started = effects;
    inFlight = events;
    effects = [];
    const create = known ? undefined : { state: options.state, input: options.input() };
    await runs.append(runId, durableSeq, events, { effects: started, writes, create });
    known = true;
    durableSeq += events.count;
    inFlight = undefined;
    options.onChange?.();
  };
  // One write after the other; after a failure every later one fails the same way
  const inTurn = (step: () => Promise<void>) => {
    tail = tail.then(step);
    tail.catch(() => {});
    return tail;
  };
  const commit = () => inTurn(write);

  return {
    record(events) {
      const last = events.at(-1);
      if (last === undefined) return;
      if (isTerminal(last)) {
        ending = events;
        return;
      }
      packer.add(events);
      options.onChange?.();
      if (active && (due || isStep(last))) void commit();
      due = last.type === "turn_end";
    },
    effect: (callId) => void effects.push(callId),
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
      inTurn(() => {
        packer.add(ending);
        return write(writes);
      }),
    durableSeq() {
      return durableSeq;
    },
    pending(afterSeq) {
      const events: AgentEvent[] = [];
      for (const packed of [...(inFlight === undefined ? [] : [inFlight]), packer.peek()]) {
        if (packed.count > 0 && packed.seq <= afterSeq + events.length + 1) {
          events.push(...unpackEvents(packed, afterSeq));
        }
      }
      return events;
    },
  };
}

/** What is recorded as soon as it happens. A finished turn waits for what follows it, which is often the end. */
function isStep(event: AgentEvent): boolean {
  switch (event.type) {
    case "run_start":
    case "tool_start":
    case "tool_end":
    case "approval_needed":
    case "approval_answered":
      return true;
    default:
      return false;
  }
}
