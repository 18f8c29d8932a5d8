import { CancelError } from "../../base/cancel.ts";
import { Backoff, type Timer } from "../../base/clock.ts";
import { KeyedNotifier } from "../../base/keyed_queues.ts";
import { isUnreadable, unlessUnreadable } from "../../storage/read_records.ts";
import { loneWork, type MakeWork, type WorkPart } from "../work_part.ts";
import { type AdvanceExecution, type AdvanceOptions, createAdvanceExecution } from "./advance_execution.ts";
import type { WorkHold } from "../../cluster/work_hold.ts";
import type { Write } from "../../storage/store.ts";
import {
  currentStep,
  type Execution,
  type ExecutionPlan,
  hasEnded,
  isBehindGate,
  OPEN_SOPS,
} from "./execution_record.ts";
import type { KeptExecution } from "./execution_store.ts";
import { cancelStepRun } from "./step_run.ts";

/** Options of advancing, and the retention of ended executions. */
export interface ExecutorOptions extends AdvanceOptions {
  /** Days an ended execution is kept; 0 for ever */
  readonly retentionDays: () => number;
  /** Makes the part of this gateway in the executions, each of which has one owner. Default: the gateway is alone, and owns all */
  readonly work?: MakeWork | undefined;
}

/** Number of ended executions that are kept */
const KEEP = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;
/** Milliseconds before an execution that failed with an internal error is tried again. Doubled each time */
const RETRIES = { firstMs: 1_000, mostMs: 60_000 } as const;

/**
 * Advances the executions of a store in the background. Runs a loop for each open execution: the loop reads the record, does what comes
 * next, and reads it again. Nothing is kept in memory, so a stop at any moment is a pause. A step's run is accepted in one transaction with
 * the record that names it, so no step runs twice.
 */
export class Executor {
  readonly #options: ExecutorOptions;
  readonly #advance: AdvanceExecution;
  readonly #closing = new AbortController();
  readonly #work: WorkPart;
  /** Loops by execution. */
  readonly #loops = new Map<string, Promise<void>>();
  /** Version of the record that each loop has read. */
  readonly #versions = new Map<string, number>();
  /** The pass that each loop is at: an abort makes the loop read its record again. */
  readonly #passes = new Map<string, AbortController>();
  /** Wakes whoever waits for the next reading of an execution. */
  readonly #notifier = new KeyedNotifier();
  #pruning: Timer | undefined;

