import type { Cluster } from "../../cluster/join_cluster.ts";
import { POLL_MS } from "../../cluster/cluster_news.ts";
import type { RunOwnership } from "../../cluster/run_ownership.ts";
import { CancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import { isAtWork } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Provider } from "../../providers/provider.ts";
import type { RunStore } from "../journal/run_store.ts";
import { type RecoverOptions, recoverRun } from "../recovery/recover_runs.ts";
import type { ActiveRun, ActiveRuns } from "./active_run.ts";
import { overloaded, type QueuePlace, type RunLimits, type RunQueue } from "./run_queue.ts";

/** Parts of a supervisor that a cluster works with. */
export interface ClusterRunsOptions {
  readonly cluster: Cluster;
  readonly runs: RunStore;
  readonly active: ActiveRuns<ActiveRun>;
  readonly queue: RunQueue;
  readonly limits: () => RunLimits;
  readonly recovery: RecoverOptions;
  /** Woken with a run's id when the run has new events. */
  readonly news: KeyedNotifier;
  /** Woken with a run's id when the run ends. */
  readonly ends: KeyedNotifier;
  readonly cancel: (id: string) => Promise<unknown>;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * The runs of this gateway among those of the cluster: claims runs that wait, takes over those of gateways that are gone, and hears of
 * cancellations. Once a second it looks by itself, in case a note was lost.
 */
export class ClusterRuns {
  readonly ownership: RunOwnership;
  readonly #options: ClusterRunsOptions;
  #poll: Timer | undefined = undefined;
  /** The look that is at work. */
  #looking: Promise<void> | undefined = undefined;
  /** Set when something happened during a look, which is then repeated. */
  #isDue = false;
  #isStopped = false;
  /** Runs that could not be read: they stay for a person. */
  readonly #unreadable = new Set<string>();
  #isAway = false;

  constructor(options: ClusterRunsOptions) {
    this.#options = options;
    this.ownership = options.cluster.ownership;
  }

