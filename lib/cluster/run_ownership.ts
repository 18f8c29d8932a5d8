import { CancelError, cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { HttpError } from "../base/errors.ts";
import type { Write } from "../storage/store.ts";
import { type ClusterNews, type ClusterNote, POLL_MS } from "./cluster_news.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import { fenceCheck, type JoinedGateway } from "./leases.ts";
import type { ClaimableRun, ClusterQueue, RunClaims } from "./run_claims.ts";

/** Parts of `RunOwnership`. */
export interface RunOwnershipOptions {
  readonly lease: GatewayLease;
  readonly claims: RunClaims;
  readonly news: ClusterNews;
  readonly clock: Clock;
  readonly leaseMs: number;
}

interface OwnedRun extends ClaimableRun {
  readonly own: JoinedGateway;
  /** True: the run works in its conversation. */
  holds: boolean;
}

/** Pause before a write is tried again while the database is away. */
const RETRY_MS = 250;

/**
 * The runs that this gateway owns in a cluster, each with the fence of its claim.
 *
 * The journal asks here what goes with its batches, and the executor whether an effect may begin. A gateway alone has none of this: its
 * runs have no owner to be told of.
 */
export class RunOwnership {
  /** Milliseconds of a lease. */
  readonly leaseMs: number;
  readonly #options: RunOwnershipOptions;
  readonly #owned = new Map<string, OwnedRun>();
  readonly #listeners = new Set<(note: ClusterNote) => void>();
  readonly #lostListeners = new Set<(runIds: readonly string[]) => void>();
  #queue: ClusterQueue = { waiting: 0, byConversation: new Map() };

  constructor(options: RunOwnershipOptions) {
    this.#options = options;
    this.leaseMs = options.leaseMs;
  }

  /** Tells whether this gateway owns a run. */
  owns(runId: string): boolean {
    return this.#owned.has(runId);
  }

  /** Tells whether a new run may begin here at once: nothing waits for a gateway, and this one may act. */
  mayBegin(): boolean {
    return this.#options.lease.mayAct() && this.#queue.waiting === 0;
  }

  /** Returns the runs that wait for a gateway, as the last look found them. */
  queue(): ClusterQueue {
    return this.#queue;
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

  /** Returns the writes that go with the acceptance of a run. */
  opening(run: ClaimableRun): readonly Write[] {
    return this.#options.claims.opening(run, this.#owned.get(run.id)?.own);
  }

  /** Returns the precondition of each batch that writes to the journal of a run. Empty for a run that nobody owns. */
  check(runId: string): readonly Write[] {
    const owned = this.#owned.get(runId);
    return owned === undefined ? [] : [fenceCheck(owned.own)];
  }

  /** Returns the writes that go with the end of a run. */
  ending(run: ClaimableRun): readonly Write[] {
    return this.#options.claims.ending(run, this.#owned.get(run.id)?.holds ?? false);
  }

  /** Returns the write by which the owner of a run hears that it has something to read. */
  signal(runId: string): Write {
    return this.#options.claims.signal(runId);
  }

  /**
   * Makes a write of an owned run, again and again while the database is away and nobody else has taken the run.
   * @returns what the write said; `isRepeated`: an earlier try may have been written
   * @throws the error of the write, once the run is lost
   */
  async write(
    runId: string,
    write: () => Promise<boolean>,
  ): Promise<{ readonly written: boolean; readonly isRepeated: boolean }> {
    const { lease, clock } = this.#options;
    for (let isRepeated = false;; isRepeated = true) {
      try {
        return { written: await write(), isRepeated };
      } catch (error) {
        const owned = this.#owned.get(runId);
        if (owned === undefined || !isAway(error)) throw error;
        await clock.sleep(RETRY_MS);
        if (!await lease.mayActUnder(owned.own.fence, new AbortController().signal)) throw error;
      }
    }
  }

  /**
   * Resolves when an effect of a run may begin.
   * @throws {CancelError} `shutdown` when others own the run now; the signal's reason when it aborts first
   */
  async mayAct(runId: string, signal: AbortSignal): Promise<void> {
    const owned = this.#owned.get(runId);
    if (owned === undefined) return;
    if (await this.#options.lease.mayActUnder(owned.own.fence, signal)) return;
    throw new CancelError("shutdown", "Another gateway has taken the run over");
  }

  /** Resolves when a run has its conversation for itself. @throws {CancelError} when the signal aborts first */
  async takeConversation(run: ClaimableRun, signal: AbortSignal): Promise<void> {
    const { claims, clock } = this.#options;
    for (;;) {
      if (!this.#owned.has(run.id)) await this.take(run, signal);
      const owned = this.#owned.get(run.id);
      if (owned === undefined || owned.holds) return;
      const listening = this.#nextEnd(signal);
      try {
        if (run.conversationId === null || await claims.hold(run.conversationId, { runId: run.id, own: owned.own })) {
          owned.holds = true;
          return;
        }
        await Promise.race([listening.heard, clock.sleep(POLL_MS, listening.signal)]);
      } finally {
        listening.stop();
      }
      if (signal.aborted) throw cancelError(signal);
    }
  }

  /** Gives back what a run that left without a record of its end still has. Never throws. */
  async leave({ id, conversationId }: ClaimableRun, log: (error: unknown) => void): Promise<void> {
    const owned = this.#owned.get(id);
    this.#owned.delete(id);
    if (owned?.holds !== true || conversationId === null) return;
    try {
      await this.#options.claims.release(conversationId, { runId: id, own: owned.own });
      this.tell("end", id);
    } catch (error) {
      log(error);
    }
  }

  /** Claims runs that nobody owns. @returns those that are this gateway's now */
  async claim({ limit, isKnown }: {
    readonly limit: number;
    readonly isKnown: (id: string) => boolean;
  }): Promise<readonly ClaimableRun[]> {
    const { lease, claims } = this.#options;
    const own = lease.own();
    if (own === undefined || !lease.mayAct()) return [];
    const { claimed, queue } = await claims.claim(own, { limit, isKnown: (id) => isKnown(id) || this.#owned.has(id) });
    this.#queue = queue;
    for (const run of claimed) this.#owned.set(run.id, { ...run, own, holds: run.conversationId !== null });
    return claimed;
  }

  /** Claims one run that nobody owns, in order to end it. @returns false when others own it */
  async claimToEnd(runId: string): Promise<boolean> {
    const own = this.#options.lease.own();
    if (own === undefined || !this.#options.lease.mayAct() || this.#owned.has(runId)) return false;
    const run = await this.#options.claims.claimToEnd(runId, own);
    if (run !== undefined) this.#owned.set(runId, { ...run, own, holds: false });
    return run !== undefined;
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

  /** Tells all gateways that something about a record has changed. */
  tell(kind: ClusterNote["kind"], id: string, seq = 0): void {
    this.#options.news.tell(kind, id, seq);
  }

  /** Calls a function for each note of any gateway. @returns a function that ends this */
  onNote(listener: (note: ClusterNote) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Calls a function with the ids of this gateway's runs when others have taken them over. */
  onLost(listener: (runIds: readonly string[]) => void): void {
    this.#lostListeners.add(listener);
  }

  /** Takes a note that came over the wire. */
  hear(note: ClusterNote): void {
    for (const listener of [...this.#listeners]) listener(note);
  }

  /**
   * Takes the news that others have fenced this gateway off. Its runs keep the fence of their claims until they have left, so that what
   * they still write is refused.
   */
  lose(): void {
    const lost = [...this.#owned.keys()];
    for (const listener of [...this.#lostListeners]) listener(lost);
  }

  #nextEnd(signal: AbortSignal) {
    const waiting = new AbortController();
    const heard = Promise.withResolvers<void>();
    const stop = this.onNote(({ kind }) => void (kind === "end" && heard.resolve()));
    const onAbort = () => heard.resolve();
    signal.addEventListener("abort", onAbort, { once: true });
    return {
      heard: heard.promise,
      signal: waiting.signal,
      stop() {
        stop();
        waiting.abort();
        signal.removeEventListener("abort", onAbort);
      },
    };
  }
}

function isAway(error: unknown): boolean {
  return error instanceof HttpError && error.code === "storage_unavailable";
}
