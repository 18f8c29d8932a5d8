import { CancelError } from "../../base/cancel.ts";
import type { Timer } from "../../base/clock.ts";
import { createKeyedNotifier } from "../../base/keyed_queues.ts";
import { isUnreadable, unlessUnreadable } from "../../storage/read_records.ts";
import { type AdvanceOptions, createAdvanceExecution } from "./advance_execution.ts";
import { currentStep, type Execution, type ExecutionPlan, hasEnded } from "./execution_record.ts";
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
  /** Goes on with all that a stop left open */
  start(): Promise<void>;
  /** Advances an execution. An execution that is at work reads its record again. Without an agent it waits for a start with one */
  goOn(id: string): void;
  /** Resolves once the execution waits for its approval, or needs none now. @throws {CancelError} when the signal aborts */
  asked(id: string, signal: AbortSignal): Promise<KeptExecution | undefined>;
  /** Forgets executions that ended long ago, or are too many */
  prune(): Promise<void>;
  /** Stops at once; what is open goes on at the next start */
  close(): Promise<void>;
}

/** Executions that are kept, the open ones excepted */
const KEEP = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** Milliseconds before an execution that failed with an internal error is tried again. Doubled each time */
const RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/**
 * Runs a loop for each open execution: the loop reads the record, does what comes next, and reads it again. Nothing is kept in
 * memory, so a stop at any moment is a pause. A step's run is accepted in one transaction with the record that names it, so no step
 * runs twice.
 */
export function createExecutor(options: ExecutorOptions): Executor {
  const { store, clock, log } = options;
  const advance = createAdvanceExecution(options);
  const closing = new AbortController();
  const attempts = new Map<string, AbortController>();
  const drives = new Map<string, Promise<void>>();
  const notifier = createKeyedNotifier();
  let pruning: Timer | undefined;

  const drive = async (id: string): Promise<void> => {
    let plan: ExecutionPlan | undefined;
    for (let retryMs = RETRY_MS; !closing.signal.aborted;) {
      const attempt = new AbortController();
      attempts.set(id, attempt);
      const signal = AbortSignal.any([closing.signal, attempt.signal]);
      try {
        const found = await store.find(id);
        notifier.wake(id);
        if (found === undefined || hasEnded(found.execution)) return;
        plan ??= await store.plan(id);
        await advance({ found, plan, signal });
        retryMs = RETRY_MS;
      } catch (error) {
        // Somebody changed it, or all ends: look again
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
  };

  const prune = async (): Promise<void> => {
    const days = options.retentionDays();
    const before = days === 0 ? "" : new Date(clock.now() - days * DAY_MS).toISOString();
    const pruned = await store.prune({ before, keep: KEEP });
    if (pruned > 0) log.info("Old executions of procedures were forgotten", { executions: pruned });
  };
  const pruneQuietly = () => void prune().catch((error: unknown) => log.error("Old executions stay", { error }));

  const executor: Executor = {
    async stopCancelled() {
      for (const id of await store.open()) {
        const found = await unlessUnreadable(store.find(id));
        if (found?.execution.cancelling) await cancelStepRun(found.execution, options.runs());
      }
    },
    async start() {
      for (const id of await store.open()) executor.goOn(id);
      pruneQuietly();
      pruning = clock.every(DAY_MS, pruneQuietly);
    },
    goOn(id) {
      if (closing.signal.aborted || options.runs() === undefined) return;
      if (drives.has(id)) return attempts.get(id)?.abort(new CancelError("cancelled"));
      const work = drive(id).finally(() => {
        drives.delete(id);
        attempts.delete(id);
      });
      drives.set(id, work);
    },
    async asked(id, signal) {
      for (;;) {
        // Heard before it is looked at, so that no news falls between
        const news = notifier.listen(id, signal);
        try {
          const found = await store.find(id);
          if (found === undefined || !isAboutToAsk(found.execution)) return found;
          await news.heard;
        } finally {
          news.stop();
        }
      }
    },
    prune,
    async close() {
      pruning?.clear();
      closing.abort(new CancelError("shutdown"));
      await Promise.allSettled(drives.values());
    },
  };
  return executor;
}

function isAboutToAsk(execution: Execution): boolean {
  if (hasEnded(execution) || execution.cancelling) return false;
  if (execution.gate !== null && !execution.gate.granted) return execution.gate.approval_id === null;
  return execution.steps[currentStep(execution)]?.status === "pending";
}
