import { CancelError, neverAborted } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import type { EffectRight } from "../base/effect_right.ts";
import { storageUnavailable } from "../storage/postgres/server_watch.ts";
import type { Write } from "../storage/store.ts";
import { createPatience, isStorageAway, type Patience } from "../storage/read_records.ts";
import type { ClusterBus } from "./cluster_news.ts";
import { ConversationLines, type OwnedRun, type OwnedRuns } from "./conversation_lines.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, type JoinedGateway } from "./leases.ts";
import type { ClaimableRun, ClusterQueue, RunClaims, StrandedRun } from "./run_claims.ts";
import type { WorkPlaces } from "./work_claims.ts";
import { RETRY_MS, takenOver } from "./work_hold.ts";
import type { WorkspaceMembership } from "./workspace_membership.ts";

/** Parts of `RunOwnership`. */
export interface RunOwnershipOptions {
  readonly lease: GatewayLease;
  readonly claims: RunClaims;
  readonly bus: ClusterBus;
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Returns this gateway's place among those of its workspace. Default: it has none */
  readonly membership?:
    | (() => Pick<WorkspaceMembership, "id" | "proven" | "refusal" | "whyUnproven" | "isThere"> | undefined)
    | undefined;
  /** Receives the runs that a look found waiting. Default: nobody does */
  readonly onLook?: ((queue: ClusterQueue) => void) | undefined;
}

/**
 * The runs that this gateway owns in a cluster, each with the fence of its claim.
 *
 * The journal asks here what goes with its batches, and the executor whether an effect may begin. A gateway alone owns every run without a
 * claim, see `OWNS_ALL`.
 */
export class RunOwnership implements OwnedRuns, WorkPlaces {
  /** Milliseconds of a lease. */
  readonly leaseMs: number;
  readonly #options: RunOwnershipOptions;
  /** Runs with the fences of their claims, until their work is over here. No run is claimed a second time before. */
  readonly #owned = new Map<string, OwnedRun>();
  /** Runs that are being claimed to be ended: a look that finds the claim of one leaves it alone. */
  readonly #claiming = new Set<string>();
  readonly #lostListeners = new Set<(runIds: readonly string[]) => void>();
  #queue: ClusterQueue = { waiting: 0, waitingHere: 0, hasAbandoned: false, ids: [], byConversation: new Map() };
  #stranded: readonly StrandedRun[] = [];
  /** Places of these runs in the lines of their conversations. */
  readonly lines: ConversationLines;

  constructor(options: RunOwnershipOptions) {
    this.#options = options;
    this.leaseMs = options.leaseMs;
    this.lines = new ConversationLines({ runs: this, bus: options.bus, claims: options.claims, clock: options.clock });
  }

  /** Returns this gateway's place among those of its workspace. Undefined: it has none. */
  membership(): ReturnType<NonNullable<RunOwnershipOptions["membership"]>> {
    return this.#options.membership?.();
  }

  /** Returns the workspace that new work of this gateway is bound to; null: none, as when other gateways have another folder. */
  workspace(): string | null {
    const membership = this.membership();
    return membership === undefined || membership.refusal() !== undefined ? null : membership.id;
  }

  /** Returns the workspace whose work this gateway may claim; null: none, as before it has proven that it has the folder. */
  provenWorkspace(): string | null {
    return this.membership()?.proven() ?? null;
  }

  /** Tells whether a workspace has a gateway: of a gateway without one, as far as it knows. */
  async isThere(workspace: string): Promise<boolean> {
    return await this.membership()?.isThere(workspace) ?? true;
  }

  /** Tells whether this gateway may go on with runs that are bound to a workspace; null: to none. */
  mayWorkIn(workspace: string | null): boolean {
    return workspace === null || workspace === this.provenWorkspace();
  }

  /** Returns this gateway with its fence. Undefined while it has joined no lease. */
  own(): JoinedGateway | undefined {
    return this.#options.lease.own();
  }