  /** Begins to claim. Resolves after the first look. */
  async start(): Promise<void> {
    const { ends, news, clock } = this.#options;
    this.ownership.onNote(({ kind, id }) => {
      if (kind === "run" || kind === "end") news.wake(id);
      if (kind === "end") ends.wake(id);
      if (kind === "signal" && this.ownership.owns(id)) void this.#readSignal(id);
      if (kind === "queue" || kind === "end") this.look();
    });
    this.ownership.onLost((ids) => this.#lose(ids));
    this.#poll = clock.every(POLL_MS, () => this.look());
    this.look();
    await this.#looking;
  }

  /** Ends the claiming, for a shutdown. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#poll?.clear();
    await this.#looking;
  }

  /** Looks for runs to claim, now or after the look that is at work. */
  look(): void {
    this.#isDue = true;
    if (!this.#isStopped) this.#looking ??= this.#look().finally(() => this.#looking = undefined);
  }

  /** Checks that the cluster has room for one more run. @throws {HttpError} 503 `overloaded` */
  checkBounds(conversationId: string | null): void {
    const { maxQueued, maxPerConversation } = this.#options.limits();
    const { waiting, byConversation } = this.ownership.queue();
    if (waiting >= maxQueued) throw overloaded("too many runs of the cluster are waiting");
    if (conversationId !== null && (byConversation.get(conversationId) ?? 0) >= maxPerConversation) {
      throw overloaded("too many runs of this conversation are waiting");
    }
  }

  /** Returns a place that waits for the conversation in the whole cluster, after the slot. */
  placeOf(place: QueuePlace, { id, conversationId, parentId }: {
    readonly id: string;
    readonly conversationId: string;
    readonly parentId: string | null;
  }): QueuePlace {
    const { ownership } = this;
    return {
      ready: () => false,
      async wait(signal) {
        await place.wait(signal);
        await ownership.takeConversation({ id, conversationId, parentId }, signal);
      },
      pause: (wait) => place.pause(wait),
      leave: () => place.leave(),
    };
  }

  /** Returns a provider that is asked only while this gateway may act for the run. */
  providerOf(provider: Provider, runId: string): Provider {
    const { ownership } = this;
    return {
      ...provider,
      name: provider.name,
      async *stream(request, call) {
        await ownership.mayAct(runId, call.signal);
        yield* provider.stream(request, call);
      },
      listModels: (signal) => provider.listModels(signal),
      close: () => provider.close(),
    };
  }

  /** Gives back what a run had that has left. */
  leave(entry: Pick<ActiveRun, "id" | "conversationId">): void {
    const { id, conversationId } = entry;
    const { runs, log } = this.#options;
    runs.forget(id);
    void this.ownership.leave(
      { id, conversationId, parentId: null },
      (error) => log.warn("A conversation could not be given back: its next run waits for it", { run_id: id, error }),
    );
    this.look();
  }

  /** Tells the owner of a run that somebody has cancelled it, and ends a run that has none. */
  async cancelElsewhere(id: string): Promise<void> {
    this.ownership.tell("signal", id);
    if (await this.ownership.claimToEnd(id)) await this.#takeUp(id);
  }

  /** Cancels the sub-agents of a run that was cancelled, wherever they work. Never throws. */
  async cancelChildren(id: string): Promise<void> {
    const { active, cancel, log } = this.#options;
    try {
      for (const child of await this.ownership.childrenOf(id)) {
        if (active.find(child) === undefined) await cancel(child);
      }
    } catch (error) {
      log.error("Sub-agents of a cancelled run could not be cancelled", { run_id: id, error });
    }
  }

  /** Tells whether a run that is not at work here is at work elsewhere, or waits. */
  async isOpenElsewhere(id: string): Promise<boolean> {
    if (this.#isStopped) return false;
    const run = await this.#options.runs.get(id);
    return run !== undefined && isAtWork(run.status);
  }

  /** Resolves after news of a run, or when it is time to look again. */
  async news(heard: Promise<void>): Promise<void> {
    const waiting = new AbortController();
    await Promise.race([heard, this.#options.clock.sleep(POLL_MS, waiting.signal).catch(() => {})]).finally(() =>
      waiting.abort()
    );
  }

  /**
   * Checks that the calls of a run may be made again: programs that its earlier gateway started may live for a lease.
   * @throws {HttpError} 409 `conflict`
   */
  async checkAgain(id: string): Promise<void> {
    const { runs, clock } = this.#options;
    const endedAt = (await runs.get(id))?.ended_at;
    const left = endedAt == null ? 0 : Date.parse(endedAt) + this.ownership.leaseMs - clock.now();
    if (left <= 0) return;
    const seconds = Math.ceil(left / 1_000);
    throw new HttpError(
      "conflict",
      `Cannot make the calls of this run again yet: the gateway that began them may still be ending them; try again in ${seconds} s`,
      { status: 409, type: "invalid_request_error", headers: { "Retry-After": String(seconds) } },
    );
  }

  async #look(): Promise<void> {
    const { cluster, queue, active, log } = this.#options;
    while (this.#isDue && !this.#isStopped) {
      this.#isDue = false;
      try {
        await cluster.takeOver();
        for (const id of await this.ownership.signals()) await this.#readSignal(id);
        const claimed = await this.ownership.claim({
          limit: queue.freeSlots(),
          isKnown: (id) => active.find(id) !== undefined || this.#unreadable.has(id),
        });
        for (const { id } of claimed) await this.#takeUp(id);
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) log.error("Runs cannot be claimed: the gateway tries again each second", { error });
        this.#isAway = true;
      }
    }
  }

  /** Lets a claimed run go on, or ends it. A run that cannot be taken up now is claimed again at the next look. */
  async #takeUp(id: string): Promise<void> {
    const { runs, recovery, active, log } = this.#options;
    try {
      await recoverRun({ id, cancelled: await runs.isCancelled(id) }, recovery);
    } catch (error) {
      if (!isAway(error)) {
        this.#unreadable.add(id);
        log.error("Claimed run could not be taken up", { run_id: id, error });
        return;
      }
      this.#isDue = false;
    }
    if (active.find(id) === undefined) this.ownership.forget(id);
  }

  async #readSignal(id: string): Promise<void> {
    const { active, runs, log } = this.#options;
    try {
      if (await runs.isCancelled(id) === true) active.find(id)?.abort(new CancelError("cancelled"));
    } catch (error) {
      log.warn("A cancellation could not be read: it is read again in a second", { run_id: id, error });
    }
  }

  #lose(ids: readonly string[]): void {
    const { active, runs } = this.#options;
    for (const id of ids) {
      runs.forget(id);
      const entry = active.find(id);
      if (entry === undefined) this.ownership.forget(id);
      else entry.abort(new CancelError("shutdown", "Another gateway has taken the run over"));
    }
  }
}

function isAway(error: unknown): boolean {
  return error instanceof HttpError && error.code === "storage_unavailable";
}
