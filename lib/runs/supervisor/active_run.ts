import type { TokenBudget } from "../../agent/token_budget.ts";
import { CancelError, type CancelReason } from "../../base/cancel.ts";
import type { ProviderError } from "../../base/errors.ts";
import { type AgentEvent, isTerminal } from "../../base/records/agent_event.ts";
import type { Caller } from "../../base/records/caller.ts";
import type { Run } from "../../base/records/run.ts";
import { type AcceptedRun, createRunState } from "../journal/apply_event.ts";
import type { RunRecorder } from "../journal/run_recorder.ts";
import type { RunHandle } from "../run_request.ts";

/** Facts about a run that has its place. */
export interface ActiveRunOptions {
  readonly accepted: AcceptedRun;
  /** 0 for a run that a person started, 1 for its children, and so on. */
  readonly depth: number;
  readonly caller: Caller;
  readonly durable: boolean;
  /** Recorder; undefined for a run that can have nothing to record. */
  readonly recorder: RunRecorder | undefined;
  /** Budget that the model calls count in; undefined when none is set. */
  readonly budget: TokenBudget | undefined;
  readonly controller: AbortController;
}

/** A run at work, or one that waits for its slot. */
export class ActiveRun {
  readonly id: string;
  readonly model: string;
  readonly conversationId: string | null;
  readonly depth: number;
  readonly caller: Caller;
  readonly durable: boolean;
  readonly recorder: RunRecorder | undefined;
  readonly budget: TokenBudget | undefined;
  /** Start of the work in ISO 8601; null while the run waits. */
  startedAt: string | null = null;
  hadEffect = false;
  /** True while a provider that refused is asked again. The next answer may still be a refusal. */
  isAskedAgain = false;
  /** Number of calls with an effect that run now. */
  effectsAtWork = 0;
  /** Set by a shutdown: the run stops as soon as no tool call with an effect is running. */
  stopsForShutdown = false;
  /** Set at the end: a refusal of the provider before the first delta. The reader gets it thrown in place of the terminal event. */
  refused: ProviderError | undefined = undefined;
  readonly #accepted: AcceptedRun;
  readonly #controller: AbortController;

  constructor({ accepted, depth, caller, durable, recorder, budget, controller }: ActiveRunOptions) {
    this.id = accepted.id;
    this.model = accepted.model;
    this.conversationId = accepted.conversation_id;
    this.depth = depth;
    this.caller = caller;
    this.durable = durable;
    this.recorder = recorder;
    this.budget = budget;
    this.#accepted = accepted;
    this.#controller = controller;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(error: CancelError): void {
    this.#controller.abort(error);
  }

  /** Returns the present state, for a run that is not recorded. */
  view(): Run {
    const { run } = createRunState(this.#accepted);
    return this.startedAt === null ? run : { ...run, status: "running", started_at: this.startedAt };
  }
}

type Step = Promise<IteratorResult<readonly AgentEvent[], void>>;

/**
 * Handle of attached work. The reader drives the agent directly, and leaving ends the run.
 *
 * The abort comes before the generator's own return, which would wait for a read of the provider that is under way.
 */
export class AttachedRun implements RunHandle, AsyncIterableIterator<readonly AgentEvent[], void, undefined> {
  readonly #entry: ActiveRun;
  readonly #events: AsyncGenerator<readonly AgentEvent[], void, undefined>;
  #started = false;
  #first: Step | undefined;

  constructor(entry: ActiveRun, events: AsyncGenerator<readonly AgentEvent[], void, undefined>) {
    this.#entry = entry;
    this.#events = events;
  }

  get id() {
    return this.#entry.id;
  }
  get model() {
    return this.#entry.model;
  }
  get conversationId() {
    return this.#entry.conversationId;
  }

  events(): this {
    return this;
  }

  hadEffect(): boolean {
    return this.#entry.hadEffect;
  }

  isAskedAgain(): boolean {
    return this.#entry.isAskedAgain;
  }

  cancel(reason: CancelReason): void {
    this.#stop(new CancelError(reason));
  }

  next(): Step {
    this.#started = true;
    const step = this.#first;
    if (step === undefined) return this.#events.next();
    this.#first = undefined;
    return step;
  }

  return(): Step {
    this.#stop(new CancelError("client_gone"));
    return this.#events.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #stop(error: CancelError): void {
    this.#entry.abort(error);
    if (this.#started) return;
    // A generator that never ran has no end of its own. Its first step writes the end, and is kept for a late reader
    this.#started = true;
    this.#first = this.#events.next();
    this.#first.catch(() => {});
  }
}

/** Events of durable work, as the agent makes them and as a reader follows them. */
export interface DurableOptions {
  readonly events: AsyncGenerator<readonly AgentEvent[], void, undefined>;
  /** Returns the run's events from the first on. */
  readonly follow: () => AsyncIterable<readonly AgentEvent[]>;
}

/** Starts durable work, which goes on by itself to its end. @returns the handle that readers follow the work by */
export function durableHandle(entry: ActiveRun, { events, follow }: DurableOptions): RunHandle {
  const work = async () => {
    let last: readonly AgentEvent[] = [];
    try {
      for await (const batch of events) last = batch;
    } catch {
      // The refusal, which the entry keeps for its readers
    }
    return last.at(-1);
  };
  const working = work();
  const { id, model, conversationId } = entry;
  return {
    id,
    model,
    conversationId,
    hadEffect: () => entry.hadEffect,
    isAskedAgain: () => entry.isAskedAgain,
    async *events() {
      for await (const batch of follow()) {
        const isOver = isTerminal(batch.at(-1) ?? { type: "notice" });
        if (isOver && entry.refused !== undefined) {
          if (batch.length > 1) yield batch.slice(0, -1);
          break;
        }
        yield batch;
        if (isOver) return;
      }
      // An end that is not in the journal: a refusal, a shutdown, or a journal that cannot be written
      const terminal = await working;
      if (entry.refused !== undefined) throw entry.refused;
      if (terminal !== undefined) yield [terminal];
    },
    cancel: (reason) => entry.abort(new CancelError(reason)),
  };
}

/** The runs at work, in no order. */
export interface ActiveRuns<T extends { readonly id: string }> {
  readonly size: () => number;
  add(run: T): void;
  /** Removes a run. Repeating it does nothing. */
  remove(run: T): void;
  find(id: string): T | undefined;
  all(): readonly T[];
}

/**
 * Returns an empty list of runs over one array. A Map or Set would keep ended runs alive: each table that V8 replaces holds all runs of its
 * time until the next major collection. Finding by id is rare and looks through the runs at work alone.
 */
export function createActiveRuns<T extends { readonly id: string }>(): ActiveRuns<T> {
  const runs: T[] = [];
  return {
    size: () => runs.length,
    add: (run) => void runs.push(run),
    remove(run) {
      const at = runs.indexOf(run);
      if (at < 0) return;
      const last = runs.pop() as T; // it was found, so there is one
      if (last !== run) runs[at] = last;
    },
    find: (id) => runs.find((run) => run.id === id),
    all: () => [...runs],
  };
}