  /** Returns the name of the database's history, as the last heartbeat found it, see `LeaseDatabase`. */
  history(): string | undefined {
    return this.#options.lease.history();
  }

  /** Tells whether a gateway still has this fence: what it had begun goes on there. */
  isCurrent(gateway: JoinedGateway): Promise<boolean> {
    return this.#options.claims.counts(gateway);
  }

  /** Tells whether an error says that the database is down: it may come back. */
  isOutage(error: unknown): boolean {
    return isStorageAway(error);
  }

  /** Returns a run that this gateway owns. */
  find(runId: string): OwnedRun | undefined {
    return this.#owned.get(runId);
  }

  /** Tells whether this gateway owns a run. */
  owns(runId: string): boolean {
    return this.#owned.has(runId);
  }

  /** Tells whether others may own a run that this gateway had claimed: the gateway has lost the fence of the claim. */
  isLost(runId: string): boolean {
    const owned = this.#owned.get(runId);
    return owned !== undefined && !this.#options.lease.hasFence(owned.own.fence);
  }

  /** Returns the number of open runs that this gateway owns. */
  count(): number {
    return this.#owned.size;
  }

  /** Tells whether a new run may begin here at once: nothing waits for a gateway, and this one may act. */
  mayBegin(): boolean {
    return this.#options.lease.mayAct() && this.#queue.waitingHere === 0;
  }

  /** Returns the runs that wait for a gateway, as the last look found them. */
  queue(): ClusterQueue {
    return this.#queue;
  }

  /** Returns the runs whose workspace has no gateway, as the last look found them. */
  stranded(): readonly StrandedRun[] {
    return this.#stranded;
  }

  /** Returns the write by which this gateway gives a run back that waits for its workspace. @param since by the database's clock, in ms */
  stranding(run: ClaimableRun, since: number): Write {
    return this.#options.claims.stranding(run, since);
  }

