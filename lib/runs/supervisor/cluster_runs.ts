import { POLL_MS } from "../../cluster/cluster_news.ts";
import type { ClaimableRun } from "../../cluster/run_claims.ts";
import type { RunOwnership } from "../../cluster/run_ownership.ts";
import { takenOver } from "../../cluster/work_hold.ts";
import { withTimeout } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import type { EffectRight } from "../../base/effect_right.ts";
import type { Cluster } from "../../cluster/join_cluster.ts";
import type { Provider } from "../../providers/provider.ts";
import type { Patience } from "../../storage/read_records.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import { RunWatches } from "../journal/run_watch.ts";
import type { InterruptedRun } from "../recovery/recover_runs.ts";
import type { ActiveRun } from "./active_run.ts";
import { RunClaimer } from "./claim_runs.ts";
import type { Beginning, RunCoordination, RunParts } from "./run_coordination.ts";
import { overloaded, type QueuePlace } from "./run_queue.ts";

/** Cluster, and the parts of a supervisor that work in it. */
export interface ClusterRunsOptions extends RunParts {
  readonly cluster: Cluster;
}

/**
 * The coordination of one gateway of several. Hears notes of the others, and decides for runs of this gateway: when one may start, in which
 * workspace, and whether this gateway still owns it. `RunClaimer` (claim_runs.ts) finds the runs to take up.
 */
export class ClusterRuns implements RunCoordination {
  readonly isShared = true;
  readonly ownership: RunOwnership;
  /** Runs that are at work elsewhere and followed here. */
  readonly watches: RunWatches;
  readonly #options: ClusterRunsOptions;
  readonly #claimer: RunClaimer;
  /** Number of runs of this gateway that work or wait, by conversation. */
  readonly #lines = new Map<string, number>();
  /** Writes of runs that are leaving. */
  readonly #leaving = new Set<Promise<void>>();

  constructor(options: ClusterRunsOptions) {
    this.#options = options;
    this.ownership = options.cluster.ownership;
    this.watches = new RunWatches({ ...options, links: options.cluster.links });
    this.#claimer = new RunClaimer(options);
  }

  /** Begins to claim. Resolves after the first look. */
  start(): Promise<void> {
    const { ends } = this.#options;
    this.#options.cluster.bus.onNote(({ kind, id, seq }) => {
      if (kind === "run" || kind === "end") this.watches.onNote(id, seq);
      if (kind === "end") ends.wake(id);
      if (kind === "signal" && this.ownership.owns(id)) void this.#claimer.readSignal(id);
      if (kind === "queue") this.look();
      if (kind === "end") this.lookForWaiting();
    });
    return this.#claimer.start();
  }

  /** Ends the claiming and the watches, for a shutdown. Resolves when the look at work has ended. */
  stop(): Promise<void> {
    const stopped = this.#claimer.stop();
    this.watches.stop();
    return stopped;
  }

  /** Looks for runs to claim, now or right after the look that is at work. */
  look(): void {
    void this.#claimer.look();
  }

  /** Looks for runs to claim after a slot or a conversation has become free, when the last look left runs waiting. */
  lookForWaiting(): void {
    this.#claimer.lookForWaiting();
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

  /** Returns null: the line of a conversation is in the database, and a run that is before this one may begin here too. */
  ownLine(): null {
    return null;
  }

  /**
   * Decides whether a durable run begins here at its acceptance: when a slot is free and nothing waits. Else it waits for whichever gateway
   * claims it. Runs of a conversation always wait, since they begin in the order in which they were accepted.
   */
  beginningOf(
    run: ClaimableRun,
    { isReady, isChild }: { readonly isReady: () => boolean; readonly isChild: boolean },
  ): Beginning {
    const { ownership } = this;
    // A child takes no slot, and its parent may wait for it: it waits for no other run
    const mayBegin = isChild || ownership.mayBegin();
    const isHere = ownership.mayWorkIn(run.workspace) && run.conversationId === null && isReady() && mayBegin &&
      ownership.tryTake(run);
    return isHere ? "once_accepted" : "elsewhere";
  }

  /** Tells all gateways that a run waits for one of them, and looks whether it is this one. */
  offer(runId: string): void {
    this.ownership.tell("queue", runId);
    this.look();
  }

  goOn({ run }: InterruptedRun): void {
    this.offer(run.id);
  }

  /** Returns the right of a run to begin effects, which ends with the lease. */
  rightOf(runId: string, signal: AbortSignal): EffectRight {
    return this.ownership.rightOf(runId, signal);
  }

  /**
   * Returns a place that waits for the conversation in the whole cluster. The run waits in line from here on, and frees its slot while
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
        if (isAccepted && (!ownership.owns(run.id) || ownership.isLost(run.id))) throw takenOver("run");
        const maxBefore = isAccepted ? undefined : limits().maxPerConversation;
        if (!await ownership.lines.lineUp(run, { mayHold: place.ready(), maxBefore, signal })) throw fullLine();
        await place.wait(signal);
        if (!ownership.lines.holds(run)) await place.pause(() => ownership.lines.takeConversation(run, signal));
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

  /** Returns the patience of a run: it waits for the database while nobody else owns the run. @param signal ends the pauses */
  patienceOf(runId: string, signal?: AbortSignal): Patience {
    return this.ownership.patienceOf(runId, signal);
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
    throw refuse("workspace_unavailable", `Cannot start the run: its tools need the workspace, and ${refusal}`);
  }

  /** Gives back what a run had that has left. A run that stopped for a shutdown or a drain goes on at another gateway. */
  leave(entry: Pick<ActiveRun, "id" | "conversationId" | "durable">): void {
    const { id, conversationId, durable } = entry;
    const { runs, log } = this.#options;
    runs.forget(id);
    const leaving = this.#claimer.isStopped() && durable
      ? this.ownership.handOn({ id }, (error) => {
        log.warn("A run could not be handed on: it goes on when this gateway has given its lease back", {
          run_id: id,
          error,
        });
      })
      : this.ownership.lines.leave({ id, conversationId }, (error) => {
        log.warn("A conversation could not be given back: its next run waits for it", { run_id: id, error });
      });
    this.#leaving.add(leaving);
    void leaving.finally(() => this.#leaving.delete(leaving));
    this.lookForWaiting();
  }

  /** Resolves when everything is given back of the runs that have left. */
  async settle(): Promise<void> {
    await Promise.all(this.#leaving);
  }

  runIn(conversationId: string): Promise<string | undefined> {
    return this.ownership.lines.runIn(conversationId);
  }

  /** Tells the owner of a run that a message waits for it: with a note, and with a record in case that is lost. */
  async tellOwner(id: string): Promise<void> {
    await this.#options.runs.signal(id);
    this.ownership.tell("signal", id);
  }

  /** Tells the owner of a run that somebody has cancelled it, and ends a run that has none. */
  async cancelElsewhere(id: string): Promise<void> {
    this.ownership.tell("signal", id);
    await this.#claimer.endUnowned(id);
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
    await withTimeout(heard, { ms: POLL_MS, clock: this.#options.clock });
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
    throw refuse(
      "conflict",
      `Cannot make the calls of this run again yet: the gateway that began them may still be ending them; try again in ${seconds} s`,
      { headers: { "Retry-After": String(seconds) } },
    );
  }
}

function fullLine(): HttpError {
  return overloaded("too many runs of this conversation are waiting");
}
