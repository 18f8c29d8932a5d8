import { CancelError } from "../../base/cancel.ts";
import type { Timer } from "../../base/clock.ts";
import { createKeyedNotifier } from "../../base/keyed_queues.ts";
import { isUnreadable, unlessUnreadable } from "../../storage/read_records.ts";
import { type CarryOnOptions, createCarryOn } from "./carry_on.ts";
import { type Execution, type ExecutionPlan, hasEnded } from "./execution_record.ts";
import type { KeptExecution } from "./execution_store.ts";
import { cancelStepRun } from "./step_run.ts";
import { currentStep } from "./transitions.ts";

export interface ExecutorOptions extends CarryOnOptions {
  /** Days an ended execution is kept; 0 for ever */
  readonly retentionDays: () => number;
}

/** Carries executions on, in the background. */
export interface Executor {
  /** Cancels the runs of executions whose end somebody wants: before runs go on after a start, lest they do */
  stopCancelled(): Promise<void>;
  /** Goes on with all that a stop left open */
  start(): Promise<void>;
  /** Goes on with this one; one that is at work looks again. Without an agent it is left for the next start with one */
  goOn(id: string): void;
  /** Resolves once the execution holds its question, or needs none now. @throws {CancelError} when the signal aborts */
  asked(id: string, signal: AbortSignal): Promise<KeptExecution | undefined>;
  /** Forgets executions that ended long ago, or are too many */
  prune(): Promise<void>;
  /** Stops at once; what is open goes on at the next start */
  close(): Promise<void>;
}

/** Executions that are kept, the open ones excepted */
const KEEP = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** How long to wait before one is tried again that failed inside; doubled each time */
const RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

/**
 * One loop for each open execution: it looks at the record, does what comes next, and looks again. Nothing is kept in memory, so
 * a stop at any moment is a pause; a step's run is accepted in one transaction with the record that names it, so none runs twice.
 */
export function createExecutor(options: ExecutorOptions): Executor {
  const { store, clock, log } = options;
  const carryOn = createCarryOn(options);
  const closing = new AbortController();
  const turns = new Map<string, AbortController>();
  const drives = new Map<string, Promise<void>>();
  const notifier = createKeyedNotifier();
  let pruning: Timer | undefined;

  const drive = async (id: string): Promise<void> => {
    let plan: ExecutionPlan | undefined;
    for (let retryMs = RETRY_MS; !closing.signal.aborted;) {
      const turn = new AbortController();
      turns.set(id, turn);
      const signal = AbortSignal.any([closing.signal, turn.signal]);
      try {
        const found = await store.find(id);
        notifier.wake(id);
        if (found === undefined || hasEnded(found.execution)) return;
        plan ??= await store.plan(id);
        await carryOn({ found, plan, signal });
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
      if (drives.has(id)) return turns.get(id)?.abort(new CancelError("cancelled"));
      const work = drive(id).finally(() => {
        drives.delete(id);
        turns.delete(id);
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