  /** Returns the write by which this gateway takes up a run that waited for its workspace. Empty for a run that it does not own. */
  comingBack(runId: string): readonly Write[] {
    const owned = this.#owned.get(runId);
    return owned === undefined ? [] : [this.#options.claims.comingBack(owned, owned.own)];
  }

  /** Makes a run this gateway's own, before the write that says so. Waits for the right to act. @throws {CancelError} */
  async take(run: ClaimableRun, signal: AbortSignal): Promise<void> {
    const { lease } = this.#options;
    for (;;) {
      const own = lease.own();
      if (lease.isStopped()) throw new CancelError("shutdown");
      if (own === undefined) await this.#options.clock.sleep(RETRY_MS, signal);
      else if (await lease.mayActUnder(own.fence, signal)) {
        const holds = this.#owned.get(run.id)?.holds ?? false;
        this.#owned.set(run.id, { ...run, own, holds });
        return;
      }
    }
  }

  /** Makes a run this gateway's own when the gateway may act now. @returns false when it may not */
  tryTake(run: ClaimableRun): boolean {
    const own = this.#options.lease.own();
    if (own === undefined || !this.#options.lease.mayAct()) return false;
    this.#owned.set(run.id, { ...run, own, holds: false });
    return true;
  }

  /** Lets go of a run without a write: it has ended, was never accepted, or others own it. */
  forget(runId: string): void {
    this.#owned.delete(runId);
  }

  /**
   * Looks why a batch of a run did not hold.
   * @throws {HttpError} `storage_unavailable`: others have fenced this gateway off, which joins again at its next heartbeat
   */
  async requireFence(runId: string): Promise<void> {
    const own = this.#owned.get(runId)?.own;
    if (own === undefined || await this.#options.claims.counts(own)) return;
    throw storageUnavailable(new Error("this gateway has lost its lease and joins the cluster again"));
  }

  /** Returns the writes that go with the acceptance of a run. */
  opening(run: ClaimableRun): readonly Write[] {
    const owned = this.#owned.get(run.id);
    if (owned?.isInLine !== true) return this.#options.claims.opening(run, owned?.own);
    owned.isInLine = false;
    return [];
  }

  /**
   * Returns the precondition of each batch that the owner of a run writes to its journal.
   * @throws {CancelError} `shutdown` for a run that this gateway does not own
   */
  check(runId: string): readonly Write[] {
    const owned = this.#owned.get(runId);
    if (owned === undefined) throw takenOver("run");
    return [fenceCheck(owned.own)];
  }

  /** Returns the precondition that nobody owns a run, as one that waits for a person's review. */
  unowned(runId: string): readonly Write[] {
    return this.#options.claims.unclaimed(runId);
  }

  /** Returns the writes that go with the end of a run. */
  ending(run: Pick<ClaimableRun, "id" | "conversationId">): readonly Write[] {
    return this.#options.claims.ending(run, this.#owned.get(run.id)?.holds ?? false);
  }

  /** Returns the write by which the owner of a run hears that it has something to read. */
  signal(runId: string): readonly Write[] {
    return [this.#options.claims.signal(runId)];
  }

  /**
   * Makes a write of a run, for an owned one again and again while the database is down and nobody else has taken the run.
   * @param isWritten tells whether an earlier try was written whose answer was lost
   * @throws the error of the write, once the run is lost
   */
  async write(runId: string, write: () => Promise<boolean>, isWritten: () => Promise<boolean>): Promise<boolean> {
    const { lease, clock } = this.#options;
    for (let isRepeated = false;; isRepeated = true) {
      try {
        const written = await write();
        if (written || !isRepeated) return written;
        break;
      } catch (error) {
        const owned = this.#owned.get(runId);
        if (owned === undefined || !isStorageAway(error)) throw error;
        await clock.sleep(RETRY_MS);
        if (!await lease.mayActUnder(owned.own.fence, new AbortController().signal)) throw error;
      }
    }
    return await isWritten();
  }

  /**
   * Returns the patience of a run: it makes a call of the store again and again while the database is down. A run without a record has no owner,
   * and waits as well: before its effects `mayAct` decides. A call is rejected with a {@link CancelError}: `shutdown` when others own the run now,
   * the signal's reason when it aborts during a pause.
   */
  patienceOf(runId: string, signal = neverAborted()): Patience {
    const { clock } = this.#options;
    const afterPause = async () => this.#owned.has(runId) ? await this.mayAct(runId, signal) : undefined;
    return createPatience({ clock, signal, pauseMs: RETRY_MS, afterPause });
  }

  /**
   * Resolves when an effect of a recorded run may begin: under the fence of the run's claim alone.
   * @throws {CancelError} `shutdown` when this gateway does not own the run, or others own it now; the signal's reason when it aborts first
   */
  async mayAct(runId: string, signal: AbortSignal): Promise<void> {
    const owned = this.#owned.get(runId);
    if (owned !== undefined && await this.#options.lease.mayActUnder(owned.own.fence, signal)) return;
    throw takenOver("run");
  }

  /** Returns the right of a recorded run to effects, see `mayAct`. @param signal aborts when the run stops */
  rightOf(runId: string, signal: AbortSignal): EffectRight {
    return {
      mayAct: () => this.mayAct(runId, signal),
      mayActNow: () => {
        const owned = this.#owned.get(runId);
        return owned !== undefined && this.#options.lease.mayActNowUnder(owned.own.fence);
      },
    };
  }

  /** Gives back all runs of this gateway, once none is at work here. */
  async giveAllBack(): Promise<void> {
    const own = this.#options.lease.own();
    if (own === undefined) return;
    await this.#options.claims.giveAllBack(own);
    this.tell("queue", own.id);
  }

  /** Gives an open run back that stopped here, so that others go on with it at once. Never throws. */
  async handOn({ id }: Pick<ClaimableRun, "id">, log: (error: unknown) => void): Promise<void> {
    const owned = this.#owned.get(id);
    this.#owned.delete(id);
    if (owned === undefined) return;
    try {
      await this.#options.claims.giveUp(owned, owned);
      this.tell("queue", id);
    } catch (error) {
      log(error);
    }
  }

  /**
   * Claims runs that nobody owns.
   * @param isWhole true: also those of gateways that are gone, and those that this gateway owns without knowing it
   * @returns those that are this gateway's now
   */
  async claim({ isWhole, limit, takesNoSlot, isKnown, staysWithParent }: {
    readonly isWhole: boolean;
    /** True: sub-agents are left to the gateways of their parents. Default false */
    readonly staysWithParent?: boolean | undefined;
    readonly limit: number;
    readonly takesNoSlot: (run: ClaimableRun) => boolean;
    readonly isKnown: (id: string) => boolean;
  }): Promise<readonly ClaimableRun[]> {
    const { lease, claims } = this.#options;
    const own = lease.own();
    if (own === undefined || !lease.mayAct()) {
      // Runs that the last look found may be over, or another gateway's, by now
      this.#stranded = [];
      return [];
    }
    const { claimed, queue, stranded } = await claims.claim(own, {
      isWhole,
      places: this,
      limit,
      takesNoSlot,
      staysWithParent,
      isKnown: (id) => isKnown(id) || this.#owned.has(id) || this.#claiming.has(id),
    });
    this.#stranded = stranded;
    // A look after news does not find the runs of gateways that are gone, and counts too few
    if (queue !== undefined && (isWhole || !this.#queue.hasAbandoned)) {
      this.#queue = queue;
      this.#options.onLook?.(queue);
    }
    for (const run of claimed) this.#owned.set(run.id, { ...run, own, holds: run.conversationId !== null });
    return claimed;
  }

  /** Claims one run that nobody owns, in order to end it. @returns undefined when others own it */
  async claimToEnd(runId: string): Promise<ClaimableRun | undefined> {
    const own = this.#options.lease.own();
    if (own === undefined || !this.#options.lease.mayAct()) return undefined;
    if (this.#owned.has(runId) || this.#claiming.has(runId)) return undefined;
    this.#claiming.add(runId);
    try {
      const run = await this.#options.claims.claimToEnd(runId, own);
      if (run !== undefined) this.#owned.set(runId, { ...run, own, holds: false });
      return run;
    } finally {
      this.#claiming.delete(runId);
    }
  }

  /** Gives a claim to each open run that has none, see `RunClaims.adopt`. */
  adopt(...given: Parameters<RunClaims["adopt"]>): Promise<number> {
    return this.#options.claims.adopt(...given);
  }

  /** Returns the ids of the open runs that a run has started as sub-agents, wherever they work. */
  childrenOf(runId: string): Promise<readonly string[]> {
    return this.#options.claims.childrenOf(runId);
  }

  /** Returns the ids of the runs of this gateway that were told to read. */
  async signals(): Promise<readonly string[]> {
    if (this.#owned.size === 0) return [];
    return (await this.#options.claims.signals()).filter((id) => this.#owned.has(id));
  }

  /** Tells all gateways that something about a run has changed. */
  tell(kind: "run" | "end" | "queue" | "signal", runId: string, seq = 0): void {
    this.#options.bus.tell(kind, runId, seq);
  }

  /** Calls a function with the ids of this gateway's runs when others have taken them over. */
  onLost(listener: (runIds: readonly string[]) => void): void {
    this.#lostListeners.add(listener);
  }

  /**
   * Takes the news that others have fenced this gateway off. Its runs keep the fence of their claims until they have left, those too that
   * are only being read, so that what they still write is refused and none begins an effect.
   */
  onFenced(): void {
    const lost = [...this.#owned.keys()];
    for (const listener of [...this.#lostListeners]) listener(lost);
  }
}
