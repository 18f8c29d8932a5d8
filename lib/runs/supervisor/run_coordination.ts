import type { EffectRight } from "../../base/effect_right.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { ClaimableRun } from "../../cluster/run_claims.ts";
import type { Provider } from "../../providers/provider.ts";
import type { Patience } from "../../storage/read_records.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import { OWNS_ALL, type RunRights, type RunStore } from "../journal/run_store.ts";
import type { RunWatch } from "../journal/run_watch.ts";
import type { InterruptedRun, RecoverOptions } from "../recovery/recover_runs.ts";
import type { ActiveRun } from "./active_run.ts";
import { DayBudget, type DayBudgetOptions } from "./day_budget.ts";
import type { ActiveRuns, QueuePlace, RunLimits, RunQueue } from "./run_queue.ts";

/** Parts of a supervisor that its runs are coordinated with. */
export interface RunParts {
  readonly runs: RunStore;
  readonly active: ActiveRuns<ActiveRun>;
  readonly queue: RunQueue;
  readonly limits: () => RunLimits;
  /** Tells whether the tokens of a run are limited: its sub-agents then work at its gateway, within its budget. Default: they are not */
  readonly hasRunBudget?: (() => boolean) | undefined;
  readonly recovery: RecoverOptions;
  /** Wakes whoever waits for new events of a run, by its id. */
  readonly news: KeyedNotifier;
  /** Wakes whoever waits for the end of a run, by its id. */
  readonly ends: KeyedNotifier;
  readonly cancel: (id: string) => Promise<unknown>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

/** Beginning of a durable run: beside the write of its acceptance, behind that, or at a gateway that takes it from the database. */
export type Beginning = "at_once" | "once_accepted" | "elsewhere";

/**
 * Decides what a supervisor cannot decide by itself where other gateways have its runs too: where a run begins, its place in the line of its
 * conversation, its workspace and its right to act. Of a gateway alone all of it is decided at once, without a write or a wait.
 */
export interface RunCoordination {
  /** Watches of the runs that are at work elsewhere. Undefined: none is */
  readonly watches: { watch(id: string): RunWatch } | undefined;
  /** True: the database is another machine's, and other gateways may go on with what began here. */
  readonly isShared: boolean;
  /** Takes up what is open. Resolves after the first look. */
  start(): Promise<void>;
  /** Takes up nothing more, for a shutdown. */
  stop(): void | Promise<void>;
  /** Resolves when everything is given back of the runs that have left. */
  settle(): void | Promise<void>;
  /** Looks for runs to take up after a slot or a conversation has become free. */
  lookForWaiting(): void;
  /** Checks that there is room for one more run. @throws {HttpError} 503 `overloaded` */
  checkBounds(conversationId: string | null): void;
  /** Returns the conversation in whose line of this gateway a run waits. Null: its line is elsewhere, see `placeOf` */
  ownLine(conversationId: string): string | null;
  /** Returns a place that waits for the run's conversation too. */
  placeOf(place: QueuePlace, run: { readonly run: ClaimableRun; readonly isAccepted: boolean }): QueuePlace;
  /** Returns a provider that is asked only while this gateway may act for the run. */
  providerOf(provider: Provider, runId: string): Provider;
  /** Returns what makes calls of the store for a run until they succeed. Undefined: they are made once. @param signal ends the pauses. Default: never */
  patienceOf(runId: string, signal?: AbortSignal): Patience | undefined;
  /** Returns the right of a run to begin effects. Undefined: nobody can take it away */
  rightOf(runId: string, signal: AbortSignal): EffectRight | undefined;
  /**
   * Returns the workspace that a new run needs; null: none, or that of this gateway alone.
   * @throws {HttpError} 503 `workspace_unavailable`
   */
  workspaceFor(run: {
    readonly tools: readonly Pick<Tool, "local">[];
    readonly durable: boolean;
    readonly wanted?: string | undefined;
  }): string | null;
  /** Decides before its acceptance where and when a durable run begins. @param options.isChild true: its parent is at work here */
  beginningOf(run: ClaimableRun, options: { readonly isReady: () => boolean; readonly isChild: boolean }): Beginning;
  /** Tells all gateways of an accepted run that waits for one of them. */
  offer(runId: string): void;
  /** Gives back what a run had that has left. */
  leave(entry: Pick<ActiveRun, "id" | "conversationId" | "durable">): void;
  /** Returns the run of a conversation that is at work elsewhere, or waits there. Undefined: there is none */
  runIn(conversationId: string): string | undefined | Promise<string | undefined>;
  /** Lets the gateway of a run look for a message to it. */
  tellOwner(id: string): void | Promise<void>;
  /** Cancels a run that is not at work here. */
  cancelElsewhere(id: string): void | Promise<void>;
  /** Cancels the sub-agents of a run that was cancelled, where they are at work elsewhere. Never throws. */
  cancelChildren(id: string): void | Promise<void>;
  /** Resolves after news of a run, or when it is time to look again. */
  news(heard: Promise<void>): Promise<void>;
  /** Checks that the calls of an interrupted run may be made again. @throws {HttpError} 409 `conflict` */
  checkAgain(id: string): void | Promise<void>;
  /** Lets a run go on whose review said so. */
  goOn(interrupted: InterruptedRun): void | Promise<void>;
}

/** Membership among the gateways of a database, for the supervisor. */
export interface ClusterMember {
  readonly ownership: RunRights;
  readonly toRuns: (parts: RunParts) => RunCoordination;
  /** Makes the budget of the day, which all gateways share. */
  readonly toDayBudget: (options: DayBudgetOptions) => DayBudget;
}

/** The coordination of a gateway alone: every run is its own, begins here, and waits for nobody elsewhere. */
class AloneRuns implements RunCoordination {
  readonly watches = undefined;
  readonly isShared = false;
  readonly #parts: RunParts;

  constructor(parts: RunParts) {
    this.#parts = parts;
  }

  async start(): Promise<void> {
    const { runs, recovery } = this.#parts;
    const open = await runs.open();
    if (open.length === 0) return;
    const { recoverRuns } = await import("../recovery/recover_runs.ts");
    await recoverRuns(open, recovery);
  }

  async goOn(interrupted: InterruptedRun): Promise<void> {
    const { continueRun } = await import("../recovery/recover_runs.ts");
    await continueRun(interrupted, this.#parts.recovery);
  }

  ownLine(conversationId: string): string {
    return conversationId;
  }

  placeOf(place: QueuePlace): QueuePlace {
    return place;
  }

  providerOf(provider: Provider): Provider {
    return provider;
  }

  news(heard: Promise<void>): Promise<void> {
    return heard;
  }

  beginningOf(): Beginning {
    return "at_once";
  }

  workspaceFor(): null {
    return null;
  }

  patienceOf(): undefined {}
  rightOf(): undefined {}
  stop(): void {}
  settle(): void {}
  lookForWaiting(): void {}
  checkBounds(): void {}
  offer(): void {}
  leave(): void {}
  runIn(): undefined {}
  tellOwner(): void {}
  cancelElsewhere(): void {}
  cancelChildren(): void {}
  checkAgain(): void {}
}

/** A gateway alone, as a cluster of one. */
export const MEMBER_ALONE: ClusterMember = {
  ownership: OWNS_ALL,
  toRuns: (parts) => new AloneRuns(parts),
  toDayBudget: (options) => new DayBudget(options),
};
