import type { TokenBudget } from "../agent/token_budget.ts";
import { CancelError, type CancelReason } from "../base/cancel.ts";
import type { ProviderError } from "../base/errors.ts";
import type { AgentEvent } from "../base/records/agent_event.ts";
import { isTerminal } from "../base/records/agent_event.ts";
import type { Run } from "../base/records/run.ts";
import type { RunRecorder } from "./run_recorder.ts";
import type { RunHandle } from "./run_request.ts";
import type { RunStore } from "./run_store.ts";

/** A run at work, or waiting for its turn. */
export interface ActiveRun {
  readonly id: string;
  readonly model: string;
  readonly conversationId: string | null;
  /** 0 for the run a person started, 1 for its children, and so on */
  readonly depth: number;
  readonly durable: boolean;
  /** What its model calls count in; undefined where no budget is set */
  readonly budget: TokenBudget | undefined;
  readonly signal: AbortSignal;
  readonly abort: (error: CancelError) => void;
  /** Whether it waits for a person */
  readonly isPaused: () => boolean;
  /** As it is now, for one that is not recorded */
  readonly view: () => Run;
  hadEffect: boolean;
  /** Set at its end: what the provider said before the first delta, thrown to the reader in place of the terminal event */
  refused: ProviderError | undefined;
}

type Step = Promise<IteratorResult<readonly AgentEvent[], void>>;

/**
 * Handle of attached work: the reader itself drives the agent, with no step between, and leaving ends the run.
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
    // A generator that never ran has no end of its own: its first step writes the end, and is kept for a late reader
    this.#started = true;
    this.#first = this.#events.next();
    this.#first.catch(() => {});
  }
}

/** Handle of durable work: it goes on by itself, and readers follow the journal and what is not in it yet. */
export interface DurableHandle extends RunHandle {
  /** To be called when the recorder has news */
  readonly changed: () => void;
}

export interface DurableOptions {
  readonly events: AsyncGenerator<readonly AgentEvent[], void, undefined>;
  readonly recorder: RunRecorder;
  readonly runs: RunStore;
}

/** Starts the work at once; it ends whether somebody reads it or not. */
export function durableHandle(entry: ActiveRun, { events, recorder, runs }: DurableOptions): DurableHandle {
  let over = false;
  let terminal: AgentEvent | undefined;
  let wake = () => {};
  const work = async () => {
    try {
      for (let step = await events.next(); step.done !== true; step = await events.next()) terminal = step.value.at(-1);
    } catch {
      // The refusal, which the entry keeps for its readers
    } finally {
      over = true;
      wake();
    }
  };
  // The terminal event is shown once the work is over, for only then it is known to be on disk
  const shown = (batch: readonly AgentEvent[]) => batch.filter((event) => !isTerminal(event));
  async function* follow(): AsyncGenerator<readonly AgentEvent[], void, undefined> {
    let seq = 0;
    for (;;) {
      const finished = over;
      if (recorder.durableSeq() > seq) {
        for await (const batch of runs.replay(entry.id, seq)) {
          seq = batch.at(-1)?.seq ?? seq;
          if (shown(batch).length > 0) yield shown(batch);
        }
      }
      const live = recorder.pending(seq);
      seq = live.at(-1)?.seq ?? seq;
      if (shown(live).length > 0) yield shown(live);
      if (finished) {
        if (entry.refused !== undefined) throw entry.refused;
        if (terminal !== undefined) yield [terminal];
        return;
      }
      if (over || recorder.durableSeq() > seq || recorder.pending(seq).length > 0) continue;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }
  void work();
  const { id, model, conversationId } = entry;
  return {
    id,
    model,
    conversationId,
    hadEffect: () => entry.hadEffect,
    events: follow,
    cancel: (reason) => entry.abort(new CancelError(reason)),
    changed: () => wake(),
  };
}
