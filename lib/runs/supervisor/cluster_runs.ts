import type { Cluster } from "../../cluster/join_cluster.ts";
import { POLL_MS } from "../../cluster/cluster_news.ts";
import type { ClaimableRun } from "../../cluster/run_claims.ts";
import { type RunOwnership, runTakenOver } from "../../cluster/run_ownership.ts";
import { CancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import { isEnded } from "../../base/records/run.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import type { Random } from "../../base/random.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Provider } from "../../providers/provider.ts";
import { isStorageAway, type OnceBack } from "../../storage/read_records.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import { OPEN_RUNS, workspaceOf } from "../journal/run_records.ts";
import type { RunStore } from "../journal/run_store.ts";
import { RunWatches } from "../journal/run_watch.ts";
import { endInterrupted, type RecoverOptions, recoverRun, settleRun } from "../recovery/recover_runs.ts";
import type { ActiveRun, ActiveRuns } from "./active_run.ts";
import { overloaded, type QueuePlace, type RunLimits, type RunQueue } from "./run_queue.ts";

/** Claimed runs that are read at the same time. */
const TAKEN_UP_AT_ONCE = 8;

/** Parts of a supervisor that a cluster works with. */
export interface ClusterRunsOptions {
  readonly cluster: Cluster;
  readonly runs: RunStore;
  readonly active: ActiveRuns<ActiveRun>;
  readonly queue: RunQueue;
  readonly limits: () => RunLimits;
  /** Tells whether the tokens of a run are limited: its sub-agents then work at its gateway, within its budget. Default: they are not */
  readonly hasRunBudget?: (() => boolean) | undefined;
  readonly recovery: RecoverOptions;
  /** Woken with a run's id when the run has new events. */
  readonly news: KeyedNotifier;
  /** Woken with a run's id when the run ends. */
  readonly ends: KeyedNotifier;
  readonly cancel: (id: string) => Promise<unknown>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

/** Runs without a workspace that one look takes up, so that it ends soon. */
const MAX_STRANDED = 50;

/**
 * The runs of this gateway among those of the cluster: claims runs that wait, takes over those of gateways that are gone, and hears of
 * cancellations. Once a second it looks by itself, in case a note was lost.
 */
export class ClusterRuns {
  readonly ownership: RunOwnership;
  /** Runs that are at work elsewhere and followed here. */
  readonly watches: RunWatches;
  readonly #options: ClusterRunsOptions;
  #poll: Timer | undefined = undefined;
  /** The look that is at work. */
  #looking: Promise<void> | undefined = undefined;
  /** Look that is to come, now or after the one at work: after news, or a whole one as once a second. */
  #due: "none" | "news" | "whole" = "none";
  #isStopped = false;
  /** Runs that could not be read: they stay for a person. */
  readonly #unreadable = new Set<string>();
  #isAway = false;
  #hasAdopted = false;
  /** Number of runs of this gateway that work or wait, by conversation. */
  readonly #lines = new Map<string, number>();
  /** Writes of runs that are leaving. */
  readonly #leaving = new Set<Promise<void>>();

  constructor(options: ClusterRunsOptions) {
    this.#options = options;
    this.ownership = options.cluster.ownership;
    this.watches = new RunWatches({ ...options, links: options.cluster.links });
  }

