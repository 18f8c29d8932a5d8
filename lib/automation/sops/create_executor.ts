import { CancelError } from "../../base/cancel.ts";
import type { Timer } from "../../base/clock.ts";
import { createKeyedNotifier } from "../../base/keyed_queues.ts";
import { isUnreadable, unlessUnreadable } from "../../storage/read_records.ts";
import { type AdvanceExecution, type AdvanceOptions, createAdvanceExecution } from "./advance_execution.ts";
import { currentStep, type Execution, type ExecutionPlan, hasEnded, isBehindGate } from "./execution_record.ts";
import type { KeptExecution } from "./execution_store.ts";
import { cancelStepRun } from "./step_run.ts";

/** Options of advancing, and the retention of ended executions. */
export interface ExecutorOptions extends AdvanceOptions {
  /** Days an ended execution is kept; 0 for ever */
  readonly retentionDays: () => number;
}

/** Advances executions in the background. */
export interface Executor {
  /** Cancels the runs of executions that are being cancelled. Called at a start, before runs are recovered */
  stopCancelled(): Promise<void>;
  /** Goes on with the executions that a stop left open */
  start(): Promise<void>;
  /** Advances an execution. An execution that is at work reads its record again. Without an agent it waits for a start with one */
  goOn(id: string): void;
  /** Resolves once the execution waits for its approval, or needs none now. @throws {CancelError} when the signal aborts */
  untilAsked(id: string, signal: AbortSignal): Promise<KeptExecution | undefined>;
  /** Stops at once. Open executions go on at the next start */
  close(): Promise<void>;
}

/** Number of ended executions that are kept */
const KEEP = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** Milliseconds before an execution that failed with an internal error is tried again. Doubled each time */
const RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/** Creates the executor of a store's executions. */
export function createExecutor(options: ExecutorOptions): Executor {
  return new LoopExecutor(options);
}

/**
 * Runs a loop for each open execution: the loop reads the record, does what comes next, and reads it again. Nothing is kept in
 * memory, so a stop at any moment is a pause. A step's run is accepted in one transaction with the record that names it, so no step
 * runs twice.
 */
class LoopExecutor implements Executor {
  readonly #options: ExecutorOptions;
  readonly #advance: AdvanceExecution;
  readonly #closing = new AbortController();
  /** Loops by execution. */
  readonly #loops = new Map<string, Promise<void>>();
  /** The pass that each loop is at: an abort makes the loop read its record again. */
  readonly #passes = new Map<string, AbortController>();
  /** Wakes whoever waits for the next reading of an execution. */
  readonly #notifier = createKeyedNotifier();
  #pruning: Timer | undefined;

  constructor(options: ExecutorOptions) {
    this.#options = options;
    this.#advance = createAdvanceExecution(options);
  }

  async stopCancelled(): Promise<void> {
    const { store, runs } = this.#options;
    for (const id of await store.open()) {
      const found = await unlessUnreadable(store.find(id));
      if (found?.execution.cancelling) await cancelStepRun(found.execution, runs());
    }
  }

  async start(): Promise<void> {
    const { store, clock } = this.#options;
    for (const id of await store.open()) this.goOn(id);
    void this.#prune();
    this.#pruning = clock.every(DAY_MS, () => void this.#prune());
  }

  goOn(id: string): void {
    if (this.#closing.signal.aborted || this.#options.runs() === undefined) return;
    if (this.#loops.has(id)) return this.#passes.get(id)?.abort(new CancelError("cancelled"));
    const loop = this.#loop(id).finally(() => {
      this.#loops.delete(id);
      this.#passes.delete(id);
    });
    this.#loops.set(id, loop);
  }

  async untilAsked(id: string, signal: AbortSignal): Promise<KeptExecution | undefined> {
    for (;;) {
      // Listening begins before the reading, so that no news falls between
      const news = this.#notifier.listen(id, signal);
      try {
        const found = await this.#options.store.find(id);
        if (found === undefined || !isAboutToAsk(found.execution)) return found;
        await news.heard;
      } finally {
        news.stop();
      }
    }
  }

  async close(): Promise<void> {
    this.#pruning?.clear();
    this.#closing.abort(new CancelError("shutdown"));
    await Promise.allSettled(this.#loops.values());
  }

  async #loop(id: string): Promise<void> {
    const { store, clock, log } = this.#options;
    let plan: ExecutionPlan | undefined;
    for (let retryMs = RETRY_MS; !this.#closing.signal.aborted;) {
      const signal = this.#nextPass(id);
      try {
        const found = await store.find(id);
        this.#notifier.wake(id);
        if (found === undefined || hasEnded(found.execution)) return;
        plan ??= await store.plan(id);
        await this.#advance({ found, plan, signal });
        retryMs = RETRY_MS;
      } catch (error) {
        // The execution was changed, or the gateway stops: look again
        if (error instanceof CancelError && signal.aborted) continue;
        if (isUnreadable(error)) {
          log.error("Procedure cannot go on: one of its records is damaged", { execution_id: id, error });
          return;
        }
        log.error("Procedure cannot go on, and is tried again", { execution_id: id, error });
        await clock.sleep(retryMs, signal).catch(() => {});
        retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
      }
    }
  }

  #nextPass(id: string): AbortSignal {
    const pass = new AbortController();
    this.#passes.set(id, pass);
    return AbortSignal.any([this.#closing.signal, pass.signal]);
  }

  /** Forgets executions that ended long ago, or are too many. */
  async #prune(): Promise<void> {
    const { store, clock, log, retentionDays } = this.#options;
    try {
      const days = retentionDays();
      const before = days === 0 ? "" : new Date(clock.now() - days * DAY_MS).toISOString();
      const pruned = await store.prune({ before, keep: KEEP });
      if (pruned > 0) log.info("Old executions of procedures were forgotten", { executions: pruned });
    } catch (error) {
      log.error("Old executions stay", { error });
    }
  }
}

function isAboutToAsk(execution: Execution): boolean {
  if (hasEnded(execution) || execution.cancelling) return false;
  if (isBehindGate(execution)) return execution.gate?.approval_id === null;
  return execution.steps[currentStep(execution)]?.status === "pending";
}