  constructor(options: ExecutorOptions) {
    this.#options = options;
    this.#advance = createAdvanceExecution(options);
    const { work = loneWork } = options;
    this.#work = work({
      collection: OPEN_SOPS.name,
      open: () => options.store.open(),
      room: () => Infinity,
      takeUp: (id, hold) => this.#begin(id, hold),
      changed: (id, version) => this.#changed(id, version),
    });
  }

  /** Cancels the runs of executions that are being cancelled. Called at a start, before runs are recovered */
  async stopCancelled(): Promise<void> {
    const { store, runs } = this.#options;
    for (const id of await store.open()) {
      const found = await unlessUnreadable(store.find(id));
      if (found?.execution.cancelling) await cancelStepRun(found.execution, runs());
    }
  }

  /** Goes on with the executions that a stop left open */
  async start(): Promise<void> {
    const { kit: { clock }, runs } = this.#options;
    if (runs() !== undefined) await this.#work.start();
    void this.#prune();
    this.#pruning = clock.every(DAY_MS, () => void this.#prune());
  }

  /**
   * Returns the write that marks a new execution as open. Undefined for a gateway alone, whose marks name no owner
   * @param isLocal true: a step of it may need this machine
   */
  opening(id: string, isLocal: boolean): Write | undefined {
    return this.#work.opening(id, isLocal);
  }

  /** Lets an execution begin that was created with `opening`. Without an agent it waits for a start with one */
  begin(id: string): void {
    this.#work.accepted(id);
  }

  /** Returns the writes that tell the owner of an execution of a change, for the batch of the change. Empty for a gateway alone */
  async signal(id: string): Promise<readonly Write[]> {
    return await this.#work.signal(id);
  }

  /** Tells whether an execution waits for a gateway of its workspace. A gateway alone has the workspace */
  async waitsForWorkspace(id: string): Promise<boolean> {
    return await this.#work.waitsForWorkspace(id);
  }

  /** Lets the owner of an execution read its record again, after a change */
  goOn(id: string): void {
    if (this.#loops.has(id)) this.#passes.get(id)?.abort(new CancelError("cancelled"));
    else this.#work.wake(id);
  }

  /** Resolves once the execution waits for its approval, or needs none now. @throws {CancelError} when the signal aborts */
  async untilAsked(id: string, signal: AbortSignal): Promise<KeptExecution | undefined> {
    for (;;) {
      // Listening begins before the reading, so that no news falls between
      const news = this.#notifier.listen(id, signal);
      try {
        const found = await this.#options.store.find(id);
        if (found === undefined || !isAboutToAsk(found.execution)) return found;
        await this.#work.news(news.heard);
      } finally {
        news.stop();
      }
    }
  }

  /** Stops at once. Open executions go on at the next start */
  async close(): Promise<void> {
    this.#pruning?.clear();
    this.#closing.abort(new CancelError("shutdown"));
    await this.#work.stop();
    await Promise.allSettled(this.#loops.values());
  }

  /** Begins the loop of an execution. @param hold undefined: the gateway is alone */
  #begin(id: string, hold?: WorkHold): void {
    if (this.#closing.signal.aborted || this.#options.runs() === undefined) return;
    // The loop of a hold that was lost may not be over yet
    const before = this.#loops.get(id) ?? Promise.resolve();
    const loop: Promise<void> = before.then(() => this.#loop(id, hold)).finally(() => {
      if (this.#loops.get(id) !== loop) return;
      this.#loops.delete(id);
      this.#passes.delete(id);
      this.#versions.delete(id);
    });
    this.#loops.set(id, loop);
  }

  /** Takes the news of another gateway that an execution may have changed. */
  #changed(id: string, version: number): void {
    this.#notifier.wake(id);
    // A move of the loop itself is heard of too
    const isKnown = version !== 0 && version <= (this.#versions.get(id) ?? 0);
    if (!isKnown) this.#passes.get(id)?.abort(new CancelError("cancelled"));
  }

  async #loop(id: string, hold: WorkHold | undefined): Promise<void> {
    const { store, kit: { clock, log } } = this.#options;
    let plan: ExecutionPlan | undefined;
    for (const backoff = new Backoff(RETRIES); !this.#closing.signal.aborted && hold?.lost.aborted !== true;) {
      const signal = this.#nextPass(id, hold);
      try {
        await hold?.mayAct(signal);
        const found = await store.find(id);
        this.#notifier.wake(id);
        if (found === undefined || hasEnded(found.execution)) return hold?.end();
        this.#versions.set(id, found.version);
        plan ??= await store.plan(id);
        const { stranded } = hold ?? {};
        // Without its workspace an execution goes on nowhere
        if (stranded !== undefined && !stranded.isTooLate && !found.execution.cancelling) return await stranded.wait();
        const waitedMs = stranded?.waitMs;
        await this.#advance({ found: { ...found, alongside: hold?.check }, plan, signal, waitedMs });
        // For whoever waits at another gateway
        this.#work.tell(id, found.version + 1);
        backoff.reset();
      } catch (error) {
        // The execution was changed, or the gateway stops: look again
        if (error instanceof CancelError && (signal.aborted || hold?.lost.aborted)) continue;
        if (isUnreadable(error)) {
          log.error("Procedure cannot go on: one of its records is damaged", { execution_id: id, error });
          return;
        }
        log.error("Procedure cannot go on, and is tried again", { execution_id: id, error });
        await clock.sleep(backoff.next(), signal).catch(() => {});
      }
    }
  }

  #nextPass(id: string, hold: WorkHold | undefined): AbortSignal {
    const pass = new AbortController();
    this.#passes.set(id, pass);
    return AbortSignal.any([this.#closing.signal, pass.signal, ...(hold === undefined ? [] : [hold.lost])]);
  }

  /** Forgets executions that ended long ago, or are too many. */
  async #prune(): Promise<void> {
    const { store, kit: { clock, log }, retentionDays } = this.#options;
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