  /** Begins to claim. Resolves after the first look. */
  async start(): Promise<void> {
    const { cluster, ends, clock } = this.#options;
    cluster.onTakeover(() => this.look("whole"));
    this.ownership.onNote(({ kind, id, seq }) => {
      if (kind === "run" || kind === "end") this.watches.hear(id, seq);
      if (kind === "end") ends.wake(id);
      if (kind === "signal" && this.ownership.owns(id)) void this.#readSignal(id);
      if (kind === "queue") this.look();
      if (kind === "end") this.#lookForWaiting();
    });
    this.ownership.onLost((ids) => this.#lose(ids));
    // A gateway whose lease has run out is noticed half a lease later at the latest
    this.#poll = clock.every(Math.min(POLL_MS, this.ownership.leaseMs / 2), () => this.look("whole"));
    this.look("whole");
    await this.#looking;
  }

  /** Ends the claiming, for a shutdown. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#poll?.clear();
    this.watches.stop();
    await this.#looking;
  }

  /** Looks for runs to claim, now or after the look that is at work. */
  look(due: "news" | "whole" = "news"): void {
    if (this.#due !== "whole") this.#due = due;
    if (!this.#isStopped) this.#looking ??= this.#look();
  }

  /** Checks that the cluster has room for one more run. @throws {HttpError} 503 `overloaded` */
  checkBounds(conversationId: string | null): void {
    const { maxQueued, maxPerConversation } = this.#options.limits();
    const { waiting, byConversation } = this.ownership.queue();
    if (waiting >= maxQueued) throw overloaded("too many runs of the cluster are waiting");
    if (conversationId !== null && (byConversation.get(conversationId) ?? 0) >= maxPerConversation) {
      throw fullLine();
    }
  }

  /**
   * Returns a place that waits for the conversation in the whole cluster. The run stands in line from here on, and lends its slot while
   * it waits for earlier runs: they may need it.
   */
  placeOf(place: QueuePlace, { run, isAccepted }: {
    readonly run: ClaimableRun;
    readonly isAccepted: boolean;
  }): QueuePlace {
    const { ownership } = this;
    const { limits } = this.#options;
    const leaveLine = this.#enterLine(run.conversationId ?? "", { place, isAccepted });
    return {
      ready: () => false,
      async wait(signal) {
        // An accepted run has its place by its claim, until others take the run over
        if (isAccepted && (!ownership.owns(run.id) || ownership.isLost(run.id))) throw runTakenOver();
        const maxBefore = isAccepted ? undefined : limits().maxPerConversation;
        if (!await ownership.lineUp(run, { mayHold: place.ready(), maxBefore, signal })) throw fullLine();
        await place.wait(signal);
        if (!ownership.holds(run)) await place.pause(() => ownership.takeConversation(run, signal));
      },
      pause: (wait) => place.pause(wait),
      leave() {
        leaveLine();
        place.leave();
      },
    };
  }

  /** Counts a run of a conversation at this gateway. @returns a function that ends this. @throws {HttpError} 503 `overloaded` */
  #enterLine(
    conversationId: string,
    { place, isAccepted }: { readonly place: QueuePlace; readonly isAccepted: boolean },
  ): () => void {
    const before = this.#lines.get(conversationId) ?? 0;
    if (!isAccepted && before > this.#options.limits().maxPerConversation) {
      place.leave();
      throw fullLine();
    }
    this.#lines.set(conversationId, before + 1);
    let hasLeft = false;
    return () => {
      if (hasLeft) return;
      hasLeft = true;
      const left = (this.#lines.get(conversationId) ?? 1) - 1;
      if (left > 0) this.#lines.set(conversationId, left);
      else this.#lines.delete(conversationId);
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

  /** Returns what makes calls of the store for a run, again and again while the database is away. @param signal ends the pauses */
  onceBackOf(runId: string, signal: AbortSignal): OnceBack {
    return (work) => this.ownership.onceBack(runId, work, signal);
  }

  /**
   * Returns the workspace that a new run needs, where a tool of the run needs files or programs: the wanted one, or this gateway's.
   * @throws {HttpError} 503 `workspace_unavailable` for durable work, when other gateways have another folder as this workspace
   */
  workspaceFor({ tools, durable, wanted }: {
    readonly tools: readonly Pick<Tool, "local">[];
    readonly durable: boolean;
    readonly wanted?: string | undefined;
  }): string | null {
    if (!tools.some(({ local }) => local)) return null;
    if (wanted !== undefined) return wanted;
    const refusal = this.ownership.membership()?.refusal();
    if (refusal === undefined || !durable) return this.ownership.workspace();
    throw new HttpError("workspace_unavailable", `Cannot start the run: its tools need the workspace, and ${refusal}`, {
      status: 503,
      type: "api_error",
    });
  }

  /** Gives back what a run had that has left. A run that stopped for a shutdown or a drain goes on at another gateway. */
  leave(entry: Pick<ActiveRun, "id" | "conversationId" | "durable">): void {
    const { id, conversationId, durable } = entry;
    const { runs, log } = this.#options;
    runs.forget(id);
    const leaving = this.#isStopped && durable
      ? this.ownership.handOn({ id }, (error) => {
        log.warn("A run could not be handed on: it goes on when this gateway has given its lease back", {
          run_id: id,
          error,
        });
      })
      : this.ownership.leave({ id, conversationId }, (error) => {
        log.warn("A conversation could not be given back: its next run waits for it", { run_id: id, error });
      });
    this.#leaving.add(leaving);
    void leaving.finally(() => this.#leaving.delete(leaving));
    this.#lookForWaiting();
  }

  /** Resolves when everything is given back of the runs that have left. */
  async settle(): Promise<void> {
    await Promise.all(this.#leaving);
  }

  /** Tells the owner of a run that somebody has cancelled it, and ends a run that has none. */
  async cancelElsewhere(id: string): Promise<void> {
    this.ownership.tell("signal", id);
    const run = await this.ownership.claimToEnd(id);
    if (run !== undefined) await this.#takeUp(run);
  }

  /** Cancels the sub-agents of a run that was cancelled, wherever they work. Never throws. */
  async cancelChildren(id: string): Promise<void> {
    const { cancel, log } = this.#options;
    try {
      for (const child of await this.ownership.childrenOf(id)) await cancel(child);
    } catch (error) {
      log.error("Sub-agents of a cancelled run could not be cancelled", { run_id: id, error });
    }
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

  /** Looks after a run has ended, when the last look left runs waiting. Each run that comes to wait later has a note of its own. */
  #lookForWaiting(): void {
    if (this.ownership.queue().waiting > 0) this.look();
  }

  async #look(): Promise<void> {
    const { queue, active, log } = this.#options;
    while (this.#due !== "none" && !this.#isStopped) {
      const isWhole = this.#due === "whole";
      this.#due = "none";
      try {
        if (isWhole) {
          await this.#adopt();
          for (const id of await this.ownership.signals()) await this.#readSignal(id);
        }
        const claimed = await this.ownership.claim({
          isWhole,
          limit: queue.freeSlots(),
          staysWithParent: this.#options.hasRunBudget?.() ?? false,
          // A child of a run at work here takes no slot, and its parent may wait for it
          takesNoSlot: ({ parentId }) => parentId !== null && active.find(parentId) !== undefined,
          isKnown: (id) => active.find(id) !== undefined || this.#unreadable.has(id),
        });
        for (let next = 0; next < claimed.length; next += TAKEN_UP_AT_ONCE) {
          await Promise.all(claimed.slice(next, next + TAKEN_UP_AT_ONCE).map((run) => this.#takeUp(run)));
        }
        if (isWhole) await this.#strand();
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) log.error("Runs cannot be claimed: the gateway tries again each second", { error });
        this.#isAway = true;
      }
    }
    // In the same step as the last look at what is due, so that no news falls between
    this.#looking = undefined;
  }

  /** Takes the runs into the cluster that a gateway alone left open, once: their records may have been moved here. */
  async #adopt(): Promise<void> {
    if (this.#hasAdopted) return;
    const { log } = this.#options;
    const adopted = await this.ownership.adopt(OPEN_RUNS, async (id) => {
      try {
        return await this.#toClaimable(id);
      } catch (error) {
        if (isStorageAway(error)) throw error;
        log.error("An open run cannot be read: it stays for a person", { run_id: id, error });
        return undefined;
      }
    });
    if (adopted > 0) log.info("Open runs of a gateway alone were taken into the cluster", { runs: adopted });
    this.#hasAdopted = true;
  }

  /** Returns an open run of a gateway alone. Its files are most likely where the first gateway of the cluster is. */
  async #toClaimable(id: string): Promise<ClaimableRun | undefined> {
    const { runs } = this.#options;
    const run = await runs.get(id);
    if (run === undefined) return undefined;
    const input = await runs.input(id);
    const workspace = input?.durable === true ? workspaceOf(input) ?? this.ownership.workspace() : null;
    return { id, conversationId: run.conversation_id, parentId: run.parent_id, workspace };
  }

  /** Claims runs whose workspace has no gateway, to let them wait, or to end those that have waited long enough. */
  async #strand(): Promise<void> {
    const { cluster } = this.#options;
    const end = cluster.clock.now() - cluster.workspaceWaitMs;
    const due = this.ownership.stranded().filter(({ since }) => since === undefined || since <= end);
    let taken = 0;
    for (const { id, since } of due.slice(0, MAX_STRANDED)) {
      const run = await this.ownership.claimToEnd(id);
      if (run !== undefined && await this.#takeUp(run, since)) taken++;
    }
    // A look that has done nothing, as while this gateway may not act, would go round for ever
    if (taken > 0 && due.length > MAX_STRANDED) this.#due = "whole";
  }

  /**
   * Lets a claimed run go on, or ends it. One of another workspace waits for a gateway of that, or ends after its time.
   * @param since time since which the workspace has no gateway. Undefined: that was just found
   */
  async #settle(run: ClaimableRun, since: number | undefined): Promise<void> {
    const { runs, recovery, cluster, log } = this.#options;
    const { id, workspace } = run;
    const found = await runs.get(id);
    // A gateway that did not know of the run's end has written its claim anew
    if (found !== undefined && isEnded(found.status)) return await this.ownership.dismiss(id);
    const open = { id, cancelled: await runs.isCancelled(id) };
    if (this.ownership.mayWorkIn(workspace)) {
      const isBack = found?.waiting_for !== undefined;
      if (isBack) await runs.setWaiting(id, undefined, this.ownership.comingBack(id));
      return await recoverRun(open, recovery);
    }
    const interrupted = await settleRun(open, recovery);
    if (interrupted === undefined) return;
    const { workspaceWaitMs, clock } = cluster;
    if (since !== undefined && since <= clock.now() - workspaceWaitMs) {
      return await endInterrupted(interrupted, workspaceIsGone(workspaceWaitMs), recovery);
    }
    if (!await runs.setWaiting(id, "workspace", [this.ownership.stranding(run, since ?? clock.now())])) return;
    log.warn("A run waits for its workspace, which has no gateway", { run_id: id, workspace });
  }

  /**
   * Takes up a claimed run. Never throws.
   * @returns false for a run that cannot be taken up now: it is claimed again at the next look, or stays for a person
   */
  async #takeUp(run: ClaimableRun, since?: number): Promise<boolean> {
    const { active } = this.#options;
    const { id } = run;
    let isTakenUp = false;
    try {
      if (!this.ownership.isLost(id)) {
        await this.#settle(run, since);
        isTakenUp = true;
      }
    } catch (error) {
      if (await this.#staysForPerson(id, error)) return false;
    }
    // The lease may have been lost while the run was read: others may own it, and have it begun
    const entry = active.find(id);
    if (entry === undefined) this.ownership.forget(id);
    else if (this.ownership.isLost(id)) entry.abort(runTakenOver());
    return isTakenUp;
  }

  /** Looks why a claimed run could not be taken up. @returns true for a run that cannot be read: it stays with this gateway, for a person */
  async #staysForPerson(id: string, error: unknown): Promise<boolean> {
    const isAway = isStorageAway(error);
    if (isAway) this.#due = "none";
    if (isAway || await this.#isDismissed(id) || this.ownership.isLost(id)) return false;
    this.#unreadable.add(id);
    this.#options.log.error("Claimed run could not be taken up", { run_id: id, error });
    return true;
  }

  /** Ends the claim of a run without a record. @returns false for a run with a record, which may be one that cannot be read */
  async #isDismissed(id: string): Promise<boolean> {
    try {
      if (await this.#options.runs.get(id) !== undefined) return false;
      await this.ownership.dismiss(id);
      return true;
    } catch (error) {
      return isStorageAway(error);
    }
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
      active.find(id)?.abort(runTakenOver());
      // A run that is just being taken up keeps the fence of its claim until that has ended
      if (this.#unreadable.delete(id)) this.ownership.forget(id);
    }
  }
}

/** Returns the end of a run whose workspace has no gateway for too long. */
function workspaceIsGone(waitMs: number) {
  const message =
    `Cannot go on: its tools need a workspace that had no gateway for ${
      waitMs / 1_000
    } s; start a gateway of that workspace ` +
    "in time, or raise [cluster] workspace_wait_secs";
  return { code: "workspace_unavailable", message };
}

function fullLine(): HttpError {
  return overloaded("too many runs of this conversation are waiting");
}
